"""The ends of a result are reached at the ends of its operands, where the function is monotone in each of them."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from conv2attn.convert.bounds.rounding import gamma
from conv2attn.convert.certificate.network.table import ACTIVATION_ULPS
from tests.convert.certificate.network.operations import OPERATIONS, box, numbers

MONOTONE = (
    *("add", "sub", "rsub", "mul", "div", "sigmoid", "tanh", "hardsigmoid", "elu"),
    *("relu", "relu6", "hardtanh", "clamp", "clamp_min", "clamp_max", "leaky_relu", "prelu"),
)


# The bound and torch each err by so many roundings at most of what is no larger than (2 + 0.25)^2.
ROUNDED = 2 * gamma(2 * ACTIVATION_ULPS + 2, 2.0**-53) * 2.25**2


@pytest.mark.parametrize("name", MONOTONE)
def test_a_monotone_function_s_bounds_are_reached(name: str) -> None:
    for operation in OPERATIONS[name]:
        middles = [numbers(*shape, seed=place) for place, shape in enumerate(operation.shapes)]  # 0 is in no box
        middles = [x.abs() if operation.positive else x for x in middles]
        found = operation.bound([box(x, width=0.25) for x in middles], torch.float64)
        ends = product(*((x - 0.25, x + 0.25) for x in middles))
        corners = torch.stack([operation.run(corner) for corner in ends])
        torch.testing.assert_close(found.low, corners.amin(0), rtol=0, atol=ROUNDED)
        torch.testing.assert_close(found.high, corners.amax(0), rtol=0, atol=ROUNDED)
