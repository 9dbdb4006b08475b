"""What measures: the budgets that the design sets, on the machine at hand, beside the bare limit of each.

`python -m bench` measures the budgets. Other modules measure other things and run the same way, `python -m bench.NAME`.
"""
