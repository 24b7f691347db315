"""Two programs of one comparison: what each rounds on its own, and what the two compute without rounding.

With t the outputs of a program in float64, and s what its own noise does to them:

    a - b = (a - t_A) + (t_A - t_B) + (t_B - b)
             rounding    functions     rounding

The larger of both s may explain the difference: a program that computes a variance as E[x^2] - E[x]^2 rounds more, and
is no other function. But the smaller one must explain t_A - t_B: what a program loses by rounding hides no fault. Both
conditions are the same with A and B exchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, fx

from ..programs.float64 import Lifted, evaluated, first_of, node_dtype, plainly
from ..programs.noise import UNITS, Noise, Precision, is_channels_last, noisy
from ..programs.program import Program
from ..programs.walk import Walk, arguments_of, called, in_place_of, module_of, name_of, standing
from .given import Inputs
from .outputs import THRESHOLD, by_name, chaotic, outputs_of, sampled
from .typical import Scale, typical
from .verdict import LESS, Sameness, format_ratio

Scales = Mapping[str, Scale]
_FINE = Precision(torch.float64, unit=2.0**-48)  # above float64's own roundings, and far below float32's
SAME_FUNCTION = 1e-3  # times typical rounding: programs that are this near without rounding are one function


class _Function(Lifted):
    """A program in float64, whose constants are those that it computes: a position in bfloat16 is another position."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._depends = program.dependent()

    def result(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The result of an operation; one that reads no input has the network's own precision."""
        return (evaluated if node in self._depends else called)(node, args, kwargs)


def function_of(program: Program, given: Inputs) -> dict[str, Tensor]:
    """The outputs of a program without rounding, by name."""
    return _Function(program).outputs(given.args, given.kwargs)


def distance(one: Mapping[str, Tensor], other: Mapping[str, Tensor], scales: tuple[Scales, Scales]) -> float:
    """The largest difference of real outputs, in units of the rounding of two sides; all by the same names."""
    found = 0.0
    for name, value in one.items():
        if not value.is_floating_point() or not value.numel():
            continue
        apart = torch.where(value == other[name], 0.0, value.double() - other[name].double())
        found = max(found, *scales[0][name].beside(scales[1][name]).ratios(apart.nan_to_num(math.inf)))
    return found


def narrowing(program: Program, declared: torch.dtype) -> fx.Node | None:
    """The first operation that depends on the inputs and has fewer digits than its network declares, or None."""
    depends, unit = program.dependent(), UNITS[declared]
    return next(
        (node for node in program.nodes if node in depends and UNITS.get(node_dtype(node) or declared, 0.0) > unit),
        None,
    )


def narrowed(name: str, node: fx.Node, other: str) -> str:
    """Note on a side that alone rounds to fewer digits than it declares."""
    where, dtype = module_of(node) or node.name, str(node_dtype(node)).removeprefix("torch.")
    return f"{name} rounds to {dtype} at `{where}` ({name_of(node)}), {other} nowhere."


def has_same_operations(one: Program, other: Program) -> bool:
    """Whether two programs run the same operations, one by one, on numbers of the same shapes, and round alike."""

    def keys(program: Program) -> list[Any]:
        shapes = [getattr(first_of(node.meta.get("val")), "shape", None) for node in program.nodes]
        return list(zip(map(name_of, program.nodes), shapes, map(_layout, program.nodes), strict=True))

    return keys(one) == keys(other)


def _layout(node: fx.Node) -> bool:
    """Whether an operation takes statistics of a channels-last map, whose kernels round otherwise."""
    takes = name_of(node) in ("group_norm", "instance_norm") or bool(arguments_of(node).get("training", False))
    return takes and is_channels_last(node)


def reads_bits(program: Program) -> bool:
    """Whether a program reads its numbers' bits as other numbers, which it does not do in float64."""
    return any(name_of(node) == "view" and "dtype" in arguments_of(node) for node in program.nodes)


def hidden(ratio: float, names: tuple[str, str]) -> str:
    """The reason why outputs within the rounding of one side are no rounding, by the names of this and the other."""
    return (
        f"without any rounding, the two differ by {format_ratio(ratio)} times {names[1]}'s typical rounding, which "
        f"{names[0]}'s larger rounding hides"
    )


@dataclass(frozen=True)
class Loss:
    """Where a program loses digits.

    Attributes:
        name: The module or the operation.
        kind: The operation.
        factor: Relative error of its result, beside that of what it reads.
    """

    name: str
    kind: str
    factor: float

    def told(self, name: str, other: str) -> str:
        """The loss in a sentence; by the names of the side that loses digits, and of the other."""
        digits = round(math.log10(self.factor)) if math.isfinite(self.factor) else 16
        count = "a digit" if digits == 1 else f"{digits} digits"
        return f"{name} loses {count} at `{self.name}` ({self.kind}); {other}'s own rounding is smaller."


@dataclass(frozen=True)
class _Twin:
    """A value, plain and with noise, and its relative error."""

    plain: Any
    moved: Any
    error: float


class _Losing(Walk):
    """A program in float64 and with noise, at once; the operation that loses most is kept."""

    def __init__(self, program: Program, precision: Precision, seed: int) -> None:
        super().__init__(program.graph, program.tensors)
        self._noise = Noise(precision, seed, has_exact=False)
        self.worst: tuple[float, fx.Node] | None = None

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> _Twin:
        """The operation's result, twice."""
        given = args, kwargs
        moved_args, moved_kwargs = in_place_of(given, _Twin, lambda one: one.moved)
        plain = evaluated(node, *in_place_of(given, _Twin, lambda one: one.plain))
        found = plain, noisy(node, moved_args, moved_kwargs, self._noise)
        error = _apart(*found)
        unit = UNITS.get(node_dtype(node) or torch.float32, UNITS[torch.float32])
        read = max((one.error for one in standing(given, _Twin)), default=0.0)
        factor = error / max(read, unit)
        if self.worst is None or factor > self.worst[0]:
            self.worst = factor, node
        return _Twin(*found, error)


def _apart(plain: Any, moved: Any) -> float:
    """The relative error of a real tensor, by root mean squares; 0 of others."""
    if not isinstance(plain, Tensor) or not plain.is_floating_point() or not plain.numel():
        return 0.0
    size, error = (float(one.nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt()) for one in (plain, moved - plain))
    return error / size if size else 0.0


def largest_loss(program: Program, given: Inputs, precision: Precision, seed: int) -> Loss | None:
    """The operation at which a program loses most digits, or None where it loses less than one."""
    walk = _Losing(program, precision, seed)
    with torch.no_grad(), plainly():
        walk.run(*program.inputs(given.args, given.kwargs))
    if walk.worst is None or walk.worst[0] < 10:
        return None
    factor, node = walk.worst
    return Loss(module_of(node) or node.name, name_of(node), factor)


@dataclass(frozen=True)
class Both:
    """Two programs on the same inputs, and what is judged by both.

    Attributes:
        programs: The one that says the truth, and the other.
        given: The inputs.
        names: Of both, "A" and "B" or the other way round.
        a: The precision in which A is held to the other's operations.
        b: The same of B.
        seed: Of the noise.
    """

    programs: tuple[Program, Program]
    given: Inputs
    names: tuple[str, str]
    a: Precision
    b: Precision
    seed: int

    def _functions(self, like: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The outputs of both programs without rounding, by the names of these."""
        one, other = (by_name(like, function_of(program, self.given)) for program in self.programs)
        return one, other

    def _with_doubles(self, scales: tuple[Scales, Scales], like: Mapping[str, Tensor]) -> tuple[Scales, Scales]:
        """Scales with what the smallest rounding turns, float64's too, as of numbers halfway between two steps."""
        found = []
        for program, own in zip(self.programs, scales, strict=True):
            (turned,) = typical(program, self.given.args, self.given.kwargs, [_FINE], seed=self.seed)
            also = by_name(like, turned.scales)
            found.append({name: scale.beside(also[name]) for name, scale in own.items()})
        return found[0], found[1]

    def narrowed(
        self, outputs: tuple[dict[str, Tensor], dict[str, Tensor]], scales: tuple[Scales, Scales], place: int
    ) -> float | None:
        """The difference beside the rounding of a program that alone rounds to fewer digits than it declares.

        Args:
            outputs: Of A and B.
            scales: The noise of A and B in the precision that they declare.
            place: That of the program among both.

        Returns:
            The ratio, or None where both are two functions without any rounding.
        """
        functions = self._functions(outputs[0])
        if distance(*functions, scales) > THRESHOLD:
            return None
        program = self.programs[place]
        truth = by_name(outputs[0], Lifted(program).outputs(self.given.args, self.given.kwargs))
        (own,) = sampled(program, self.given, truth, [Precision()], self.seed)
        return distance(*outputs, (own, scales[1]))

    def judged(
        self,
        basis: Sameness,
        outputs: tuple[dict[str, Tensor], dict[str, Tensor]],
        narrow: tuple[Scales, Scales],
        place: int,
    ) -> Sameness:
        """The verdict on outputs.

        Args:
            basis: What is known by the program that says the truth.
            outputs: Of A and B.
            narrow: The noise of that program, in the precision of A and of B.
            place: That of the other side.
        """
        given, other = self.given, self.programs[1]
        functions = self._functions(outputs[0])
        apart, is_within = distance(*functions, narrow), basis.ratio <= THRESHOLD
        if apart <= SAME_FUNCTION if is_within else apart > THRESHOLD:
            return basis
        if is_within:
            own = sampled(other, given, functions[1], [self.a, self.b], self.seed)
            apart = distance(*functions, (own[0], own[1]))
            if apart > THRESHOLD:
                apart = distance(*functions, self._with_doubles((own[0], own[1]), functions[1]))
            return (
                basis
                if apart <= THRESHOLD
                else replace(basis, verdict="not rounding", reason=hidden(apart, self.names))
            )
        found = typical(other, given.args, given.kwargs, [self.a, self.b], seed=self.seed)
        truth, scales = by_name(outputs[0], found[0].truth), [by_name(outputs[0], each.scales) for each in found]
        wide = (scales[0], scales[1])
        rows = outputs_of(outputs, truth, wide)
        if max(row.ratio for row in rows) > THRESHOLD:
            return basis
        chaos = chaotic(truth, wide)
        if chaos is not None:
            return replace(basis, outputs=rows, verdict="cannot say", reason=chaos, remedy=LESS)
        loss = largest_loss(other, given, (self.a, self.b)[place], self.seed)
        return replace(
            basis, outputs=rows, notes=(*basis.notes, *([] if loss is None else [loss.told(*self.names[::-1])]))
        )
