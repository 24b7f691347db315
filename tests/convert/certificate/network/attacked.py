"""Random networks that certificates may get wrong, and adversarial programs of theirs, in the arithmetic of the class.

A network computes its weights (weight norm, spectral norm, weight standardisation) or tables, has limits and padding
that its precision does not hold, nearest pixels, or writes through other names of what it reads later; half of them
have a class margin about as wide as their bound. Its programs compute every operation in its precision or in double
precision and choose for each number the worst of the results that the class allows, by the sign of its effect: of 29
orders of each sum under "any order", one rounding of the exact result under "once", or as far aside as that may be.
"""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.utils import parametrizations
from torch.utils._pytree import tree_map

from conv2attn.convert.bounds.rounding import unit_roundoff
from conv2attn.convert.certificate.network.images import ImageCertificate, _Image, program_for
from conv2attn.convert.certificate.network.interval import HYPOTHESES
from conv2attn.convert.certificate.network.program import Program
from conv2attn.convert.certificate.network.table import TABLE
from conv2attn.convert.programs.walk import Walk, name_of
from tests.convert.certificate.network.networks import Apply

CHANNELS, SIZE = 3, (4, 3)
ORDERS = 29
SAME = 4  # networks with the same parts and other weights
_LIMITED = ("clamp", "clamp_min", "clamp_max", "hardtanh", "pad", "constant_pad_nd", "fill")


