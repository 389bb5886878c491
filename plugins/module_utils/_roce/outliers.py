# Copyright: the pulumi-lium authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs that are far slower than their like, whatever the pass mark says.

For internal use of the collection; may change in any release.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

#: A pair this far below the median of its like is worth a look, even above the pass mark.
OUTLIER_SHARE = 0.90
#: Soft-RoCE runs on the CPU: its rate says nothing, so only a pair far below the others is worth a look.
SOFT_OUTLIER_SHARE = 0.33


def outliers(rates: Sequence[float | None], *, soft: bool = False) -> list[bool]:
    """Which of the rates of comparable pairs fall far below their median. Fewer than four have no median to speak of.

    Wide noise widens the band: never closer than three robust deviations.
    """
    known = [rate for rate in rates if rate]
    if len(known) < 4:
        return [False] * len(rates)
    median = statistics.median(known)
    spread = 1.4826 * statistics.median(abs(rate - median) for rate in known)
    low = min(median * (SOFT_OUTLIER_SHARE if soft else OUTLIER_SHARE), median - 3 * spread)
    return [rate is not None and 0 < rate < low for rate in rates]
