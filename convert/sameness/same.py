"""Compares two networks on the same inputs, and says whether their difference is rounding.

1. Both sides run twice on clones of the inputs (``sides.py``).
2. The graph of one says the truth, in float64, and what rounding typically does (``typical.py``).
3. Differences of every output are held against that, and against the worst case to first order.
4. The two graphs tell where they part, also where rounding further on covers it (``operations.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from ..arguments import as_integer
from ..errors import ConversionError, OptionError, listed
from ..files.weights import Opening
from ..programs.float64 import real
from ..programs.noise import UNITS, Precision
from ..programs.program import Program
from .both import Both, has_same_operations
from .notes import notes_of, unfair
from .onnx_values import OnnxOperations
from .operations import Parts, where_graphs_part, where_modules_part
from .outputs import Output, by_name, changed_answers, chaotic, outputs_of
from .pairing import Operations, Pairs, Traced
from .precisions import Precisions
from .proved import Proving, is_small, with_proofs
from .routing import Routes
from .sides import Inputs, OnnxCall, Side, bitwise
from .typical import RUNS, Typical, typical
from .unlike import unlike, weighed
from .unseen import unseen
from .verdict import (
    INNER,
    LESS,
    THRESHOLD,
    Sameness,
    format_ratio,
    inexact_note,
    not_finite,
    same_bits,
    unpaired,
    without_truth,
)

Progress = Callable[[int], None]
_LEVELS = 127  # steps of 8 bits from 0 to the largest number
STEPS = 1 + RUNS  # forwards that progress counts
_NETWORK = "give one side as an nn.Module or a program of torch.export"
_NOT_EMPTY = "give inputs with at least one example"


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
        return Program.of_run(self.network, self.given.args, self.given.kwargs)

    def typical(
        self, precisions: list[Precision], *, watched: bool = False, progress: Progress = lambda _: None
    ) -> list[Typical]:
        """Truth and noise of each precision; those of the modules' results, too, where ``watched``."""
        key = tuple(precisions), watched
        if key not in self._typical:
            nodes = frozenset(self.graph.module_ends.values()) if watched else frozenset()
            self._typical[key] = typical(
                self.graph,
                self.given.args,
                self.given.kwargs,
                precisions,
                seed=self.seed,
                watched=nodes,
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
        comparison = _Comparison(sides, self.given, dtype, self.seed, lambda _: None, reference=self)
        return replace(comparison.result(), seed=self.seed)


def same(
    a: Any, b: Any, inputs: Any, *, dtype: torch.dtype | None = None, seed: int = 0, prove: bool = False
) -> Sameness:
    """Says whether the difference between two networks is rounding.

    Args:
        a: A network, a compiled one, a program of torch.export, a path of either or of an ONNX file, or any callable.
        b: The other. At least one of the two must have a graph: be a network, program or function that torch can
            record, or an ONNX file whose operators are known.
        inputs: A tensor or an array, several in a sequence or by name; floating-point numbers follow each side's
            precision.
        dtype: Precision that both sides are held to; None means each side's own.
        seed: Of the noise that stands for rounding.
        prove: Whether to prove, of networks of any size, how far the truth may be off and the most that rounding can
            do where the sides differ most; that takes as long as some hundred runs of each image. Small networks
            are proved in any case.

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
    return compare(a, b, inputs, dtype=dtype, seed=seed, prove=prove)


def assert_same(a: Any, b: Any, inputs: Any, *, allow: Collection[str] = (), dtype: torch.dtype | None = None) -> None:
    """Raises where the difference between two networks is not rounding, for tests.

    Args:
        a: As for ``same``.
        b: The other.
        inputs: As for ``same``.
        allow: Verdicts that pass, too, such as "quantised" or "cannot say".
        dtype: As for ``same``.

    Raises:
        NotSameError: An AssertionError, whose message is the report.
        ConversionError: As ``same``.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()).eval()
        >>> c2a.assert_same(cnn, c2a.convert_model(cnn).model, torch.rand(2, 3, 8, 8))
    """
    found = same(a, b, inputs, dtype=dtype)
    if found.exit_code and found.verdict not in allow:
        raise NotSameError(str(found))


@torch.inference_mode(False)
def compare(
    a: Any,
    b: Any,
    inputs: Any,
    *,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    opening: Opening | None = None,
    progress: Progress = lambda _: None,
    prove: bool = False,
) -> Sameness:
    """``same``, with options for opening paths, and a callback that is called with each forward in float64."""
    seed = as_integer(seed, "seed", least=0)
    if dtype is not None and dtype not in UNITS:
        raise OptionError(f"dtype must be one of {', '.join(map(str, UNITS))}; got {dtype}")
    sides = Side(a, "A", opening), Side(b, "B", opening)
    return replace(_Comparison(sides, Inputs.of(inputs), dtype, seed, progress, prove=prove).result(), seed=seed)


class _Comparison:
    """Two sides on the same inputs.

    Args:
        sides: A and B.
        given: Inputs, which both get in the narrower of their precisions.
        dtype: Precision that both are held to, or None.
        seed: Of the noise.
        progress: Called with each forward in float64.
        reference: What is known of A.
        prove: Whether proofs may take long.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        given: Inputs,
        dtype: torch.dtype | None,
        seed: int,
        progress: Progress,
        *,
        reference: Reference | None = None,
        prove: bool = False,
    ) -> None:
        self.reference, self.prove = reference, prove
        self.sides, self.dtype, self.seed, self.progress = sides, dtype, seed, progress
        narrow = [side.dtype for side in sides if side.dtype in UNITS]
        self.given = given.clone(max(narrow, key=lambda one: UNITS[one], default=None))
        self.played = [side.play(self.given) for side in sides]

    @cached_property
    def graphs(self) -> list[Program | None]:
        """The graphs of both sides; outputs that have the same bits need none. A file is read where no other is."""
        pairs = list(zip(self.sides, self.played, strict=True))
        found = [side.graph(self.given, run) for side, run in pairs]
        for place, (side, run) in enumerate(pairs):
            if found == [None, None]:
                found[place] = side.read_file(self.given, run)
        return found

    @cached_property
    def exact(self) -> int:
        """The place of the side whose graph says the truth: a network's, the widest, A's before B's."""

        def rank(place: int) -> tuple[bool, float, int]:
            side = self.sides[place]
            return not side.is_network, UNITS.get(side.dtype or torch.float32, 1.0), place

        return min((place for place in (0, 1) if self.graphs[place] is not None), key=rank, default=0)

    def result(self) -> Sameness:
        """The verdict."""
        refusal = unfair(self.sides, self.played) or unpaired(*(run.outputs for run in self.played))
        if refusal is not None:
            return self._with_notes(refusal)
        a, b = self._outputs()
        if not any(one.numel() for one in a.values()):
            return Sameness("cannot say", "the outputs are empty, so there is nothing to compare", remedy=_NOT_EMPTY)
        odd = not_finite(a, b)
        if odd is not None:
            return self._with_notes(odd)
        if all(bitwise(one, b[name]) for name, one in a.items()):
            return self._with_notes(same_bits({name: tuple(one.shape) for name, one in a.items()}))
        graph = self.graphs[self.exact]
        if graph is None:
            return self._with_notes(without_truth([side.reason for side in self.sides], a, b))
        judged = self._judged(graph, a, b)
        if judged.verdict == "rounding":
            judged = replace(judged, unseen=unseen(graph, self.given.clone(self.sides[self.exact].dtype)))
        return self._with_notes(judged)

    def _with_notes(self, found: Sameness) -> Sameness:
        return replace(
            found, notes=(*found.notes, *notes_of(found, self.sides, self.played, self.precisions.narrowing))
        )

    def _outputs(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The outputs of both sides, by A's names; complex numbers as pairs."""
        a, b = ({name: real(one) for name, one in run.outputs.items()} for run in self.played)
        return a, by_name(a, b)

    @cached_property
    def blocks(self) -> dict[str, Tensor]:
        """Outputs of the modules of a side without a graph, by the names that the graph has, too."""
        graph, side = self.graphs[self.exact], self.sides[1 - self.exact]
        if graph is None or self.graphs[1 - self.exact] is not None or not side.is_own:
            return {}
        return side.blocks(self.given, tuple(graph.module_ends))

    def _is_enough(self, found: Typical) -> bool:
        """Whether a few noisy runs say that a difference is rounding: it is within a third of the limit.

        If all numbers shared one normal error, the mean square of three runs were nine times too large once in 10^5.
        """
        a, b = self._outputs()
        truth, scale = by_name(a, found.truth), by_name(a, found.scales)
        return max(row.ratio for row in outputs_of((a, b), truth, (scale, scale))) <= THRESHOLD / 3

    def _judged(self, graph: Program, a: dict[str, Tensor], b: dict[str, Tensor]) -> Sameness:
        """Both outputs beside the truth, and beside what rounding does."""
        routes = self._routes(graph)
        *found, stepped = self._typical(graph, routes, watched=bool(self.blocks))
        truth = by_name(a, found[0].truth)
        scales = [by_name(a, each.scales) for each in (*found, stepped)]
        rows, told = outputs_of((a, b), truth, (scales[0], scales[1])), tuple[str, ...]()
        if routes is not None:
            a, b, told = self._routed(routes, found[0], (a, b), is_beyond=max(row.ratio for row in rows) > THRESHOLD)
            rows = outputs_of((a, b), truth, (scales[0], scales[1]))
        unit = max((row.typical for row in rows), default=0.0)
        without = sorted(found[0].without_row)
        notes = [f"Typical rounding is not known of {listed(without)}, and taken for one rounding."] if without else []
        changed = changed_answers(*self._outputs(), truth, unit)
        basis = Sameness("rounding", outputs=rows, changed=changed, notes=tuple(notes), turned=told)
        chaos = chaotic(truth, (scales[0], scales[1]))
        if chaos is not None:
            return replace(basis, verdict="cannot say", reason=chaos, remedy=LESS)
        if any(side.quantised for side in self.sides):
            chosen = [scales[2 if side.quantised else place] for place, side in enumerate(self.sides)]
            return self._quantised(basis, outputs_of((a, b), truth, (chosen[0], chosen[1])))
        own = max((row.a, row.b)[self.exact] for row in rows)
        if isinstance(self.sides[self.exact].call, OnnxCall) and own > THRESHOLD:
            return replace(basis, verdict="cannot say", reason=self._misread(own), remedy=_NETWORK)
        basis = self._proved(basis, graph, (a, b), truth)
        other = self.graphs[1 - self.exact]
        if other is not None and not has_same_operations(graph, other):
            precisions = tuple(self.precisions.of(place, 1 - self.exact) for place in (0, 1))
            both = Both((graph, other), self.given, self._names, precisions[0], precisions[1], self.seed)
            basis = both.judged(basis, (a, b), (scales[0], scales[1]), 1 - self.exact)
        if basis.verdict == "cannot say":
            return basis
        if basis.ratio <= THRESHOLD and basis.verdict == "rounding":
            return self._within(basis, graph)
        parts, why = self._where(graph, found[1 - self.exact])
        return replace(basis, verdict="not rounding", where=parts.found, inner=parts.largest, only_outputs=why)

    def _misread(self, ratio: float) -> str:
        """The reason why a file that is read as torch's operations says no truth."""
        name, times = self.sides[self.exact].name, format_ratio(ratio)
        return f"ONNX Runtime's run of {name} is {times} times typical rounding from its nodes as torch's operations"

    def _routes(self, graph: Program) -> Routes | None:
        """The choices of the side whose graph says the truth, and of the other, or None where there are none."""
        if self.sides[self.exact].quantised:
            return None
        other = self.graphs[1 - self.exact]
        given = [self.given.clone(self.sides[place].dtype) for place in (self.exact, 1 - self.exact)]
        return Routes.of((graph, other), (given[0], given[1]))

    def _routed(
        self, routes: Routes, found: Typical, outputs: tuple[dict[str, Tensor], dict[str, Tensor]], *, is_beyond: bool
    ) -> tuple[dict[str, Tensor], dict[str, Tensor], tuple[str, ...]]:
        """The outputs of A and B, as if both had made the choices of the side whose graph says the truth; sentences."""
        sides, place = list(outputs), 1 - self.exact
        other = dict(zip(found.truth, by_name(outputs[0], sides[place]).values(), strict=True))
        result = routes.routed(found, other, self._names, is_beyond=is_beyond)
        if result.gained is not None:
            gained = dict(zip(found.truth, outputs[0], strict=True))
            moved = {gained[name]: one for name, one in result.gained.items() if name in gained}
            sides[place] = {n: one.double() - moved[n] if n in moved else one for n, one in sides[place].items()}
        return sides[0], sides[1], result.told

    def _within(self, basis: Sameness, graph: Program) -> Sameness:
        """The verdict where the outputs differ by rounding: so must each operation's result on the same inputs."""
        own = self._operations()
        if own is None or isinstance(own, str):
            return basis
        if self._computed_in(0) != self._computed_in(1):
            return self._with_unlike(basis, graph, own, None)
        parts = self._parted(graph, own, INNER)
        certain = tuple(one for one in parts.found if one.is_certain)
        basis = replace(basis, inner=parts.largest)
        if certain:
            return replace(basis, verdict="not rounding", where=certain)
        inexact = map(inexact_note, (one for one in parts.found if not one.why_is_known))
        return self._with_unlike(replace(basis, notes=(*basis.notes, *inexact)), graph, own, parts)

    def _with_unlike(self, basis: Sameness, graph: Program, own: Operations, parts: Parts | None) -> Sameness:
        """The verdict with operations that have other attributes or weights: what rounding covers may matter.

        Where the sides compute in different precisions, so that weights are rounded, attributes alone are compared.
        """
        computed = max((self._computed_in(place) for place in (0, 1)), key=lambda one: UNITS[one])
        is_half = UNITS[computed] > UNITS[torch.float32]
        pairs = Pairs(Traced(graph, self.given, is_run=False), own, self._names)
        found, cleared = unlike(pairs), parts.cleared if parts is not None else frozenset[Any]()
        if parts is None:
            found = {node: told for node, told in found.items() if told.attributes}
        elif not isinstance(own, Traced):
            found = {node: told for node, told in found.items() if is_half}
        hidden_by = str(computed).removeprefix("torch.") if is_half else ""
        told = weighed(pairs, found, cleared=cleared, hidden_by=hidden_by, seed=self.seed)
        basis = replace(basis, notes=(*basis.notes, *told.notes))
        if told.mattering:
            return replace(basis, verdict="not rounding", where=told.mattering)
        return replace(basis, where=told.small)

    def _typical(self, graph: Program, routes: Routes | None, *, watched: bool) -> list[Typical]:
        """Truth, and the scale of A, of B, and of steps of 8 bits where a side is quantised."""
        precisions = [self._precision(place) for place in (0, 1)]
        is_quantised = any(side.quantised for side in self.sides)
        precisions.append(Precision(levels=_LEVELS) if is_quantised else precisions[0])
        if routes is None and self.reference is not None and self.reference.is_of(graph, self.given):
            return self.reference.typical(precisions, watched=watched, progress=self.progress)
        nodes = frozenset(graph.module_ends.values()) if watched else frozenset()
        args, kwargs = self.given.args, self.given.kwargs
        options: dict[str, Any] = {"seed": self.seed, "enough": self._is_enough, "progress": self.progress}
        if routes is None:
            return typical(graph, args, kwargs, precisions, watched=nodes, **options)
        found = typical(routes.held.program, args, kwargs, precisions, watched=routes.watched(nodes), **options)
        return [routes.named(each) for each in found]

    @cached_property
    def precisions(self) -> Precisions:
        """The precision of each side, on its own operations or the other's."""
        outputs = (self.played[0].outputs, self.played[1].outputs)
        return Precisions(self.sides, outputs, (self.graphs[0], self.graphs[1]), self.given.tensors, self.dtype)

    def _precision(self, place: int) -> Precision:
        """A side's precision on the operations of the one whose graph says the truth."""
        return self.precisions.of(place, self.exact)

    def _computed_in(self, place: int) -> torch.dtype:
        """The precision that a side declares."""
        return self.precisions.declared(place)

    def _where(self, graph: Program, other: Typical) -> tuple[Parts, str | None]:
        """Where the two part, and why nothing but outputs could be compared, if so."""
        side, own = self.sides[1 - self.exact], self._operations()
        if isinstance(own, str):
            return Parts((), None), f"{side.reason}; {own}"
        if own is not None:
            found = self._parted(graph, own, THRESHOLD)
            fused = ", where ONNX Runtime fuses none" if isinstance(own, OnnxOperations) else ""
            return found, None if found.found else f"no single operation leaves rounding{fused}"
        found = Parts(where_modules_part(graph, other, self.blocks, THRESHOLD), None)
        compiled = next((each for each in self.sides if not each.is_own), None)
        reason = side.reason if compiled is None else f"{compiled.name} is compiled"
        return found, None if found.found else reason

    def _parted(self, graph: Program, own: Operations, threshold: float) -> Parts:
        """The operations that differ by more than this many roundings from what the other side's give."""
        precision = self._precision(1 - self.exact)
        return where_graphs_part(graph, own, self.given, precision, threshold, seed=self.seed, names=self._names)

    @property
    def _names(self) -> tuple[str, str]:
        """Names of the side whose graph says the truth, and of the other."""
        return self.sides[self.exact].name, self.sides[1 - self.exact].name

    def _operations(self) -> Operations | str | None:
        """The other side's operations, with their results, or why there are none; None of a black box."""
        side, graph = self.sides[1 - self.exact], self.graphs[1 - self.exact]
        if not self.sides[self.exact].is_own:
            return None
        try:
            given = self.given.clone(side.dtype)
            if isinstance(side.call, OnnxCall):
                return OnnxOperations(side.call.path, side.call.feeds(given.args, given.kwargs))
            return Traced(graph, given) if graph is not None and side.is_own else None
        except ConversionError as refusal:
            return str(refusal)

    def _quantised(self, basis: Sameness, stepped: tuple[Output, ...]) -> Sameness:
        """The difference beside what steps of 8 bits do."""
        steps = max(output.ratio for output in stepped)
        names = " and ".join(side.name for side in self.sides if side.quantised)
        verb = "explain" if steps <= THRESHOLD else "do not explain"
        usual = f"it is {format_ratio(steps)} times what they usually do"
        reason = f"{names} computes with 8-bit integers, whose steps {verb} the difference: {usual}"
        return replace(basis, verdict="quantised", reason=reason, steps=steps)

    def _proved(
        self,
        basis: Sameness,
        graph: Program,
        sides: tuple[dict[str, Tensor], dict[str, Tensor]],
        truth: Mapping[str, Tensor],
    ) -> Sameness:
        """The verdict with the worst case of the number that differs most, and the truth's own error.

        Where the difference is rounding, both are left out of large networks: they take as long as the rest.
        """
        if self.reference is not None and not self.reference.is_bounded:
            return basis
        is_proved = self.prove or is_small(graph, self.given.tensors)
        if basis.ratio <= THRESHOLD and not is_proved:
            return basis
        computed = {self._computed_in(place) for place in (0, 1)}
        known: Proving | str = "the two sides compute in different precisions"
        if len(computed) == 1:
            network, tensors = self.sides[self.exact].network, self.given.tensors
            known = Proving.of(network, tensors, computed.pop(), seed=self.seed, is_asked=self.prove)
        return with_proofs(basis, known, sides, truth, is_proved=is_proved, is_asked=self.prove)
