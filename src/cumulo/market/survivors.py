"""How many replicas of a mix will still be there after a cold start, pools that fail together included.

All replicas of a pool are lost at once or not at all, and pools of one region fail together more often than chance:
in each region times are bad with probability `BAD_SHARE`, when hazards are `BAD_TIMES` as high, and better the rest of
the time, so that each pool's mean stays what was learnt. On published traces of nine zones a loss came with another in
its region five times as often, in the same 195 s, as the zones' ages say, and 1.2 times with one elsewhere; a few
minutes later nothing was left of that, so what happened lately is no reason to expect more.

The distribution is a product of generating functions, evaluated at the roots of unity for many mixes at once.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

BAD_SHARE: Final = 0.1
BAD_TIMES: Final = 7.0
_GOOD_TIMES: Final = (1 - BAD_SHARE * BAD_TIMES) / (1 - BAD_SHARE)
_MOST_LOST: Final = 0.98  # even in bad times no loss is certain


class Survivors:
    """The distribution of survivors of mixes over columns: `lost[i]` is the chance that column i is lost.

    `regions[i]` numbers the column's region; columns with a chance of 0 stay whatever happens.
    """

    def __init__(self, *, lost: Floats, regions: Counts, most: int) -> None:
        self._most = most
        roots = np.exp(-2j * np.pi * np.arange(most + 1) / (most + 1))
        self._powers = roots[None, :] ** np.arange(most + 1)[:, None]  # (survivors, root)
        self._good = np.minimum(lost * _GOOD_TIMES, 1.0)
        self._bad = np.minimum(lost * BAD_TIMES, np.maximum(_MOST_LOST, lost))
        self._groups = [np.flatnonzero(regions == region) for region in np.unique(regions)]

    def expected(self, mixes: Counts, value: Floats) -> Floats:
        """The mean of `value[survivors]` for each mix: (mixes, columns) of counts to (mixes,).

        `value` covers 0 to `most` survivors, and no mix holds more than `most`.
        """
        product = np.ones((len(mixes), self._most + 1), dtype=np.complex128)
        for columns in self._groups:
            alive = self._powers[mixes[:, columns]]  # (mixes, columns of the region, roots)
            good, bad = (
                np.prod(lost[columns, None] + (1 - lost[columns, None]) * alive, axis=1)
                for lost in (self._good, self._bad)
            )
            product *= (1 - BAD_SHARE) * good + BAD_SHARE * bad
        # The inverse transform of the distribution, and its mean, in one product.
        weights = np.conj(self._powers).T @ value / (self._most + 1)
        means: Floats = (product @ weights).real
        return means
