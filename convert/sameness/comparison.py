"""One comparison: two sides on the same inputs, step by step to a verdict.

1. Both sides run twice on clones of the inputs (``sides.py``); recorded values are read (``recorded.py``).
2. The graph of one says the truth, in float64, and what rounding typically does (``typical.py``).
3. Differences of every output are held against that, and against the worst case to first order.
4. The two graphs tell where they part, also where rounding further on covers it (``operations.py``); of recorded values
   and of modules without a graph, stretches between them do (``stretches.py``).
5. What is not rounding of the declared precision is held against coarser units (``coarser.py``), and rounding against
   bias.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from torch import Tensor

from ..errors import ConversionError, listed
from ..inputs import bitwise
from ..programs.float64 import node_dtype, real
from ..programs.noise import UNITS, Precision
from ..programs.operations import in_words
from ..programs.program import Program
from ..programs.walk import VALUE, name_of
from .around import Around
from .bias import Bias, biases
from .both import Both, has_same_operations, reads_bits
from .coarser import beside_noise, in_coarser_unit
from .given import Inputs
from .notes import notes_of, unfair
from .onnx_values import OnnxOperations
from .operations import Parts, where_graphs_part, where_values_part
from .outputs import Output, by_name, changed_answers, chaotic, outputs_of
from .padding import Padding
from .pairing import Operations, Pairs, Traced
from .precisions import Precisions
from .proved import Proving, is_small, with_proofs
from .recorded import Read, joined, laid_out
from .routing import Routes
from .sides import OnnxCall, Side
from .stretches import PRODUCTS, Compared, compared
from .tokens import chosen_tokens, tokens_of
from .typical import Scale, Typical, typical
from .units import USUAL
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
_NETWORK = "give one side as an nn.Module or a program of torch.export"
_LIKE = "record its outputs under the other side's names, or as output_0 and so on"
_NOT_EMPTY = "give inputs with at least one example"
_SCORES = "compare the logits of the same tokens, as a pass over them gives"


class Known(Protocol):
    """What is known of A from comparisons with others."""

    is_bounded: bool

    def is_of(self, graph: Program, given: Inputs) -> bool:
        """Whether it is of this graph, and of inputs in this precision."""
        ...

    def typical(self, precisions: list[Precision], *, progress: Progress) -> list[Typical]:
        """Truth and noise of each precision."""
        ...


@dataclass(frozen=True)
class _Truth:
    """What the graph of one side says.

    Attributes:
        graph: It.
        routes: The choices of both sides, or None where there are none.
        typical: Truth and noise, in A's precision, in B's, and in steps of 8 bits where a side is quantised.
    """

    graph: Program
    routes: Routes | None
    typical: list[Typical]


class Comparison:
    """Two sides on the same inputs.

    Args:
        sides: A and B.
        given: Inputs, which both get in the narrower of their precisions.
        dtype: Precision that both are held to, or None.
        seed: Of the noise.
        progress: Called with each forward in float64.
        reference: What is known of A.
        prove: Whether proofs may take long.
        names: Modules, by the names of recorded values, where they are known.
    """

    def __init__(
        self,
        sides: tuple[Side, Side],
        given: Inputs,
        dtype: torch.dtype | None,
        seed: int,
        progress: Progress,
        *,
        reference: Known | None = None,
        prove: bool = False,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.reference, self.prove, self.names = reference, prove, names
        self.parted: Compared | None = None  # from recorded values, or from those of modules without a graph
        self.sides, self.dtype, self.seed, self.progress = sides, dtype, seed, progress
        narrow = [side.dtype for side in sides if side.dtype in UNITS]
        self.given = given.clone(max(narrow, key=lambda one: UNITS[one], default=None))
        self.padding, self.laid = Padding.of(self.given), list[str]()
        if self.padding is not None:
            self.laid.append(self.padding.note)
            for side in sides:
                side.taken = self.padding.taken
        self.laid += [side.stored for side in sides if side.stored]
        self.played = [side.play(self.given) for side in sides]
        for place, side in enumerate(sides):
            if side.recorded is not None:
                own, like = self.played[place], self.played[1 - place].outputs
                outputs, notes = laid_out(own.outputs, like, side.name)
                self.laid += notes
                self.played[place] = replace(own, outputs=outputs)
                if outputs and len(outputs) < len(like):
                    self.played[1 - place] = sides[1 - place].keep(self.played[1 - place], list(outputs))
            elif side.in_pieces:
                self._keep_those_of(place)

    def _keep_those_of(self, place: int) -> None:
        """Leaves out the other side's outputs that a model in other pieces does not give."""
        own, (side, other) = self.played[place].outputs, (self.sides[place], self.sides[1 - place])
        left = [name for name in self.played[1 - place].outputs if name not in own]
        if left and own.keys() < self.played[1 - place].outputs.keys():
            self.played[1 - place] = other.keep(self.played[1 - place], list(own))
            self.laid.append(
                f"{side.name} gives {listed(list(own))} alone; {listed(left)} of {other.name} were not compared."
            )

    @cached_property
    def graphs(self) -> list[Program | None]:
        """The graphs of both sides; outputs that have the same bits need none. A file is read where no other is."""
        pairs = list(zip(self.sides, self.played, strict=True))
        found = [side.graph(self.given, run) for side, run in pairs]
        self._read_files(found)
        return found

    def _read_files(self, graphs: list[Program | None]) -> None:
        """Reads an ONNX file as a program where no side has another."""
        for place, (side, run) in enumerate(zip(self.sides, self.played, strict=True)):
            if graphs == [None, None]:
                graphs[place] = side.read_file(self.given, run)

    @property
    def exact(self) -> int:
        """The place of the side whose graph says the truth: not by bits, a network's, the widest, A's before B's."""

        def rank(place: int) -> tuple[bool, bool, float, int]:
            side, graph = self.sides[place], self.graphs[place]
            return (
                graph is not None and reads_bits(graph),
                not side.is_network,
                UNITS.get(side.dtype or torch.float32, 1.0),
                place,
            )

        return min((place for place in (0, 1) if self.graphs[place] is not None), key=rank, default=0)

    def result(self) -> Sameness:
        """The verdict."""
        if not self.played[0].outputs:
            return Sameness("cannot say", "no recorded value is like an output, in any layout", remedy=_LIKE)
        refusal = unfair(self.sides, self.played) or self._of_tokens()
        refusal = refusal or unpaired(*(run.outputs for run in self.played))
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
        known = self._truth()
        if known is None:
            return self._with_notes(without_truth([side.reason for side in self.sides], a, b))
        graph, judged = known.graph, self._judged(known, a, b)
        if judged.verdict == "rounding":
            judged = replace(judged, unseen=unseen(graph, self.given.clone(self.sides[self.exact].dtype)))
        return self._with_notes(judged)

    def _truth(self) -> _Truth | None:
        """What the graph of one side says, or None without a graph; one that does not run in float64 is none."""
        while (graph := self.graphs[self.exact]) is not None:
            side = self.sides[self.exact]
            try:
                routes = self._routes(graph)
                return _Truth(graph, routes, self._typical(graph, routes))
            except ConversionError as refusal:
                side.reason = f"{side.name} has operations without a float64 run: {refusal}"
                self.graphs[self.exact] = None
                self._read_files(self.graphs)
        return None

    def _of_tokens(self) -> Sameness | None:
        """The verdict on token ids without scores that differ, or None."""
        apart = chosen_tokens(self.given, (self.played[0].outputs, self.played[1].outputs))
        return None if apart is None else Sameness("cannot say", apart, remedy=_SCORES)

    def _with_notes(self, found: Sameness) -> Sameness:
        return replace(
            found,
            notes=(*found.notes, *self.laid, *notes_of(found, self.sides, self.played, self.precisions.narrowing)),
        )

    def _outputs(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The outputs of both sides, by A's names; complex numbers as pairs."""
        a, b = ({name: real(one) for name, one in run.outputs.items()} for run in self.played)
        return a, by_name(a, b)

    @cached_property
    def values(self) -> Mapping[str, Read]:
        """What reads values inside of the other side, by the names of modules, or of a file's tensors."""
        own = self.operations
        if isinstance(own, Traced) and not self.sides[1 - self.exact].stored:
            held = own.values
            return {name: partial(held.__getitem__, node) for name, node in own.program.given.items() if node in held}
        graph = self.graphs[self.exact]
        if graph is None or isinstance(own, str | OnnxOperations):
            return {}
        shapes = {name: node.meta[VALUE].shape for name, node in graph.given.items()}
        return joined(self.sides[1 - self.exact].values(self.given), shapes)

    def _is_enough(self, found: Typical) -> bool:
        """Whether a few noisy runs say that a difference is rounding: it is within a third of the limit.

        If all numbers shared one normal error, the mean square of three runs were nine times too large once in 10^5.
        """
        a, b = self._outputs()
        truth, scale = by_name(a, found.truth), by_name(a, found.scales)
        return max(row.ratio for row in outputs_of((a, b), truth, (scale, scale))) <= THRESHOLD / 3

    def _judged(self, known: _Truth, a: dict[str, Tensor], b: dict[str, Tensor]) -> Sameness:
        """Both outputs beside the truth, and beside what rounding does."""
        graph, routes = known.graph, known.routes
        *found, stepped = known.typical
        truth = by_name(a, found[0].truth)
        scales = [by_name(a, each.scales) for each in (*found, stepped)]
        rows, told = outputs_of((a, b), truth, (scales[0], scales[1])), tuple[str, ...]()
        if routes is not None:
            a, b, told = self._routed(routes, found[0], (a, b), is_beyond=max(row.ratio for row in rows) > THRESHOLD)
            rows = outputs_of((a, b), truth, (scales[0], scales[1]))
        unit = max((row.typical for row in rows), default=0.0)
        without = sorted(found[0].without_row)
        notes = [f"Typical rounding is not known of {listed(without)}, and taken for one rounding."] if without else []
        tokens = tokens_of(self.given, self._outputs(), truth, (scales[0], scales[1]), self.padding)
        changed = changed_answers(*self._outputs(), truth, unit) if tokens is None else None
        basis = Sameness("rounding", outputs=rows, changed=changed, tokens=tokens, notes=tuple(notes), turned=told)
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
        both = self._both(graph)
        if both is not None:
            try:
                basis = both.judged(basis, (a, b), (scales[0], scales[1]), 1 - self.exact)
            except ConversionError as refusal:  # its own layout of memory, or an operation without doubles
                side = self.sides[1 - self.exact].name
                basis = replace(basis, notes=(*basis.notes, f"{side}'s own rounding is not known: {refusal}."))
                both = None
        if basis.verdict == "cannot say":
            return basis
        if basis.ratio <= THRESHOLD and basis.verdict == "rounding":
            return self._within(basis, graph)
        parts, why = self._where(graph)
        basis = replace(basis, verdict="not rounding", where=parts.found, inner=parts.largest, only_outputs=why)
        narrowed = None if both is None else self._narrowed(basis, both, (a, b), (scales[0], scales[1]))
        if narrowed is not None:
            return narrowed
        return self._of_other_rounding(basis, graph, found[0].truth, (a, b)[1 - self.exact])

    def _both(self, graph: Program) -> Both | None:
        """Both programs, or None where the other side has none, or has the same operations."""
        other = self.graphs[1 - self.exact]
        if other is None or has_same_operations(graph, other) or reads_bits(other):
            return None
        precisions = [self.precisions.of(place, 1 - self.exact) for place in (0, 1)]
        return Both((graph, other), self.given, self._names, precisions[0], precisions[1], self.seed)

    def _narrowed(
        self,
        basis: Sameness,
        both: Both,
        outputs: tuple[dict[str, Tensor], dict[str, Tensor]],
        scales: tuple[Mapping[str, Scale], Mapping[str, Scale]],
    ) -> Sameness | None:
        """The verdict where one side alone rounds to fewer digits than it declares, and else both are one function."""
        for place, node in self.precisions.narrowing.items():
            ratio = both.narrowed(outputs, scales, int(place != self.exact))
            if ratio is None or ratio > THRESHOLD:
                continue
            unit, own = (str(one).removeprefix("torch.") for one in (node_dtype(node), self._computed_in(place)))
            name, other = self.sides[place].name, self.sides[1 - place].name
            reason = (
                f"of {unit} ({format_ratio(ratio)} times theirs), to which {name} alone rounds, not of {own} "
                f"({format_ratio(basis.ratio)} times); without rounding, {name} and {other} are one function"
            )
            return replace(basis, verdict="coarser rounding", reason=reason, unit=f"{unit} stored", only_outputs=None)
        return None

    def _of_other_rounding(
        self, basis: Sameness, graph: Program, truth: Mapping[str, Tensor], outputs: Mapping[str, Tensor]
    ) -> Sameness:
        """What is not rounding of the declared precision, where no cause is known: biased, or of a coarser unit."""
        declared = {self._computed_in(place) for place in (0, 1)}
        if any(one.why_is_known for one in basis.where) or len(declared) > 1:
            return basis
        biased = self._biases(graph)
        erring = {one.name for one in biased}  # cutting errs twice as much as rounding to nearest
        if biased and all(one.name in erring and one.ratio <= 2 * THRESHOLD for one in basis.where):
            return replace(basis, verdict="biased rounding", bias=biased, where=(), only_outputs=None)
        if not self._is_everywhere(basis, graph):
            return basis
        names = list(truth)
        found = dict(zip(names, outputs.values(), strict=False))
        if len(found) < len(names):
            return basis
        return in_coarser_unit(basis, graph, truth, found, self._around, declared=declared.pop(), seed=self.seed)

    def _averaged(self, basis: Sameness, graph: Program) -> Sameness:
        """The verdict on rounding of a side without operations, which is run nearby if it is larger than usual."""
        if basis.verdict != "rounding" or basis.ratio <= USUAL or self._computed_in(0) != self._computed_in(1):
            return basis
        names = list(self.played[self.exact].outputs)
        return beside_noise(basis, graph, names, self._around, declared=self._computed_in(0), seed=self.seed)

    @property
    def _around(self) -> Around:
        other = 1 - self.exact
        return Around(self.sides[other], self.sides[self.exact].name, self.given, len(self.played[other].outputs))

    def _is_everywhere(self, basis: Sameness, graph: Program) -> bool:
        """Whether no few places are to blame: of the products inside, half differ, as a coarser unit makes them."""
        if self.parted is not None:
            expected = [one for one in self.parted.stretches if one.has_product]
            return 2 * len(self.parted.parted(THRESHOLD)) >= len(expected)
        if basis.inner is None:
            return True
        words = [in_words(name_of(node)) for node in graph.nodes]
        return 2 * sum(one.kind in PRODUCTS for one in basis.where) >= sum(word in PRODUCTS for word in words) > 0

    def _biased(self, basis: Sameness, graph: Program) -> Sameness:
        """The verdict on rounding whose errors are on one side: of the results of modules, on the same inputs."""
        if not self.values or self._computed_in(0) != self._computed_in(1):
            return basis
        found = self._biases(graph)
        return replace(basis, verdict="biased rounding", bias=found) if found else basis

    def _biases(self, graph: Program) -> tuple[Bias, ...]:
        """Results of the other side's modules that err to one side."""
        precision = self._precision(1 - self.exact)
        return biases(graph, self.given, self.values, precision, side=self._names[1])

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
        own = self.operations
        if own is None or isinstance(own, str):
            basis = self._recorded_within(basis, graph)
            return basis if basis.where else self._averaged(self._biased(basis, graph), graph)
        if self._computed_in(0) != self._computed_in(1):
            return self._with_unlike(basis, graph, own, None)
        parts = self._parted(graph, own, INNER)
        certain = tuple(one for one in parts.found if one.is_certain)
        basis = replace(basis, inner=parts.largest)
        if certain:
            return replace(basis, verdict="not rounding", where=certain)
        inexact = map(inexact_note, (one for one in parts.found if not one.why_is_known))
        return self._with_unlike(replace(basis, notes=(*basis.notes, *inexact)), graph, own, parts)

    def _recorded_within(self, basis: Sameness, graph: Program) -> Sameness:
        """The verdict on recorded values that are not what the graph makes of those before them, as a later norm hides.

        What follows such a value fits it, as the other side computed with it. A value that fits neither is another
        tensor, as where a runtime computes in place: it is left out, and told.
        """
        if self.sides[1 - self.exact].recorded is None or not self.values:
            return basis
        found = self._compared(graph)
        wrong = found.parted(INNER)
        begins = {name for one in wrong for name in one.since}
        other = {one.recorded: one.name for one in wrong if one.name in begins}
        if other:
            found = self._compared(graph, without=other)
            values = listed([f"`{name}`" for name in other.values()])
            told = f"What is recorded as {values} is not what {self._names[1]} computes with."
            basis = replace(basis, notes=(*basis.notes, told))
        where = where_values_part(found, graph, self._names, INNER)
        return replace(basis, verdict="not rounding", where=where) if where else basis

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
        return self._biased(replace(basis, where=told.small), graph)

    def _typical(self, graph: Program, routes: Routes | None) -> list[Typical]:
        """Truth, and the scale of A, of B, and of steps of 8 bits where a side is quantised."""
        precisions = [self._precision(place) for place in (0, 1)]
        is_quantised = any(side.quantised for side in self.sides)
        precisions.append(Precision(levels=_LEVELS) if is_quantised else precisions[0])
        if routes is None and self.reference is not None and self.reference.is_of(graph, self.given):
            return self.reference.typical(precisions, progress=self.progress)
        args, kwargs = self.given.args, self.given.kwargs
        options: dict[str, Any] = {"seed": self.seed, "enough": self._is_enough, "progress": self.progress}
        if routes is None:
            return typical(graph, args, kwargs, precisions, **options)
        found = typical(routes.held.program, args, kwargs, precisions, watched=routes.watched(), **options)
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

    def _where(self, graph: Program) -> tuple[Parts, str | None]:
        """Where the two part, and why nothing but outputs could be compared, if so."""
        side, own = self.sides[1 - self.exact], self.operations
        if isinstance(own, str):
            return Parts((), None), f"{side.reason}; {own}"
        if own is not None:
            found = self._parted(graph, own, THRESHOLD)
            if side.stored and not found.found and self.values:  # what the engine makes of its weights
                return self._stretches(graph), None
            fused = ", where ONNX Runtime fuses none" if isinstance(own, OnnxOperations) else ""
            return found, None if found.found else f"no single operation leaves rounding{fused}"
        found = Parts((), None)
        if self.values:
            found = self._stretches(graph)
        compiled = next((each for each in self.sides if not each.is_own and each.network is not None), None)
        reason = side.reason if compiled is None else f"{compiled.name} is compiled"
        return found, None if found.found else reason

    def _stretches(self, graph: Program) -> Parts:
        """The stretches between values of the other side that are not what the graph makes of these values."""
        return Parts(where_values_part(self._compared(graph), graph, self._names), None)

    def _compared(self, graph: Program, without: Collection[str] = ()) -> Compared:
        """What the graph makes of each stretch between values of the other side, but for some of these."""
        values = {name: read for name, read in self.values.items() if name not in without}
        names = {name: module for name, module in (self.names or {}).items() if name not in without}
        precision = self._precision(1 - self.exact)
        self.parted = compared(graph, self.given, values, precision, names=names, seed=self.seed)
        return self.parted

    def _parted(self, graph: Program, own: Operations, threshold: float) -> Parts:
        """The operations that differ by more than this many roundings from what the other side's give."""
        precision = self._precision(1 - self.exact)
        return where_graphs_part(graph, own, self.given, precision, threshold, seed=self.seed, names=self._names)

    @property
    def _names(self) -> tuple[str, str]:
        """Names of the side whose graph says the truth, and of the other."""
        return self.sides[self.exact].name, self.sides[1 - self.exact].name

    @cached_property
    def operations(self) -> Operations | str | None:
        """The other side's operations, with their results, or why there are none; None of a black box."""
        side, graph = self.sides[1 - self.exact], self.graphs[1 - self.exact]
        if not self.sides[self.exact].has_own_operations:
            return None
        try:
            given = self.given.clone(side.dtype)
            if isinstance(side.call, OnnxCall):
                return OnnxOperations(side.call.path, side.call.feeds(given.args, given.kwargs))
            return Traced(graph, given) if graph is not None and side.has_own_operations else None
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

        Both are left out of large networks, unless they are asked for: they take as long as the rest.
        """
        if self.reference is not None and not self.reference.is_bounded:
            return basis
        if not (self.prove or is_small(graph, self.given.tensors)):
            return basis
        computed = {self._computed_in(place) for place in (0, 1)}
        known: Proving | str = "the two sides compute in different precisions"
        if len(computed) == 1:
            network, tensors = self.sides[self.exact].network, self.given.tensors
            known = Proving.of(network, tensors, computed.pop(), seed=self.seed, is_asked=self.prove)
        return with_proofs(basis, known, sides, truth, is_asked=self.prove)
