"""The networks that a callable refers to, and whether a record of its run is the callable.

A function, a partial application, a method, an object: what any of them computes by torch's operations is recorded as a
network's run is. One that leaves torch, for NumPy or another engine, gives numbers that torch's record takes for
constants, so it stays a black box; so does one that draws random numbers, or whose record gives other bits.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any

from torch import Tensor, nn

from ..errors import ConversionError, refusing
from ..inputs import bitwise
from ..programs.program import Program, own_tensors

_LEAVING = ("(numpy)", "(tolist)", "(dlpack)", "(data_ptr)")  # how a record names what leaves torch


def networks_of(given: Any) -> list[nn.Module]:
    """The modules that a callable holds, names in its closure, or takes as arguments, each once."""
    return list({id(one): one for one in _referred(given, set())}.values())


def _referred(given: Any, seen: set[int]) -> Iterator[nn.Module]:
    if id(given) in seen:
        return
    seen.add(id(given))
    if isinstance(given, nn.Module):
        yield given
    elif isinstance(given, functools.partial):
        for one in (given.func, *given.args, *given.keywords.values()):
            yield from _referred(one, seen)
    elif isinstance(given, MethodType):
        yield from _referred(given.__self__, seen)
        yield from _referred(given.__func__, seen)
    elif isinstance(given, FunctionType):
        named = inspect.getclosurevars(given)
        for one in named.nonlocals.values():
            yield from _referred(one, seen)
        yield from (one for one in named.globals.values() if isinstance(one, nn.Module))
    elif callable(given) and not isinstance(given, type):
        yield from (one for one in getattr(given, "__dict__", {}).values() if isinstance(one, nn.Module))


def tensors_of_networks(networks: list[nn.Module]) -> dict[str, Tensor]:
    """The tensors of networks by name; of several networks, names begin with the network's number."""
    if len(networks) == 1:
        return own_tensors(networks[0])
    return {f"{n}.{name}": one for n, network in enumerate(networks) for name, one in own_tensors(network).items()}


def checked_record(
    found: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any], outputs: Mapping[str, Tensor], *, is_network: bool
) -> Program:
    """A record that may stand for what ran.

    Args:
        found: The record.
        args: Arguments by place of the run.
        kwargs: Arguments by name.
        outputs: What the run gave.
        is_network: Whether a network ran; a callable's record must not leave torch, and must give its bits.

    Raises:
        ConversionError: It may not.
    """
    if found.draws:
        raise ConversionError(f"it draws random numbers ({found.draws[0]})")
    leaving = [one for one in found.reads if one.endswith(_LEAVING)]
    if is_network:
        if not _depends(found, any if not leaving else all):
            where = f", of which it takes values at {leaving[0]}" if leaving else ""
            raise ConversionError(f"by torch's operations, its outputs do not depend on its inputs{where}")
        return found
    if leaving or not _depends(found, any):
        raise ConversionError("it computes outside torch" + (f", from {leaving[0]} on" if leaving else ""))
    with refusing("its operations do not run one by one"):
        replayed = found.replayed(args, kwargs)
    if outputs.keys() != replayed.keys() or not all(bitwise(one, outputs[name]) for name, one in replayed.items()):
        raise ConversionError("its operations one by one give other bits than it does")
    return found


def _depends(found: Program, enough: Callable[[Iterator[bool]], bool]) -> bool:
    """Whether any or all of the outputs that are real numbers depend on the inputs."""
    depends = found.dependent()
    (given,) = found.graph.graph.output_node().args
    pairs = zip(given, found.results.values(), strict=True)  # type: ignore[arg-type]
    kinds = [(node in depends, one.is_floating_point() or one.is_complex()) for node, one in pairs]
    real = [is_dependent for is_dependent, is_real in kinds if is_real] or [one for one, _ in kinds]
    return enough(iter(real))
