"""`screen`: the papers of a corpus to read next, and how many relevant ones may still be unread.

The order cannot say how many are left. A random sample of the unread papers can: the number of relevant ones
in it bounds the number among all of them (Callaghan and Müller-Hansen 2020, Statistical stopping criteria for
automated screening in systematic reviews, Systematic Reviews 9:273).
"""

from __future__ import annotations

from bisect import bisect_left

CONFIDENCE = 0.95


def bound_relevant(papers: int, sampled: int, found: int, confidence: float = CONFIDENCE) -> int:
    """Return the largest number of relevant papers that a random sample does not rule out.

    With more of them, so few in the sample have a chance of `1 - confidence` or less (hypergeometric
    distribution; section "Statistical stopping criteria" of Callaghan and Müller-Hansen 2020, solved for the
    number). It holds for a sample whose size was decided before it was read.

    Args:
        papers: number of papers that the sample was drawn from, the sampled ones among them.
        sampled: number of papers drawn.
        found: number of relevant papers drawn.
        confidence: chance that the true number is not larger, at least.

    >>> bound_relevant(1000, 100, 0)
    27
    """
    from scipy.stats import hypergeom

    possible = range(found, papers - sampled + found + 1)
    ruled_out = bisect_left(
        possible, True, key=lambda count: hypergeom.cdf(found, papers, count, sampled) <= 1 - confidence
    )
    return possible[ruled_out - 1]
