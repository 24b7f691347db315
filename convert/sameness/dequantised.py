"""Networks whose weights are stored in few bits, as tensors of a class of their own: torchao's, for example.

Such a network runs as it is. Its graph is that of a copy whose weights are those that its stored numbers stand for, so
that their rounding to few bits is no part of what is judged, and what the engine makes of them is.
"""

from __future__ import annotations

import copy
from collections import Counter

import torch
from torch import Tensor, nn

from ..errors import ConversionError, refusing


def stored_in_few_bits(network: nn.Module) -> dict[str, str]:
    """The class of each parameter that says itself for which real numbers it stands, by name."""
    named = network.named_parameters(remove_duplicate=False)
    return {name: type(one).__name__ for name, one in named if type(one).dequantize is not Tensor.dequantize}


def described(classes: dict[str, str]) -> str:
    """How many weights there are of each class."""
    counts = Counter(classes.values()).items()
    return " and ".join(f"{count} weight{'s' if count > 1 else ''} as {kind}" for kind, count in counts)


@torch.no_grad()
def dequantised(network: nn.Module, classes: dict[str, str]) -> nn.Module:
    """A copy whose weights are ordinary tensors of the real numbers that the stored ones stand for.

    Args:
        network: A network, which is left as it is.
        classes: Of its parameters that are to be replaced, by name.

    Raises:
        ConversionError: One cannot be dequantised.
    """
    found: dict[int, nn.Parameter] = {}
    given = dict(network.named_parameters(remove_duplicate=False))
    for name, kind in classes.items():
        stored = given[name]
        with refusing(f"{name}, a {kind}, cannot be dequantised", ConversionError):
            value = stored.dequantize()
        if type(value) is not Tensor:
            raise ConversionError(f"{name}, a {kind}, is dequantised to a {type(value).__name__}, not to a tensor")
        found.setdefault(id(stored), nn.Parameter(value.detach().clone(), requires_grad=False))
    # Weights that are replaced are not copied, so that tied ones stay tied.
    return copy.deepcopy(network, dict(found.items()))
