"""Says whether the difference between two networks is rounding: ``same``, and ``assert_same`` for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from ..arguments import as_integer
from ..errors import OptionError
from ..files.opening import Opening
from ..programs.noise import UNITS, Precision
from ..programs.program import Program
from .comparison import Comparison, Progress
from .given import Inputs
from .padding import Padding
from .sides import Side
from .typical import RUNS, Typical, typical
from .units import named
from .verdict import Sameness

STEPS = 1 + RUNS  # forwards that progress counts


class NotSameError(AssertionError):
    """Two networks differ by more than rounding, or it cannot be said."""


class Reference:
    """A network that is compared with many others on the same inputs: its graph, truth and noise are computed once.

    Args:
        network: The network, or its program.
        inputs: The inputs of every comparison.
        seed: Of the noise.
        is_bounded: Whether the worst case is computed, too, where it can be.
    """

    def __init__(
        self, network: nn.Module | ExportedProgram, inputs: Any, *, seed: int = 0, is_bounded: bool = True
    ) -> None:
        self.network, self.given, self.seed, self.is_bounded = network, Inputs.of(inputs), seed, is_bounded
        self._typical: dict[Any, list[Typical]] = {}

    @cached_property
    def graph(self) -> Program:
        """Its program.

        Raises:
            ConversionError: torch cannot export it.
        """
        padding = Padding.of(self.given)
        taken = {} if padding is None else {"taken": padding.taken}
        return Program.of_run(self.network, self.given.args, self.given.kwargs, **taken)

    def typical(self, precisions: list[Precision], *, progress: Progress = lambda _: None) -> list[Typical]:
        """Truth and noise of each precision."""
        key = tuple(precisions)
        if key not in self._typical:
            self._typical[key] = typical(
                self.graph,
                self.given.args,
                self.given.kwargs,
                precisions,
                seed=self.seed,
                progress=progress,
            )
        return self._typical[key]

    def is_of(self, graph: Program, given: Inputs) -> bool:
        """Whether it knows this graph, and inputs in this precision."""
        types = [[one.dtype for one in inputs.tensors] for inputs in (self.given, given)]
        return graph is self.graph and types[0] == types[1]

    def compare(self, other: Any, *, dtype: torch.dtype | None = None) -> Sameness:
        """Says whether the difference between the network, as A, and another is rounding.

        Args:
            other: B, as for ``same``.
            dtype: As for ``same``.

        Raises:
            ConversionError: As ``same``.
        """
        sides = Side(self.network, "A", program=self.graph), Side(other, "B")
        comparison = Comparison(sides, self.given, dtype, self.seed, lambda _: None, reference=self)
        return replace(comparison.result(), seed=self.seed)


def same(
    a: Any,
    b: Any,
    inputs: Any = None,
    *,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    prove: bool = False,
    unit: str | Collection[str] = (),
    names: Mapping[str, str] | None = None,
) -> Sameness:
    """Says whether the difference between two networks is rounding.

    Args:
        a: A network, a compiled one, a program of torch.export, a path of either, of an ONNX file or of recorded values
            (``record_values``), or any callable.
        b: The other. At least one of the two must have a graph: be a network, program or function that torch can
            record, or an ONNX file whose operators are known.
        inputs: A tensor or an array, several in a sequence or by name; floating-point numbers follow each side's
            precision. None means those that recorded values hold.
        dtype: Precision that both sides are held to; None means each side's own.
        seed: Of the noise that stands for rounding.
        prove: Whether to prove, of networks of any size, how far the truth may be off and the most that rounding can
            do where the sides differ most; that takes as long as some hundred runs of each image. Small networks
            are proved in any case.
        unit: Coarser units whose rounding is allowed, such as "bfloat16 products".
        names: Modules of the one side, by the names of recorded values of the other, where they are not found.

    Returns:
        The verdict, where it begins, and what it changes; ``str()`` is the report.

    Raises:
        OptionError: A side is none of these, or in train mode and that changes an output, or there is no input.
        InputError: A side does not run on the inputs.
        ConversionError: A path cannot be opened, or a side gives no tensor.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
        >>> other = torch.nn.Sequential(cnn[0], torch.nn.BatchNorm2d(8, eps=0.1), cnn[2]).eval()
        >>> found = c2a.same(cnn, other, torch.rand(2, 3, 8, 8))
        >>> found.verdict, found.where[0].name
        ('not rounding', '1')
    """
    return compare(a, b, inputs, dtype=dtype, seed=seed, prove=prove, unit=unit, names=names)


def assert_same(
    a: Any,
    b: Any,
    inputs: Any = None,
    *,
    allow: Collection[str] = (),
    dtype: torch.dtype | None = None,
    unit: str | Collection[str] = (),
) -> None:
    """Raises where the difference between two networks is not rounding, for tests.

    Args:
        a: As for ``same``.
        b: The other.
        inputs: As for ``same``.
        allow: Verdicts that pass, too, such as "quantised" or "cannot say".
        dtype: As for ``same``.
        unit: As for ``same``.

    Raises:
        NotSameError: An AssertionError, whose message is the report.
        ConversionError: As ``same``.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
        >>> c2a.assert_same(cnn, c2a.convert_model(cnn).model, torch.rand(2, 3, 8, 8))
    """
    found = same(a, b, inputs, dtype=dtype, unit=unit)
    if found.exit_code and found.verdict not in allow:
        raise NotSameError(str(found))


@torch.inference_mode(False)
def compare(
    a: Any,
    b: Any,
    inputs: Any = None,
    *,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    opening: Opening | None = None,
    progress: Progress = lambda _: None,
    prove: bool = False,
    unit: str | Collection[str] = (),
    names: Mapping[str, str] | None = None,
) -> Sameness:
    """``same``, with options for opening paths, and a callback that is called with each forward in float64."""
    seed = as_integer(seed, "seed", least=0)
    if dtype is not None and dtype not in UNITS:
        raise OptionError(f"dtype must be one of {', '.join(map(str, UNITS))}; got {dtype}")
    units = named([unit] if isinstance(unit, str) else unit)
    sides = Side(a, "A", opening), Side(b, "B", opening)
    held = next((side.recorded for side in sides if side.recorded is not None), None)
    given = held.call() if inputs is None and held is not None else Inputs.of(inputs)
    found = Comparison(sides, given, dtype, seed, progress, prove=prove, names=names).result()
    return replace(found, seed=seed, allowed=tuple(one.name for one in units))
