r"""A network on one image as one linear map for every program of a class, and what each operation adds to it.

Let c be our own run in float64 and d = a - c the difference of a program's numbers. Each operation is its linear map
near c, its rounding r under a hypothesis (``table.py``), and what the map leaves, s. So with fixed
matrices J_vo, all paths from operation v to o,

    d_o = sum_v J_vo (r_v + s_v),        |r_v| + |s_v| <= e_v,        |d_o| <= R_o := sum_v |J_vo| e_v

wherever all numbers are within the ranges that the maps were made for. That they are follows from R_u <= D_u at every
unit u whose range is c_u +- D_u, in the order of the graph: the first number out of its range would have all of its
ancestors in theirs (claim ``ranges-hold``, ``proofs/claims/certificate/ranges.py``). ``proof.py`` tests R <= D at all
units at once.

R of a few numbers takes a backward pass g each, which rounds, too: g = J^T g' + h with |h| <= gamma |J|^T |g'|. As
sum_w g_w (d_w - J d - r_w - s_w) = 0 for any g, what a wrong g changes is sum_w h_w d_w, at most gamma |g'| |J| D.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, fx

from ...bounds.rounding import OUTWARD, gamma
from ...errors import ConversionError
from ...layer.layer import SelfAttention
from ...programs.walk import name_of
from .attention import bound_program, convolution_of
from .call import Call, intervals_in
from .interval import U64, Interval, UnboundedError, of_rule
from .operation import Local, Point
from .program import Bounding, Program
from .table import bound, near

SUMMED = 1 + 2.0**-20  # of up to 2^30 numbers that are not negative
_ROWS = 2**24  # numbers of a tensor of columns
NORMS = ("batch_norm", "_native_batch_norm_legit_no_training")

Radius = Callable[[int, fx.Node, Tensor, Tensor | None], Tensor]


@dataclass
class Step:
    """One operation as a linear map.

    Attributes:
        place: Its name in the network.
        parents: The steps whose results it reads.
        local: Its map; None for the image.
        shape: Of its result.
        added: e: bound on what is added to its result, or None for nothing.
        owed: The same, where the next operation adds it.
        tail: The part of ``added`` that soft attention alone may cause.
        slack: |J| D, with which a backward pass's rounding is compared, or None where ranges are points.
        tested: D, or None where a range follows from others.
        is_transposed: Whether its map's transpose was seen to be one.
    """

    place: str
    parents: tuple[int, ...]
    local: Local | None
    shape: torch.Size
    added: Tensor | None = None
    owed: Tensor | None = None
    tail: Tensor | None = None
    slack: Tensor | None = None
    tested: Tensor | None = None
    is_transposed: bool = False

    @property
    def is_tested(self) -> bool:
        """Whether its result's range is tested, where ranges are."""
        return self.local is not None and self.local.is_sum and self.owed is None

    def run(self, given: Sequence[Tensor]) -> Tensor:
        """J of columns of every operand, [columns, *shape].

        Raises:
            ConversionError: torch cannot compute it.
        """
        with self.named():
            found: Tensor = torch.vmap(cast(Local, self.local).apply)(*given)
            return found

    def check_transpose(self, back: Sequence[Tensor], slope: Tensor) -> None:
        """Holds a column of J^T against J, since torch has operations whose gradient under vmap is another's.

        Raises:
            ConversionError: s (J t) is not (J^T s) t.
        """
        generator = torch.Generator("cpu").manual_seed(0)
        ts = [torch.randn(one.shape, generator=generator, dtype=torch.float64, device="cpu") for one in back]
        with torch.no_grad():
            forward = slope * self.run(ts)
            returned = [one * t for one, t in zip(back, ts, strict=True)]
        size = float(forward.abs().sum()) + sum(float(one.abs().sum()) for one in returned)
        apart = abs(float(forward.sum()) - sum(float(one.sum()) for one in returned))
        if apart > 1e-6 * size:  # both sums round: 10^9 roundings in double precision are 1e-7 of it
            raise ConversionError(f"{self.place}: torch's gradient of its map is not the map's transpose")
        self.is_transposed = True

    @contextmanager
    def named(self) -> Iterator[None]:
        """Names the operation if torch cannot compute its map, or the map's transpose."""
        try:
            with of_rule():
                yield
        except UnboundedError as reason:
            raise ConversionError(f"{self.place}: {reason}") from reason


