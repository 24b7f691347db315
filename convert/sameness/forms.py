"""A vocabulary of functions that networks write out: norms, activations, softmax, rotations, moved and resized maps.

What a run of operations computes is not read off its graph, which each network writes in its own way. Its numbers tell:
a candidate with given constants (an eps, inside or outside the root; a correction; a form of GELU) is computed in
float64 on the values that the run reads, and is what the run computes if it agrees with its result. Of A, whose
operations are computed in float64, to twelve digits; of B to its rounding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

EXACT = 1e-10  # relative distance of A's result from a form in float64
EPS = (1e-5, 1e-6, 1e-12, 1e-3, 1e-8, 1e-7, 1e-4, 1e-2, 0.0)
LARGEST_EPS = 0.2  # of numbers that are taken for an eps
PROBED = 2048  # numbers that tell what function it is


@dataclass(frozen=True)
class Form:
    """A function by its name and constants.

    Attributes:
        kind: Its family, such as "layer norm".
        constants: What differs within the family, in words, by name; "" names the function itself.
        place: What two norms must have in common to be compared: axes, groups, and how they are scaled.
    """

    kind: str
    constants: Mapping[str, str]
    place: str = ""

    @property
    def name(self) -> str:
        """Its family, or what it is called within it."""
        return self.constants.get("", self.kind)

    def beside(self, other: Form, both: Callable[[object, object], str]) -> str:
        """What differs from another form of the family, in words; "" where nothing does."""
        if self.kind != other.kind:
            return both(self.kind, other.kind)
        pairs = ((name, value, other.constants.get(name, value)) for name, value in self.constants.items())
        return "; ".join(f"{name} {both(one, two)}".strip() for name, one, two in pairs if one != two)


class Probe:
    """Some of the numbers of tensors of one shape, by which they are compared.

    Args:
        shape: The shape.
        device: Where the tensors are.
    """

    def __init__(self, shape: torch.Size, device: torch.device) -> None:
        count = math.prod(shape)
        places = torch.arange(0, count, max(1, count // PROBED), device=device)
        self.shape, self._at = shape, torch.unravel_index(places, shape)

    def __call__(self, value: Tensor) -> Tensor:
        """The numbers of a tensor that has this shape, or is broadcast to it: [numbers]."""
        return value.broadcast_to(self.shape)[self._at].double()


def forms(
    x: Tensor, probe: Probe, constants: Sequence[float], tensors: Sequence[Tensor], like: Form | None = None
) -> Iterator[tuple[Form, Tensor]]:
    """Functions of a tensor, each with the probed numbers of its value.

    Args:
        x: What is read, [...] in float64.
        probe: Chooses numbers of tensors of this shape.
        constants: Numbers that the operations have, of which one may be an eps.
        tensors: Tensors that the network holds there: weight, bias.
        like: A form of whose family these must be.
    """
    if like is None or like.kind == "activation":
        yield from _activations(probe(x))
    if like is None or like.kind == "softmax":
        yield from _softmaxes(x, probe, constants)
    if like is None or like.kind.endswith("norm"):
        yield from _norms(x, probe, constants, tensors, like)


def _activations(x: Tensor) -> Iterator[tuple[Form, Tensor]]:
    for name, function in _ACTIVATIONS.items():
        yield Form("activation", {"": name}), function(x)


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "GELU exact": F.gelu,
    "GELU by tanh": partial(F.gelu, approximate="tanh"),
    "x sigmoid(1.702 x)": lambda x: x * torch.sigmoid(1.702 * x),
    "SiLU": F.silu,
    "ReLU": F.relu,
    "ReLU6": F.relu6,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "hard swish": F.hardswish,
    "hard sigmoid": F.hardsigmoid,
    "mish": F.mish,
    "softplus": F.softplus,
    "ELU": F.elu,
    "squared ReLU": lambda x: F.relu(x).square(),
    "leaky ReLU of slope 0.01": F.leaky_relu,
    "leaky ReLU of slope 0.1": partial(F.leaky_relu, negative_slope=0.1),
    "leaky ReLU of slope 0.2": partial(F.leaky_relu, negative_slope=0.2),
    "no activation": lambda x: x,
}


def _softmaxes(x: Tensor, probe: Probe, constants: Sequence[float]) -> Iterator[tuple[Form, Tensor]]:
    own = [c for c in constants if c not in (0.0, 1.0)]
    for dim in range(-1, -1 - min(x.ndim, 3), -1):
        if x.shape[dim] > 1:
            for scale in dict.fromkeys([1.0, *own, *(1 / c for c in own)]):
                words = {"dim": str(dim), "logits times": f"{scale:g}"}
                yield Form("softmax", words), probe(torch.softmax(x * scale, dim))


@dataclass(frozen=True)
class _Norm:
    """The axes of a norm, and whether it takes the mean away."""

    name: str
    axes: tuple[int, ...]
    groups: int = 0  # of channels; 0 where axes are those of the tensor itself
    is_centred: bool = True

    @property
    def place(self) -> str:
        """What it averages over."""
        return f"{self.axes} {self.groups}"


def _kinds(x: Tensor) -> list[_Norm]:
    """Norms that a tensor of this shape may have, the usual ones first."""
    found = [_Norm("layer norm", (-1,)), _Norm("rms norm", (-1,), is_centred=False)]
    if x.ndim == 4:
        found += [_Norm("layer norm", (1,)), _Norm("rms norm", (1,), is_centred=False)]
    if x.ndim >= 3:
        channels = x.shape[1]
        sizes = dict.fromkeys((1, channels, 32, 16, 8, 4, 2))
        found += [_Norm("group norm", (2,), groups) for groups in sizes if channels % groups == 0]
        found += [_Norm("batch norm", (0, *range(2, x.ndim)))]
        found += [_Norm("layer norm", (-2, -1))]
    if x.ndim == 2:
        found += [_Norm("batch norm", (0,))]
    return found


def _norms(
    x: Tensor, probe: Probe, constants: Sequence[float], tensors: Sequence[Tensor], like: Form | None
) -> Iterator[tuple[Form, Tensor]]:
    chosen = [c for c in constants if 0 <= c < LARGEST_EPS]
    for kind in _kinds(x):
        if like is not None and not like.place.startswith(f"{kind.place} "):
            continue
        y = x.unflatten(1, (kind.groups, -1)).flatten(2) if kind.groups else x
        fitting = [probe(one) for each in tensors if (one := _broadcast(each, x, kind)) is not None]
        for eps in dict.fromkeys((*chosen, *EPS) if like is not None or not chosen else chosen):
            for correction, is_inside in itertools.product((0, 1), (True, False)):
                values = _normalised(y, kind, eps, correction, is_inside)
                if values is None:
                    continue
                where = "" if not eps else " inside the root" if is_inside else " outside it"
                words = {"eps": f"{eps:g}{where}", "correction": str(correction)}
                scaled = _scaled(probe(values.reshape(x.shape)), fitting, is_centred=kind.is_centred)
                for place, value in enumerate(scaled):
                    form = Form(kind.name, words, f"{kind.place} {place}")
                    if like is None or like.place == form.place:
                        yield form, value


def _normalised(y: Tensor, kind: _Norm, eps: float, correction: int, is_inside: bool) -> Tensor | None:
    """The tensor without its mean, divided by its deviation; None of a variant that is another one again."""
    count = math.prod(y.shape[axis] for axis in kind.axes)
    if count <= 1 or (not kind.is_centred and correction) or (not eps and not is_inside):
        return None
    centred = y - y.mean(kind.axes, keepdim=True) if kind.is_centred else y
    variance = centred.square().sum(kind.axes, keepdim=True) / (count - correction)
    return centred * (variance + eps).rsqrt() if is_inside else centred / (variance.sqrt() + eps)


def _scaled(value: Tensor, fitting: Sequence[Tensor], *, is_centred: bool) -> Iterator[Tensor]:
    """Normalised numbers times a weight plus a bias, in each way that the tensors allow."""
    for weight, bias in itertools.product((None, *fitting), repeat=2):
        if weight is None or weight is not bias:
            scaled = value if weight is None else value * weight
            yield scaled if bias is None else scaled + bias
    if not is_centred:
        for weight in fitting:
            yield value * (1 + weight)


def _broadcast(tensor: Tensor, x: Tensor, kind: _Norm) -> Tensor | None:
    """A weight of channels in the shape that multiplies x, or None."""
    wide = tensor.detach().double()
    axis = 1 if kind.groups or kind.axes == (1,) or kind.name == "batch norm" else x.ndim - 1
    if kind.axes == (-2, -1):
        return wide if wide.shape == x.shape[-2:] else None
    if wide.numel() != x.shape[axis]:
        return None
    return wide.reshape(*[-1 if place == axis else 1 for place in range(x.ndim)])


def layout(x: Tensor, result: Tensor, near: float) -> str | None:
    """How rotary positions pair the channels of [..., channels], "neighbours" or "halves"; None where they do neither.

    A rotation leaves the length of each pair.

    Args:
        x: What is rotated.
        result: The same, rotated.
        near: Relative error of the result.
    """
    if x.shape != result.shape or x.ndim < 3 or x.shape[-1] % 2 or x.shape[-1] < 4 or torch.equal(x, result):
        return None
    sizes = {
        "neighbours": [one.unflatten(-1, (-1, 2)).square().sum(-1) for one in (x, result)],
        "halves": [one.unflatten(-1, (2, -1)).square().sum(-2) for one in (x, result)],
    }
    fits = [
        name for name, (before, after) in sizes.items() if float((before - after).abs().max() / before.max()) <= near
    ]
    return fits[0] if len(fits) == 1 else None


def moved(
    x: Tensor, padding: Sequence[int], apply: Callable[[Tensor], Tensor], fill: float = 0.0
) -> Iterator[tuple[str, Tensor]]:
    """Results of a window that slides over a map where it begins elsewhere, or where the map is padded otherwise.

    Args:
        x: The map, [batch, channels, *sizes].
        padding: That of each axis.
        apply: The operation without padding.
        fill: What is padded with.
    """
    axes = len(padding)
    if axes > 2:
        return
    shifts = sorted(itertools.product(range(-2, 3), repeat=axes), key=lambda one: sum(map(abs, one)))
    for shift in shifts[1:]:
        if any(abs(d) - p >= n for d, p, n in zip(shift, padding, x.shape[2:], strict=True)):
            continue  # nothing of the map would be left
        pads = [end for p, d in zip(reversed(padding), reversed(shift), strict=True) for end in (p - d, p + d)]
        yield f"the map is moved by ({', '.join(map(str, shift))})", apply(F.pad(x, pads, value=fill))
    if any(padding) and all(p < n for p, n in zip(padding, x.shape[2:], strict=True)):
        pads = [end for p in reversed(padding) for end in (p, p)]
        for mode, words in (("reflect", "by reflection"), ("replicate", "by repetition"), ("circular", "circularly")):
            yield words, apply(F.pad(x, pads, mode=mode))


_MODES: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "half pixels": lambda at, n, m: (at + 0.5) * (n / m) - 0.5,
    "half pixels, of one pixel 0": lambda at, n, m: (at + 0.5) * (n / m) - 0.5 if m > 1 else at * 0,
    "aligned corners": lambda at, n, m: at * ((n - 1) / max(m - 1, 1)),
    "asymmetric": lambda at, n, m: at * (n / m),
}


def resized(x: Tensor, size: Sequence[int]) -> Iterator[tuple[dict[str, str], Tensor]]:
    """A map, [batch, channels, *sizes], resized in each usual way, with its words."""
    modes = {name: one for name, one in _MODES.items() if min(size) == 1 or "of one pixel" not in name}
    for name, coordinates in modes.items():
        for kernel, coefficient in (("cubic", -0.75), ("cubic", -0.5), ("linear", None), ("nearest", None)):
            found = x
            for axis, m in enumerate(size):
                found = _resized_axis(found, 2 + axis, m, coordinates, kernel, coefficient)
            words = {"kernel": kernel, "coordinates": name}
            if coefficient is not None:
                words["coefficient"] = f"{coefficient:g}"
            yield words, found


def _resized_axis(
    x: Tensor, axis: int, m: int, coordinates: Callable[[Tensor, int, int], Tensor], kernel: str, a: float | None
) -> Tensor:
    """Interpolates along an axis: a product with a matrix of weights, [m, n]."""
    n = x.shape[axis]
    at = coordinates(torch.arange(m, dtype=torch.float64, device=x.device), n, m)
    if kernel == "nearest":
        shift = 0.0 if coordinates is _MODES["asymmetric"] else 0.5
        rows = [((at + shift).floor(), torch.ones_like(at))]
    else:
        if kernel == "linear":
            at = at.clamp(min=0)
        base, reach = at.floor(), (0, 1) if kernel == "linear" else (-1, 0, 1, 2)
        rows = [(base + step, _weight(at - base - step, a)) for step in reach]
    matrix = torch.zeros(m, n, dtype=torch.float64, device=x.device)
    places = torch.arange(m, device=x.device)
    for where, weight in rows:
        matrix.index_put_((places, where.clamp(0, n - 1).long()), weight, accumulate=True)
    return torch.matmul(x.movedim(axis, -1), matrix.T).movedim(-1, axis)


def _weight(distance: Tensor, a: float | None) -> Tensor:
    """The weight of a pixel at a distance: linear, or Keys' cubic with coefficient a."""
    d = distance.abs()
    if a is None:
        return (1 - d).clamp(min=0)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return torch.where(d <= 1, near, torch.where(d < 2, far, 0.0))


def permutation(one: Tensor, other: Tensor) -> str | None:
    """How the rows of a weight are those of another in another order, in words; None where they are not.

    Args:
        one: A's, [rows, ...].
        other: B's.
    """
    if one.shape != other.shape or one.ndim < 1 or len(one) < 4 or torch.equal(one, other):
        return None
    rows = len(one)
    sizes = [size for size in range(4, rows + 1, 2) if rows % size == 0]
    for size in sizes:
        view = one.unflatten(0, (-1, size))
        halves = view.unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2).flatten(0, 1)
        pairs = view.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2).flatten(0, 1)
        if torch.equal(halves, other) or torch.equal(pairs, other):
            return "are permuted as for the other RoPE layout"
    order = [torch.argsort(each.double().reshape(rows, -1).sum(1), stable=True) for each in (one, other)]
    return "are in another order" if torch.equal(one[order[0]], other[order[1]]) else None
