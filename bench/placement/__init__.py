"""What measures placement: published traces, published policies, and bounds, beside Cumulo's own choice.

`python -m bench.placement NAME`; see `__main__`.
"""

import os

# Prices are small linear programs; threads of the BLAS on cores that are busy make one 30 times slower. To be set
# before NumPy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