class Linearised(Bounding):
    """A network on one image as a linear map.

    Args:
        program: The network's.
        image: [1, channels, *size].
        hypothesis: The class of programs.
        radius: From the number of a step, its node, its center and its pilot columns to D; "rows" for R itself, by a
            backward pass for each number; None for slopes at the image, to first order.
        columns: Pilot columns of the image, zeros [columns, *image], if ``radius`` wants some.
        draw: From columns and e to columns with Cauchy numbers of that scale added.

    Attributes:
        steps: Its operations.
        outputs: Its outputs.
        unstable: Numbers whose range passes a kink, and all of functions with kinks.
    """

    def __init__(
        self,
        program: Program,
        image: Tensor,
        hypothesis: str,
        *,
        radius: Radius | str | None = None,
        columns: Tensor | None = None,
        draw: Callable[[Tensor, Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(program)
        self._hypothesis, self._radius, self._draw = hypothesis, radius, draw
        self.steps: list[Step] = []
        exact = image.detach().cpu().double()
        self.steps.append(Step("the image", (), None, exact.shape))
        self._count, self._of_constants = None if columns is None else len(columns), set[int]()
        point = Point(exact, exact, torch.zeros_like(exact), exact, 0, columns=columns)
        with torch.no_grad():
            found = self.values_for(point)
        self.outputs = [one for one in found if isinstance(one, Point)]

    def constant(self, values: Tensor) -> Point:
        """A constant of which something is computed: a step without roundings."""
        self.steps.append(Step("a constant", (), None, values.shape))
        self._of_constants.add(len(self.steps) - 1)
        nothing = torch.zeros_like(values)
        columns = None if self._count is None else torch.zeros(self._count, *values.shape, device="cpu")
        return Point(values, values, nothing, values, len(self.steps) - 1, columns=columns)

    def bounded(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation near the image."""
        call = Call.at(node, args, kwargs, repeatable=False, hypothesis=self._hypothesis)
        points = [one for one in intervals_in(call.arguments.values()) if isinstance(one, Point)]
        bounds, local = bound(call.map(lambda one: one.hull if isinstance(one, Point) else one)), near(call)
        if not isinstance(local, list):
            return self._placed(node, local, bounds, points)
        pairs = zip(local, bounds, strict=True)
        return [None if one is None else self._placed(node, one, bound, points) for one, bound in pairs]

    def attention(self, name: str, layer: SelfAttention, x: Any, node: fx.Node) -> Any:
        """The layer's convolution near the image; the layer's certificate is what programs may differ by."""
        shape = node.meta["val"].shape
        bounds, tail = bound_program(layer, x.hull, shape, self._hypothesis)
        local = convolution_of(layer, shape).local(x)
        return self._placed(node, local, bounds, [x], tail if bool(tail.any()) else None)

    def _placed(
        self, node: fx.Node, local: Local, bounds: Interval, points: Sequence[Point], tail: Tensor | None = None
    ) -> Point:
        """The result of an operation, one step more; ranges of what constants give are not tested."""
        is_constant = all(one.step in self._of_constants for one in points)
        step = self._step(node, replace(local, is_sum=False) if is_constant else local, bounds, points, tail)
        self.steps.append(step)
        if is_constant:
            self._of_constants.add(len(self.steps) - 1)
        columns, center = self._columns(step, points), local.value
        low, high = (center, center) if self._radius is None else self._range(step, node, bounds, points, columns)
        nothing = torch.zeros((), dtype=torch.float64, device="cpu").expand(center.shape)
        step.local = replace(cast(Local, step.local), value=nothing, box=None)  # which nothing reads any more
        return Point(low, high, nothing, center, len(self.steps) - 1, step.owed, columns)

    def _step(
        self, node: fx.Node, local: Local, bounds: Interval, points: Sequence[Point], tail: Tensor | None
    ) -> Step:
        """An operation's step; what is added at a sum is owed where nothing but a norm reads it."""
        added, owed = bounds.error if local.rest is None else bounds.error + local.rest, points[0].owed
        if owed is not None:
            others = [torch.zeros_like(one.center) for one in points[1:]]
            added = added + (local.absolute or local.apply)(owed, *others) * OUTWARD
        if tail is not None and owed is not None:
            raise UnboundedError("attention behind a sum that is not rounded")
        step = Step(self.program.layer(node), tuple(one.step for one in points), local, local.value.shape, tail=tail)
        if local.is_sum and len(node.users) == 1 and name_of(next(iter(node.users))) in NORMS:
            step.owed = added
        elif bool(added.any()):
            step.added = added
        return step

    def _range(
        self, step: Step, node: fx.Node, bounds: Interval, points: Sequence[Point], columns: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The ends of the range of a step's result: the rule's, the map's, and those that are tested if it is a sum."""
        local: Any = step.local
        center, added = local.value, step.added if step.owed is None else step.owed
        added = torch.zeros((), device="cpu") if added is None else added
        step.slack = (local.absolute or local.apply)(*[one.radius for one in points])
        radius = step.slack + added
        if step.is_tested:
            index, given = len(self.steps) - 1, self._radius
            step.tested = given(index, node, center, columns) if callable(given) else self._rows(index)
            radius = torch.minimum(radius, step.tested)
        radius = radius * OUTWARD + 2 * U64 * center.abs()
        low, high = torch.maximum(bounds.low, center - radius), torch.minimum(bounds.high, center + radius)
        if local.box is not None:
            low, high = torch.maximum(low, local.box[0] - added), torch.minimum(high, local.box[1] + added)
        return low, torch.maximum(low, high)

    def _columns(self, step: Step, points: Sequence[Point]) -> Tensor | None:
        """Pilot columns of a step's result."""
        given = [one.columns for one in points if one.columns is not None]
        if self._draw is None or not given or step.local is None:
            return None
        found = step.run(given)
        return found if step.added is None else self._draw(found, step.added)

    def adjoint(self, seeds: Mapping[int, Tensor]) -> tuple[Tensor, Tensor]:
        """sum |J| e of numbers that are sums over steps' results, [columns], and its part that tails alone cause.

        Args:
            seeds: For each step, the factors of its numbers, [columns, *shape].
        """
        held, (count, *_) = dict(seeds), next(iter(seeds.values())).shape
        found, tails = (torch.zeros(count, dtype=torch.float64, device="cpu") for _ in range(2))
        for index in range(max(seeds), -1, -1):
            slope, step = held.pop(index, None), self.steps[index]
            if slope is None or step.local is None:
                continue
            size = slope.abs().reshape(len(slope), -1)
            for part in (step.added, None if step.slack is None else self._of_backward(step)):
                found += 0.0 if part is None else size @ part.flatten()
            tails += 0.0 if step.tail is None else size @ step.tail.flatten()
            for parent, one in zip(step.parents, self._back(step, slope), strict=True):
                held[parent] = held[parent] + one if parent in held else one
        return found * SUMMED, tails / SUMMED

    def _of_backward(self, step: Step) -> Tensor:
        """A backward pass's rounding at a step: sums of no more numbers than it and all others have, and the map's."""
        local, slack = cast(Local, step.local), cast(Tensor, step.slack)
        return slack * (OUTWARD * gamma(8 * (math.prod(step.shape) + local.terms + len(self.steps)), U64))

    def _back(self, step: Step, slope: Tensor) -> list[Tensor]:
        """J^T of factors."""
        with torch.enable_grad(), step.named():
            shapes = [self.steps[parent].shape for parent in step.parents]
            starts = [
                torch.zeros(len(slope), *shape, dtype=torch.float64, requires_grad=True, device="cpu")
                for shape in shapes
            ]
            found = step.run(starts)
            if not found.requires_grad:  # it reads none of its operands' numbers
                return [torch.zeros_like(one) for one in starts]
            back = list(torch.autograd.grad(found, starts, slope, materialize_grads=True))
        if not step.is_transposed:
            step.check_transpose([one[:1] for one in back], slope[:1])
        return back

    def _rows(self, index: int) -> Tensor:
        """R of every number of a step."""
        step = self.steps[index]
        count = math.prod(step.shape)
        parts = []
        for units in torch.arange(count, device="cpu").split(
            max(1, _ROWS // max(math.prod(one.shape) for one in self.steps))
        ):
            seeds = torch.zeros(len(units), count, dtype=torch.float64, device="cpu")
            seeds[torch.arange(len(units), device="cpu"), units] = 1.0
            parts.append(self.adjoint({index: seeds.view(-1, *step.shape)})[0])
        return torch.cat(parts).view(step.shape)

    def values(self) -> tuple[Tensor, Tensor]:
        """The outputs' numbers and radii, one after another."""
        nothing = torch.zeros(0, dtype=torch.float64, device="cpu")
        return (
            torch.cat([nothing, *(one.center.flatten() for one in self.outputs)]),
            torch.cat([nothing, *(one.radius.flatten() for one in self.outputs)]),
        )

    @property
    def counted(self) -> tuple[int, int]:
        """Units whose ranges are tested, and those of functions with kinks whose ranges pass one."""
        tested = sum(step.tested.numel() for step in self.steps if step.tested is not None)
        locals_ = [step.local for step in self.steps if step.local is not None and step.local.passes is not None]
        return tested, sum(int(one.passes.sum()) for one in locals_ if one.passes is not None)

    def reach(self, factors: Tensor) -> tuple[Tensor, Tensor]:
        """``adjoint`` of sums of outputs, [columns, numbers] of factors."""
        seeds: dict[int, Tensor] = {}
        sizes = [one.center.numel() for one in self.outputs]
        for one, part in zip(self.outputs, factors.split(sizes, 1), strict=True):
            shaped = part.reshape(-1, *one.center.shape)
            seeds[one.step] = seeds[one.step] + shaped if one.step in seeds else shaped
        return self.adjoint(seeds)


KAPPA = 2.0**-10  # of what is added at a number, most that rounding there may be


def columns_of(
    steps: Sequence[Step],
    count: int,
    draw: Callable[[Tensor, Tensor], Tensor],
    dtype: torch.dtype,
    seen: Callable[[int, Tensor], None],
    *,
    is_rehearsal: bool = False,
) -> Tensor:
    """Runs columns of drawn numbers forward; the columns whose rounding is at most ``KAPPA`` e everywhere, [count].

    Args:
        steps: The network's.
        count: Number of columns.
        draw: From columns and e to columns with numbers of that scale added.
        dtype: Their precision.
        seen: Called with each step's number and the absolute values of its columns, in memory that is used again.
        is_rehearsal: Whether rounding is not looked at, and all columns are taken for fine.
    """
    last = {parent: index for index, step in enumerate(steps) for parent in step.parents}
    held: dict[int, Tensor] = {}
    largest: dict[int, Tensor] = {}  # of all columns, at each number
    is_fine = torch.ones(count, dtype=torch.bool, device="cpu")
    room = torch.empty(count * max(math.prod(step.shape) for step in steps), dtype=dtype, device="cpu")
    for index, step in enumerate(steps):
        if step.local is None:
            held[index] = torch.zeros(count, *step.shape, dtype=dtype, device="cpu")
            largest[index] = torch.zeros(step.shape, dtype=dtype, device="cpu")
            continue
        given = [held[parent] for parent in step.parents]
        found = step.run(given)
        if step.added is not None:
            found = draw(found, step.added)
        size = torch.abs(found, out=room[: found.numel()].view(found.shape))
        if not is_rehearsal:
            largest[index] = size.amax(0)
            if not _rounds_little(step, [largest[parent] for parent in step.parents], largest[index]):
                each = (_rounds_little(step, [one[n].abs() for one in given], size[n]) for n in range(count))
                is_fine &= torch.tensor(list(each), device="cpu")
        held[index] = found
        seen(index, size)
        for parent in set(step.parents):
            if last[parent] == index:
                del held[parent]
                largest.pop(parent, None)
        if index not in last:
            del held[index]
    return is_fine


def _rounds_little(step: Step, given: Sequence[Tensor], found: Tensor) -> bool:
    """Whether rounding of a step is at most ``KAPPA`` of what is added there, in a column of these absolute values."""
    local: Any = step.local
    allowed, unit = step.added if step.owed is None else step.owed, torch.finfo(found.dtype).eps / 2
    rounding = found.new_zeros(()) if step.added is None else found * unit * (step.added > 0)
    if local.rounded is not None:
        rounding = rounding + local.rounded(*given) * gamma(local.terms + 2, unit)
    if allowed is None:
        return not bool(rounding.any())
    return bool((rounding * OUTWARD <= KAPPA * allowed).all())
