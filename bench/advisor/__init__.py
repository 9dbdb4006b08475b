"""How far the advisor's estimates are from published results, and the fitting of its constants to them.

A module of targets has `targets(folder) -> dict[str, Target]` (a file that the folder lacks gives no target), and for
each section of constants that it fits `fit(folder) -> dict`, with `SOURCES`, a line on what they are fitted to.
`cross(folder) -> dict[str, Target]`, where a module has it, scores each row by constants that were fitted without the
row's family.
"""
