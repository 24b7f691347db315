"""Train mode: which module of a side computes something else in it, by trial.

The side runs as it is, and with every module's own flag off. Where both give the same bits, the mode does not matter:
a wrapper's flag alone does nothing, nor does that of a program which was traced. Else modules are turned off one after
another, by halves, until the first is found that changes an output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..inputs import bitwise
from ..programs.program import left_alone

Outputs = Mapping[str, Tensor]


def depends_on_mode(
    networks: Sequence[nn.Module], own: Mapping[str, Tensor], run: Callable[[], Outputs]
) -> tuple[str, nn.Module] | None:
    """The first module in train mode that computes something else in it, by name, or None.

    Args:
        networks: The networks that run.
        own: Their tensors, which are put back.
        run: Runs them on copies of the inputs; an InputError is another result.
    """
    named: list[tuple[str, nn.Module]] = [each for network in networks for each in network.named_modules()]
    training = [each for each in named if getattr(each[1], "training", False)]
    if not training:
        return None

    def outputs(off: int) -> Outputs | None:
        with torch.random.fork_rng(devices=[]), left_alone(own, []), _off([one for _, one in training[:off]]):
            torch.manual_seed(0)
            try:
                return run()
            except InputError:
                return None

    as_it_is = outputs(0)
    if _same(as_it_is, outputs(len(training))) or not _same(as_it_is, outputs(0)):
        return None
    low, high = 0, len(training)  # the first `low` change nothing, the first `high` do
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _same(as_it_is, outputs(middle)) else (low, middle)
    return training[low]


@contextmanager
def _off(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Modules with their own flag off, and nothing that their ``train`` does besides."""
    try:
        for one in modules:
            one.training = False
        yield
    finally:
        for one in modules:
            one.training = True


def _same(one: Outputs | None, other: Outputs | None) -> bool:
    if one is None or other is None or one.keys() != other.keys():
        return one is other
    return all(bitwise(value, other[name]) for name, value in one.items())
