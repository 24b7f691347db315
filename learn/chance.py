"""Chance: the numbers of test images that a network may get right without having learned anything.

If what a network answers does not depend on the class of an image, it gets this image right with the probability of the
class that it names, at most p, the largest class's share. Images are drawn independently. So the number right of N is
at most binomial with N and p (stochastically: each of the N independent trials succeeds with at most p), and

    P(at least k right) <= sum_{i = k}^{N} C(N, i) p^i (1 - p)^(N - i) .

That is the exact binomial test. With T networks, the probability that at least one of them has k right is at most T
times that (Bonferroni's inequality), although all are tested on the same images. k is the least number for which it is
at most the level.
"""

from __future__ import annotations

import math
from typing import NamedTuple

LEVEL = 0.05


class Chance(NamedTuple):
    """Test images by which networks are told from chance.

    Attributes:
        images: Their number.
        share: Share of the largest class.
    """

    images: int
    share: float

    def least(self, tries: int, *, level: float = LEVEL) -> int:
        """The least number right that one of several networks has by chance with a probability of at most ``level``.

        Args:
            tries: Number of networks.
            level: Probability that any of them is wrongly said to have learned.

        Returns:
            The number; more than there are images if all right would still be chance.
        """
        if self.share >= 1:
            return self.images + 1
        log_right, log_wrong = math.log(self.share), math.log1p(-self.share)
        tail, count = 0.0, self.images
        for right in range(count, -1, -1):
            ways = math.lgamma(count + 1) - math.lgamma(right + 1) - math.lgamma(count - right + 1)
            tail += math.exp(ways + right * log_right + (count - right) * log_wrong)
            if tries * tail > level:
                return right + 1
        return 0
