"""Compares two networks on the same inputs, and says whether their difference is rounding.

1. Both sides run twice on clones of the inputs (``sides.py``).
2. The graph of one says the truth, in float64, and what rounding usually does (``typical.py``).
3. Differences of every output are held against that, and against the worst case to first order.
4. The two graphs tell where they part, also where rounding further on covers it (``operations.py``).
"""

from __future__ import annotations

import math
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
from ..layer.layer import SelfAttention
from ..programs.float64 import real
from ..programs.noise import TF32, UNITS, Precision
from ..programs.program import Program
from .onnx_values import OnnxOperations
from .operations import NAMED, Parts, where_graphs_part, where_modules_part
from .pairing import Operations, Pairs, Traced
from .proved import Proving, is_small
from .sides import Inputs, OnnxCall, Side, bitwise
from .typical import RUNS, Typical, typical
from .unlike import unlike, weighed
from .verdict import (
    INNER,
    THRESHOLD,
    Output,
    Sameness,
    by_name,
    changed_answers,
    format_ratio,
    inexact_note,
    is_chaotic,
    not_finite,
    output_of,
    same_bits,
    unpaired,
    without_truth,
)

Progress = Callable[[int], None]
_LEVELS = 127  # steps of 8 bits from 0 to the largest number
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
        b: The other. At least one of the two must have a graph: be a network that torch can export, or a program.
        inputs: A tensor, several in a sequence or by name; floating-point numbers follow each side's precision.
        dtype: Precision that both sides are held to; None means each side's own.
        seed: Of the noise that stands for rounding.
        prove: Whether to prove, of networks of any size, how far the truth may be off and the most that rounding can
            do where the sides differ most; that takes as long as some hundred runs of each image. Small networks
            are proved in any case.

    Returns:
        The verdict, where it begins, and what it changes; ``str()`` is the report.

    Raises:
        OptionError: A side is none of these or in train mode, or there is no input.
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
        """The graphs of both sides; outputs that have the same bits need none."""
        return [side.graph(self.given, run) for side, run in zip(self.sides, self.played, strict=True)]

    @cached_property
    def exact(self) -> int:
        """The place of the side whose graph says the truth: the widest, A's before B's."""
        having = [place for place in (0, 1) if self.graphs[place] is not None]
        return min(
            having, key=lambda place: (UNITS.get(self.sides[place].dtype or torch.float32, 1.0), place), default=0
        )

    def result(self) -> Sameness:
        """The verdict."""
        refusal = self._unfair() or unpaired(*(run.outputs for run in self.played))
        if refusal is not None:
            return self._with_notes(refusal)
        a, b = self._outputs()
        if not any(one.numel() for one in a.values()):
            return Sameness("cannot say", "the outputs are empty, so there is nothing to compare")
        odd = not_finite(a, b)
        if odd is not None:
            return self._with_notes(odd)
        if all(bitwise(one, b[name]) for name, one in a.items()):
            return self._with_notes(same_bits({name: tuple(one.shape) for name, one in a.items()}))
        graph = self.graphs[self.exact]
        if graph is None:
            return self._with_notes(without_truth([side.reason for side in self.sides], a, b))
        return self._with_notes(self._judged(graph, a, b))

    def _with_notes(self, found: Sameness) -> Sameness:
        pairs = zip(self.sides, self.played, strict=True)
        writes = [f"{side.name} writes to its inputs." for side, run in pairs if run.writes]
        reads = [note for side in self.sides for note in side.notes] if found.outputs else []
        soft = [note for side in self.sides for note in _soft(side)] if found.verdict == "not rounding" else []
        return replace(found, notes=(*found.notes, *soft, *writes, *reads))

    def _unfair(self) -> Sameness | None:
        """The verdict on a side that gives two results or changes, or None."""
        for side, run in zip(self.sides, self.played, strict=True):
            if run.changed:
                return Sameness("cannot say", f"{side.name} changes while it runs: {', '.join(run.changed[:3])}")
            if run.spread is not None:
                is_nan = math.isnan(run.spread)
                how = "give NaN at other places" if is_nan else f"differ by {run.spread:.2g}"
                apart = f"two runs on the same inputs {how}"
                return Sameness("cannot say", f"{side.name} is not deterministic: {apart}")
        return None

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

    def _judged(self, graph: Program, a: dict[str, Tensor], b: dict[str, Tensor]) -> Sameness:
        """Both outputs beside the truth, and beside what rounding does."""
        *found, stepped = self._typical(graph, watched=bool(self.blocks))
        truth = by_name(a, found[0].truth)
        scales = [by_name(a, each.scales) for each in (*found, stepped)]
        chaotic = [name for name in a if any(is_chaotic(truth[name], each[name]) for each in scales[:2])]
        rows = tuple(
            output_of(name, (one, b[name]), truth[name], (scales[0][name], scales[1][name])) for name, one in a.items()
        )
        unit = max((row.typical for row in rows), default=0.0)
        without = sorted(found[0].without_row)
        notes = [f"Usual rounding is not known of {listed(without)}, and taken for one rounding."] if without else []
        basis = Sameness("rounding", outputs=rows, changed=changed_answers(a, b, truth, unit), notes=tuple(notes))
        if chaotic:
            what = f"the output {chaotic[0]}" if chaotic[0] else "the outputs"
            return replace(
                basis, verdict="cannot say", reason=f"rounding in the last bit already changes {what} completely"
            )
        if any(side.quantised for side in self.sides):
            chosen = [scales[2 if side.quantised else place] for place, side in enumerate(self.sides)]
            return self._quantised(
                basis, [output_of(x, (a[x], b[x]), truth[x], (chosen[0][x], chosen[1][x])) for x in a]
            )
        basis = self._proved(basis, graph, (a, b), truth)
        if basis.ratio <= THRESHOLD:
            return self._within(basis, graph)
        parts, why = self._where(graph, found[1 - self.exact])
        return replace(
            basis,
            verdict="not rounding",
            where=parts.found,
            inner=parts.largest,
            only_outputs=why,
            differing=parts.differing,
        )

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
            count = parts.differing - len(parts.found) + len(certain)
            return replace(basis, verdict="not rounding", where=certain, differing=count)
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
            listed_most = told.mattering[:NAMED]
            return replace(basis, verdict="not rounding", where=listed_most, differing=len(told.mattering))
        return replace(basis, where=told.small)

    def _typical(self, graph: Program, *, watched: bool) -> list[Typical]:
        """Truth, and the scale of A, of B, and of steps of 8 bits where a side is quantised."""
        precisions = [self._precision(place) for place in (0, 1)]
        is_quantised = any(side.quantised for side in self.sides)
        precisions.append(Precision(levels=_LEVELS) if is_quantised else precisions[0])
        if self.reference is not None and self.reference.is_of(graph, self.given):
            return self.reference.typical(precisions, watched=watched, progress=self.progress)
        nodes = frozenset(graph.module_ends.values()) if watched else frozenset()
        args, kwargs = self.given.args, self.given.kwargs
        return typical(graph, args, kwargs, precisions, seed=self.seed, watched=nodes, progress=self.progress)

    def _precision(self, place: int) -> Precision:
        """A side's precision: its own where it differs from the graph's; factors are rounded where weights were."""
        if self.dtype is not None:
            return Precision(self.dtype)
        computed = [self._computed_in(each) for each in (self.exact, place)]
        factors = _tf32(self.given.tensors)
        if computed[0] == computed[1]:
            return Precision(factors=factors)
        is_narrower = UNITS[computed[1]] > UNITS[computed[0]]
        return Precision(computed[1], UNITS[computed[1]] if is_narrower else factors)

    def _computed_in(self, place: int) -> torch.dtype:
        """The precision of a side: that of its outputs or of its parameters, whichever is narrower."""
        types = {one.dtype for one in self.played[place].outputs.values() if one.dtype in UNITS}
        own = self.sides[place].dtype
        stored = [*(types if len(types) == 1 else ()), *([own] if own in UNITS else [])]
        return max(stored, key=lambda one: UNITS[one], default=torch.float32)

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

    def _quantised(self, basis: Sameness, stepped: list[Output]) -> Sameness:
        """The difference beside what steps of 8 bits do."""
        steps = max(output.ratio for output in stepped)
        names = " and ".join(side.name for side in self.sides if side.quantised)
        verb = "explain" if steps <= THRESHOLD else "do not explain"
        usual = f"it is {format_ratio(steps)} times what they usually do"
        reason = f"{names} computes with 8-bit integers, whose steps {verb} the difference: {usual}"
        return replace(basis, verdict="quantised", reason=reason, steps=steps)

    @cached_property
    def proving(self) -> Proving | str:
        """Proofs about the side whose graph says the truth, or why there are none."""
        computed = {self._computed_in(place) for place in (0, 1)}
        if len(computed) > 1:
            return "the two sides compute in different precisions"
        network, tensors = self.sides[self.exact].network, self.given.tensors
        return Proving.of(network, tensors, computed.pop(), seed=self.seed, is_asked=self.prove)

    def _proved(
        self, basis: Sameness, graph: Program, sides: tuple[dict[str, Tensor], ...], truth: Mapping[str, Tensor]
    ) -> Sameness:
        """The verdict with the worst case of the number that differs most, and the truth's own error.

        Where the difference is rounding, both are left out of large networks: they take as long as the rest.
        """
        if self.reference is not None and not self.reference.is_bounded:
            return basis
        is_proved = self.prove or is_small(graph, self.given.tensors)
        if basis.ratio <= THRESHOLD and not is_proved:
            return basis
        proving, error = self.proving, None
        if isinstance(proving, Proving):
            row = max((row for row in basis.outputs if row.typical), key=lambda row: row.difference, default=None)
            pairs = {name: (one, sides[1][name]) for name, one in sides[0].items()}
            worst = None if row is None else proving.worst(pairs, row.name)
            error = proving.truth_error(truth) if is_proved else None
            basis = replace(basis, worst=worst, truth_error=error if isinstance(error, float) else None)
        why = error if isinstance(proving, Proving) else proving
        if not (self.prove and isinstance(why, str)):
            return basis
        return replace(basis, notes=(f"The error of the float64 reference is not proved: {why}.",))


def _soft(side: Side) -> list[str]:
    """Note that a side holds attention which is another function than its convolution, if so."""
    if not isinstance(side.network, nn.Module):
        return []
    layers = [(name, one) for name, one in side.network.named_modules() if isinstance(one, SelfAttention)]
    soft = [(name, one) for name, one in layers if not one.regime.is_exact]
    if not soft:
        return []
    name, layer = soft[0]
    which = f"{len(soft)} of its {len(layers)} attention layers" if len(layers) > 1 else "its attention"
    at = f", `{name}` with alpha {float(layer.alpha.min()):g}" if name else ""
    return [f"{side.name} is soft at {which}{at}: no convolution exactly; alpha_for gives the alpha of a tolerance."]


def _tf32(tensors: list[Tensor]) -> float:
    """The unit at which factors are rounded on the device: TF32's, where it is allowed on a GPU."""
    on_gpu = any(one.is_cuda for one in tensors)
    allowed = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    return TF32 if on_gpu and allowed else 0.0