class Standardised(nn.Conv2d):
    """A convolution whose weights are standardised, by hand or by batch norm, with a gain."""

    def __init__(self, *args: Any, by_norm: bool, offset: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.by_norm, self.gain = by_norm, nn.Parameter(torch.rand(self.out_channels) + 0.5)
        with torch.no_grad():
            self.weight.add_(offset)

    def forward(self, x: Tensor) -> Tensor:
        """Standardises the weights, and convolves."""
        w = self.weight
        if self.by_norm:
            flat = w.reshape(1, self.out_channels, -1)
            w = F.batch_norm(flat, None, None, self.gain * 0.3, training=True, momentum=0.0).reshape_as(w)
        else:
            mean = w.mean((1, 2, 3), keepdim=True)
            w = (w - mean) / (w.var((1, 2, 3), keepdim=True, correction=0) + 1e-3).sqrt()
        return F.conv2d(x, w, self.bias, self.stride, self.padding)


def _table(x: Tensor) -> Tensor:
    """Sines of a line, and powers."""
    line = torch.linspace(0, 1.3, x.shape[-1], dtype=x.dtype)
    place = torch.arange(x.shape[-1], dtype=x.dtype) / x.shape[-1]
    return x * torch.sin(line * 3) + (1000.0**-place).sqrt() + torch.exp(-line)


def _slice(x: Tensor) -> Tensor:
    x = x * 1.5
    x[:, 0] = x[:, 1]
    x[..., 0] = 0.125  # a tensor of the network's own precision
    return x


def _scaled_view(x: Tensor) -> Tensor:
    x = x + 0.3
    x.reshape(x.shape[0], -1).mul_(0.7)
    found: Tensor = x.contiguous().add_(x.flip(1))
    return found


class Aliased(nn.Module):
    """What an in-place activation behind dropout changes is read again."""

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.drop, self.act = nn.Dropout(0.3), activation

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both."""
        x = x * 0.9
        found: Tensor = x + self.act(self.drop(x))
        return found


def _conv(draw: random.Random) -> nn.Module:
    kernel, kind = draw.choice((1, 3)), draw.randrange(4)
    if kind < 2:
        conv: nn.Module = nn.Conv2d(CHANNELS, CHANNELS, kernel, padding=1)
        dim = draw.choice((0, 1))
        return cast(
            nn.Module, parametrizations.spectral_norm(conv) if kind else parametrizations.weight_norm(conv, dim=dim)
        )
    offset = draw.choice((0.0, 0.3) if kind == 2 else (0.0, 0.0, 1.0, 30.0))
    return Standardised(CHANNELS, CHANNELS, kernel, padding=1, by_norm=kind == 2, offset=offset)


def _part(draw: random.Random) -> nn.Module:
    size = [draw.randint(2, 7), draw.randint(2, 7)]
    simple: list[Callable[[Tensor], Tensor]] = [
        *(_table, _slice, _scaled_view, torch.relu, F.silu, lambda x: x / 3.3),
        *(lambda x: x.clamp(-0.7, 0.1), lambda x: F.hardtanh(x, -0.3, 0.55), lambda x: x.clamp(max=0.3) * 3.0),
        *(lambda x: F.pad(x, (1, 0, 0, 1), value=0.1), lambda x: F.interpolate(x, scale_factor=2.0)),
        *(lambda x: F.interpolate(x, size=size), lambda x: F.avg_pool2d(x, 2), lambda x: x.softmax(1)),
    ]
    kind = draw.randrange(8)
    if kind < 3:
        return _conv(draw)
    if kind == 3:
        return Aliased(draw.choice((nn.ReLU(inplace=True), nn.Hardtanh(-0.3, 0.6, inplace=True))))
    return Apply(draw.choice(simple))


def network(kind: int, weights: int, dtype: torch.dtype) -> nn.Module:
    """A network of a few random parts and a classifier.

    Args:
        kind: Seed of its parts.
        weights: Seed of its weights.
        dtype: Its precision.
    """
    draw = random.Random(kind)
    torch.manual_seed(weights)
    parts = [_part(draw) for _ in range(draw.randint(1, 3))]
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 4)]
    return nn.Sequential(_conv(draw), *parts, *ends).to(dtype).eval()


class Played(Walk):
    """A program of a class, or a run in double precision that notes what slopes are taken to.

    Args:
        program: The network's.
        dtype: Its precision.
        hypothesis: The class, or None for double precision.
        signs: Of the effect of each operation's result.
        aside: Whether results are moved as far aside as the class "once" allows, in double precision.
        draw: Where orders of sums come from.
    """

    def __init__(
        self,
        program: Program,
        dtype: torch.dtype,
        hypothesis: str | None,
        signs: dict[str, Tensor] | None = None,
        *,
        aside: bool = False,
        draw: random.Random | None = None,
    ) -> None:
        super().__init__(program.record.graph)
        self._program, self._dtype, self._hypothesis = program, dtype, hypothesis
        self._signs, self._aside, self._draw = signs or {}, aside, draw or random.Random(0)
        self.noted: dict[str, Tensor] = {}

    def outputs(self, image: Tensor, *, is_sloped: bool = False) -> Tensor:
        """The outputs, in double precision."""
        is_wide = self._hypothesis is None or self._aside

        def held(one: Any) -> Any:
            if not isinstance(one, Tensor) or not one.is_floating_point():
                return one
            return one.double().requires_grad_(is_sloped) if is_wide else one

        self._tensors = {name: held(one.detach()) for name, one in self._program.record.tensors.items()}
        (found,) = self.run(held(image))
        outputs: Tensor = found.flatten().double()
        return outputs

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's result, by the class's worst way."""
        name = name_of(node)
        is_wide = self._hypothesis is None or self._aside
        if is_wide and name in _LIMITED:
            args, kwargs = tree_map(self._held, (args, kwargs))
        if is_wide and "dtype" in kwargs and kwargs["dtype"] is not None and kwargs["dtype"].is_floating_point:
            kwargs = {**kwargs, "dtype": torch.float64}
        if name == "copy":  # which torch has no derivative of
            return args[1].expand_as(args[0])
        if name not in TABLE or TABLE[name].terms is None:
            return super().operation(node, args, kwargs)
        if is_wide:
            found = super().operation(node, args, kwargs)
            if isinstance(found, Tensor):
                self.noted[node.name] = found
                sign = self._signs.get(node.name)
                if self._aside and sign is not None:
                    found = found + sign * (unit_roundoff(self._dtype) * (1 - 2.0**-20)) * found.abs()
            return found
        exact = self._double(node, args, kwargs)
        sign = self._signs.get(node.name)
        if self._hypothesis == "once" or sign is None or not isinstance(exact, Tensor):
            return tree_map(lambda one: one.to(self._dtype), exact)
        ways = [super().operation(node, args, kwargs), exact.to(self._dtype), *self._orders(node, name, args, exact)]
        errors = torch.stack([(way.double() - exact) * sign for way in ways])
        return torch.stack(ways).gather(0, errors.argmax(0, keepdim=True))[0]

    def _held(self, one: Any) -> Any:
        return float(torch.tensor(one, dtype=self._dtype)) if isinstance(one, float) else one

    def _double(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        def wide(one: Any) -> Any:
            if isinstance(one, torch.dtype) and one.is_floating_point:
                return torch.float64
            return one.double() if isinstance(one, Tensor) and one.is_floating_point() else one

        return super().operation(node, *tree_map(wide, (args, kwargs)))

    def _orders(self, node: fx.Node, name: str, args: Any, exact: Tensor) -> Iterator[Tensor]:
        """Results of a sum in other orders, each addition rounded to single precision."""
        terms = terms_of(node, name, args)
        if terms is None:
            return
        products, last, divisor = terms
        for fused, order in (
            (fused, order) for fused in (False, True) for order in orders(products, self._draw, ORDERS // 2)
        ):
            total = added(order, fused=fused)
            if last is not None:
                total = (total + last.float()).float()
            yield (total / divisor).to(self._dtype).reshape(exact.shape)
        yield (
            (pairwise(products.float()) / divisor if last is None else pairwise(products.float()) + last.float())
            .to(self._dtype)
            .reshape(exact.shape)
        )


def terms_of(node: fx.Node, name: str, args: Any) -> tuple[Tensor, Tensor | None, float] | None:
    """The terms of a sum, exact, [terms, *result]; what is added to it; and what it is divided by."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = {one.name: one.default_value for one in schema} | dict(
        zip((one.name for one in schema), args, strict=False)
    )
    x = next(iter(given.values()))
    if name == "linear":
        products = (x.double()[..., None, :] * given["weight"].double()).movedim(-1, 0)
        return products, given["bias"], 1.0
    if name == "conv2d" and not isinstance(given["padding"], str) and given["groups"] == 1:
        w = given["weight"].double()
        columns = F.unfold(x.double(), w.shape[2:], given["dilation"], given["padding"], given["stride"])[0]
        products = columns[:, None, :] * w.flatten(1).T[:, :, None]
        bias = given["bias"]
        return products, None if bias is None else bias[:, None], 1.0
    if name in ("mean", "sum") and given.get("dim") is not None:
        dims = [given["dim"]] if isinstance(given["dim"], int) else list(given["dim"])
        flat = x.double().movedim(dims, list(range(len(dims)))).flatten(0, len(dims) - 1)
        return flat, None, float(len(flat)) if name == "mean" else 1.0
    if name in ("mv", "dot", "vdot"):
        products = (x.double() * list(given.values())[1].double()).movedim(-1, 0)
        return products, None, 1.0
    return None


def orders(products: Tensor, draw: random.Random, count: int) -> Iterator[Tensor]:
    """Orders of the terms of every sum: as they are, sorted by value and by size, by chance."""
    yield products
    yield products.flip(0)
    by_value, by_size = products.sort(0).values, products.abs().argsort(0)
    yield by_value
    yield by_value.flip(0)
    yield products.gather(0, by_size)
    yield products.gather(0, by_size.flip(0))
    for _ in range(count - 6):
        yield products[torch.tensor(draw.sample(range(len(products)), len(products)))]


def added(products: Tensor, *, fused: bool) -> Tensor:
    """Sums one after another, each addition rounded to single precision, of products that are rounded or fused."""
    terms = products if fused else products.float().double()
    total = torch.zeros_like(products[0])
    for term in terms:
        total = (total + term).float().double()
    return total.float()


def pairwise(terms: Tensor) -> Tensor:
    """Sums of pairs, of pairs of pairs, and so on."""
    while len(terms) > 1:
        odd, even = terms[1::2], terms[0::2]
        paired = even[: len(odd)] + odd
        terms = torch.cat([paired, even[len(odd) :]])
    return terms[0]


@dataclass(frozen=True)
class Attack:
    """What programs of a network did to its certificate under a hypothesis.

    Attributes:
        share: Of the bound, the most that two programs differ by at the largest output or a margin; 0 without a bound.
        error: Of ``.error``, the distance of the run that was made from double precision.
        violations: In words.
        certified: Whether the class is.
        bounded: Whether there is a bound.
    """

    share: float
    error: float
    violations: tuple[str, ...]
    certified: bool
    bounded: bool


@functools.lru_cache(maxsize=1)
def _recorded(kind: int) -> tuple[nn.Module, Program]:
    """A network and its program, which reads the network's own tensors."""
    dtype = torch.float32 if kind % 2 else torch.bfloat16
    model = network(kind, 0, dtype)
    return model, program_for(model, torch.zeros(1, CHANNELS, *SIZE, dtype=dtype))[0]


def attacks(seed: int) -> dict[str, Attack]:
    """Plays adversarial programs of a network against its certificates, one of each class.

    Raises:
        ConversionError: It has none.
    """
    model, program = _recorded(seed // SAME)
    dtype = next(model.parameters()).dtype
    model.load_state_dict(network(seed // SAME, seed, dtype).state_dict())
    image = torch.randn(1, CHANNELS, *SIZE, generator=torch.Generator().manual_seed(seed)).to(dtype)
    return {hypothesis: _attack(seed, model, program, image, hypothesis) for hypothesis in HYPOTHESES}


def _attack(seed: int, model: nn.Module, program: Program, image: Tensor, hypothesis: str) -> Attack:
    found = _Image(program, image, hypothesis, 1e-9, seed).certificate((model,), 3)
    if seed % 4 < 2 and found.bound is not None:  # a margin about as wide as its bound
        margin = found.margins[0]
        share = random.Random(seed).uniform(0, 2) * (margin.bound or 0.0)
        with torch.no_grad():
            model[-1].bias[margin.other] += margin.value - share  # type: ignore[index]
        found = _Image(program, image, hypothesis, 1e-9, seed).certificate((model,), 3)
    with torch.no_grad():
        run = model(image).double().flatten()
        exact = copy.deepcopy(model).double()(image.double()).flatten()
    error, wrong = float((run - exact).abs().max()), list[str]()
    if found.error is not None and error > found.error * (1 + 1e-9):
        wrong.append(f"the run is {error} from float64, and .error {found.error}")
    programs = [*([run] if hypothesis == "any order" else []), *_programs(program, image, hypothesis, found)]
    bounds: dict[int | None, float | None] = {None: found.bound}
    bounds |= {margin.other: margin.bound for margin in found.margins}
    shares = [0.0]
    for other, most in bounds.items():
        ends = [float(one[found.top] - (0.0 if other is None else one[other])) for one in programs]
        apart = max(ends) - min(ends)
        if most is not None:
            shares.append(apart / most if most else float(apart > 0))
            wrong += [f"programs are {apart} apart, and the bound {most}"] if apart > most else []
    classes = [int(one.argmax()) for one in (*programs, run)]
    if found.certified and set(classes) != {found.top}:
        wrong.append(f"class {found.top} is certified, and programs have {classes}")
    share = error / found.error if found.error else 0.0
    return Attack(max(shares), share, tuple(wrong), found.certified, found.bound is not None)


def _programs(program: Program, image: Tensor, hypothesis: str, found: ImageCertificate) -> Iterator[Tensor]:
    """Outputs of programs that move the largest output, and its smallest margin, most, up and down."""
    dtype = image.dtype
    noted = Played(program, dtype, None)
    center = noted.outputs(image.double(), is_sloped=True)
    values = [(name, one) for name, one in noted.noted.items() if one.requires_grad]
    for goal in (center[found.top], center[found.top] - center[found.margins[0].other]):
        slopes = torch.autograd.grad(goal, [one for _, one in values], allow_unused=True, retain_graph=True)
        signs = {name: slope.sign() for (name, _), slope in zip(values, slopes, strict=True) if slope is not None}
        with torch.no_grad():
            for way in (1, -1):
                ways = {name: one * way for name, one in signs.items()}
                yield Played(program, dtype, hypothesis, ways, draw=random.Random(way)).outputs(image)
                if hypothesis == "once":
                    yield Played(program, dtype, hypothesis, ways, aside=True).outputs(image.double())
