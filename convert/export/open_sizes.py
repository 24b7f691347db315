"""Finds the axes that an exported file leaves open, and at whose other lengths it does not compute the network.

torch's exporter puts a length in place of a formula where it has none, as for adaptive pooling to several pixels. So
the file runs beside the network twice, with all open axes shorter and with all longer, as far as the network takes
that; ``same`` judges. Where one of the two fails, each axis is tried by itself. Axes that are tied to each other have
one name in the file, and change together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import ConversionError, LibraryError, OtherNetworkError, ToolError, first_line
from ..onnx import onnx_package
from ..onnx.run import session
from ..sameness.same import same

Place = tuple[int, int]
"""An input, by its number, and one of its axes."""
_Given = tuple[tuple[Tensor, ...], dict[str, Tensor]]
_STEPS = (3, 4, 8, 16, 32)  # by which axes grow and shrink, until the network takes it


@dataclass(frozen=True)
class Found:
    """Axes of an exported file.

    Attributes:
        places: Open axes at whose other lengths the file does not compute the network.
        closed: Axes, other than channels, that are not open, in words.
        unchecked: Why the file did not run beside the network, or None.
    """

    places: frozenset[Place] = frozenset()
    closed: tuple[str, ...] = ()
    unchecked: str | None = None


def not_open(path: Path, network: nn.Module, given: _Given) -> Found:
    """Compares an exported file with its network at other lengths of the axes that it leaves open.

    Args:
        path: The file.
        network: The network, in eval mode.
        given: The inputs that it was exported with, by place and by name.

    Raises:
        OtherNetworkError: No axis is open, and the file does not compute the network at its one size either.
    """
    onnx = onnx_package("exporting")
    ports = onnx.load(str(path)).graph.input
    tensors = [*given[0], *given[1].values()]
    shapes = [[each.dim_param or each.dim_value for each in port.type.tensor_type.shape.dim] for port in ports]
    axes = [(place, axis) for place, shape in enumerate(shapes) for axis in range(len(shape))]
    known = [(place, axis) for place, axis in axes if isinstance(shapes[place][axis], int) and axis != 1]
    closed = tuple(f"axis {axis} of {ports[place].name} ({shapes[place][axis]})" for place, axis in known)
    if len(ports) != len(tensors):
        return Found(closed=closed, unchecked=f"the file has {len(ports)} inputs, and the network {len(tensors)}")
    ties: dict[str, list[Place]] = {}
    for place, axis in axes:
        if isinstance(shapes[place][axis], str):
            ties.setdefault(shapes[place][axis], []).append((place, axis))
    try:
        session(path)
    except (ToolError, LibraryError) as error:
        return Found(closed=closed, unchecked=str(error))
    except Exception as error:  # whatever ONNX Runtime raises for a file that it does not take
        return Found(closed=closed, unchecked=f"ONNX Runtime does not run it: {first_line(error)[:200]}")
    trial = _Trial(path, network, given)
    failing = trial.failing(ties)
    return Found(frozenset(place for name in failing for place in ties[name]), closed, trial.unchecked)


class _Trial:
    """Runs of a file beside its network.

    Args:
        path: The file.
        network: The network.
        given: Inputs that both take.
    """

    def __init__(self, path: Path, network: nn.Module, given: _Given) -> None:
        self._path, self._network, self._given = path, network, given
        self.unchecked: str | None = None

    def failing(self, ties: Mapping[str, list[Place]]) -> list[str]:
        """The names of open axes that do not stay open.

        Raises:
            OtherNetworkError: There are none, and the file does not compute the network.
        """
        if not ties:
            reason = self._difference(_resized(self._given, {}))
            if reason is not None:
                raise OtherNetworkError(f"torch's exporter wrote something else than the network: {reason}")
            return []
        if self._stay_open(ties):
            return []
        alone = [name for name, places in ties.items() if not self._stay_open({name: places})]
        return alone or list(ties)

    def _stay_open(self, ties: Mapping[str, list[Place]]) -> bool:
        """Whether the file computes the network with these axes shorter and longer; not where it takes neither."""
        found = [self._accepted(ties, are_longer=are_longer) for are_longer in (False, True)]
        taken = [inputs for inputs in found if inputs is not None]
        return bool(taken) and all(self._difference(inputs) is None for inputs in taken)

    def _accepted(self, ties: Mapping[str, list[Place]], *, are_longer: bool) -> _Given | None:
        tensors = [*self._given[0], *self._given[1].values()]
        lengths = [(tensors[places[0][0]].shape[places[0][1]], places[0][1] == 0) for places in ties.values()]
        for chosen in _longer(lengths) if are_longer else _shorter(lengths):
            if any(new < 1 or new == old for new, (old, _) in zip(chosen, lengths, strict=True)):
                continue
            wanted = {p: length for places, length in zip(ties.values(), chosen, strict=True) for p in places}
            inputs = _resized(self._given, wanted)
            try:
                self._run(inputs)
            except Exception:  # whatever the network's code raises for a size that it does not take
                continue
            return inputs
        return None

    def _run(self, given: _Given) -> None:
        placed, named = given
        with torch.no_grad():
            self._network(*(one.clone() for one in placed), **{name: one.clone() for name, one in named.items()})

    def _difference(self, given: _Given) -> str | None:
        """Why the file's outputs are not the network's, but for rounding; None if they are."""
        placed, named = given
        try:
            found = same(self._network, self._path, placed if placed else named)
        except ConversionError as error:  # ONNX Runtime's, as the network ran
            return first_line(error)
        if found.verdict == "cannot say":
            self.unchecked = found.reason
        return found.sentence if found.verdict == "not rounding" and not found.is_hidden else None


def _longer(lengths: list[tuple[int, bool]]) -> Iterator[list[int]]:
    for step in _STEPS:
        yield [old + (1 if is_batch else step * (place + 1)) for place, (old, is_batch) in enumerate(lengths)]
    yield [old + 1 if is_batch else 2 * old for old, is_batch in lengths]


def _shorter(lengths: list[tuple[int, bool]]) -> Iterator[list[int]]:
    yield [1 if is_batch else (old // 2) | 1 for old, is_batch in lengths]
    yield [1 if is_batch else old // 2 for old, is_batch in lengths]
    for step in _STEPS[::-1]:
        yield [1 if is_batch else old - step for old, is_batch in lengths]


def _resized(given: _Given, wanted: Mapping[Place, int]) -> _Given:
    """Inputs with other lengths: their own numbers, repeated, or normal ones where all are the same."""
    placed, named = given
    generator = torch.Generator().manual_seed(0)
    made = []
    for place, one in enumerate((*placed, *named.values())):
        for axis in range(one.ndim):
            length = wanted.get((place, axis), one.shape[axis])
            one = one.index_select(axis, torch.arange(length) % one.shape[axis]) if length != one.shape[axis] else one
        if one.is_floating_point() and one.numel() and bool((one == one.flatten()[0]).all()):
            one = torch.randn(one.shape, generator=generator).to(one.dtype)
        made.append(one)
    return tuple(made[: len(placed)]), dict(zip(named, made[len(placed) :], strict=True))
