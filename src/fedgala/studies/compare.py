"""Is one method better than another over the same targets and seeds: an exact paired test.

The sign-flip (paired permutation) test and not Student's: a dozen differences over four unlike domains have no claim to
be normal, and the test needs only that, were the methods alike, each difference were as likely with the other sign. It
is exact: the distribution over all 2^n signs is built up difference by difference, on a grid of 0.001 points, so that
ties are ties. Pairs of one seed or one target are not independent draws of a domain: it speaks of these domains.
"""

from collections.abc import Sequence

import numpy as np

GRID = 1000  # steps in a percentage point: a hundredth of what a picture more or less is worth


def sign_flip_test(differences: Sequence[float]) -> float | None:
    """The probability, over all signs, of a mean at least as far from 0; two-sided; None for no differences."""
    steps = [abs(round(difference * GRID)) for difference in differences]
    if not steps:
        return None
    total = sum(steps)
    chance = np.ones(1)  # of each sum from -reach to reach
    for step in steps:
        chance = (np.pad(chance, (2 * step, 0)) + np.pad(chance, (0, 2 * step))) / 2
    observed = abs(sum(round(difference * GRID) for difference in differences))
    sums = np.abs(np.arange(-total, total + 1))
    return min(1.0, float(chance[sums >= observed].sum()))
