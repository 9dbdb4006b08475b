"""The array core of placement: a fleet as arrays, prices learnt from the mix of asks, and the choice of a place.

The same core serves one machine and 100,000: what a choice costs is looked up in small tables, kept for every kind of
ask and row, and worked out anew only for the rows that changed. All of it is integers, so that NumPy and the compiled
kernels (`cumulo[scale]`) decide the same.
"""
