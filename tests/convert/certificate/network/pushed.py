"""Random networks, and programs of theirs whose every rounding is as large as its class allows, in the worst direction.

A network has, beside operations of every kind, what certificates may get wrong: doubled kinks, ties, dead units, zero
weights, equal channels, huge and tiny scales. Its programs compute in float64 and err on purpose: each result by u of
itself ("once"), or each product and each addition of a sum by u of itself, in an order that is drawn ("any order"), by
the sign that moves the largest output most, to first order.

    python -m tests.convert.certificate.network.pushed 0 2000    # the search; progress and violations are printed
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.utils._pytree import tree_map

from conv2attn.convert import ConversionError, certify_images
from conv2attn.convert.certificate.network.images import ImageCertificate, program_for
from conv2attn.convert.certificate.network.program import Program
from conv2attn.convert.certificate.network.table import TABLE
from conv2attn.convert.programs.walk import Walk, name_of
from tests.convert.certificate.network.networks import CHANNELS, SIZE, Apply, part

UNIT = 2.0**-24 * (1 - 2.0**-20)


def _made(draw: random.Random) -> list[nn.Module]:
    """One of the operations that certificates may get wrong."""
    conv, scale = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), 2.0 ** draw.choice((-6, 0, 6))
    simple: tuple[Callable[[Tensor], Tensor], ...] = (
        lambda x: x.relu().relu(),
        lambda x: F.max_pool2d(x.relu(), 2, 1),
        lambda x: F.max_pool2d(x, 3, 1, 1, 2, True) if x.shape[-1] > 2 else x,
        lambda x: x.abs() - 1,
        lambda x: F.relu6(x * scale),
        lambda x: F.leaky_relu(torch.cat([x[:, :2], x[:, :2]], 1), -0.5),
        lambda x: x.clamp(-0.5, 0.25).clamp(-0.5, 0.25),
        lambda x: F.max_pool2d(x * 0.0 + x.mean((2, 3), keepdim=True), 2, 1),
    )
    with torch.no_grad():
        kind = draw.randrange(5)
        if kind == 0 and conv.bias is not None:
            conv.bias[: CHANNELS // 2] -= 100  # dead units
        elif kind == 1:
            conv.weight[:, ::2] = 0
        elif kind == 2 and conv.bias is not None:
            conv.weight[1:], conv.bias[1:] = conv.weight[:1].clone(), conv.bias[:1].clone()  # equal channels, ties
        elif kind == 3:
            conv.weight.mul_(2.0 ** draw.choice((-40, -8, 8, 30)))
    return [conv, nn.ReLU()] if draw.random() < 0.5 else [Apply(draw.choice(simple))]


def network(seed: int) -> nn.Module:
    """A network of a few random operations."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    parts = [one for _ in range(draw.randint(1, 4)) for one in (_made(draw) if draw.random() < 0.6 else [part(draw)])]
    first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, padding_mode=draw.choice(("zeros", "reflect")))
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS, 3)] if draw.random() < 0.6 else [nn.Flatten()]
    return nn.Sequential(first, *parts, *ends).eval()


class _Run(Walk):
    """A program in float64.

    Args:
        program: The network's.
        signs: Of what is added to each operation's result; None to note slopes.
        hypothesis: The class.
        draw: Where orders of sums come from.
    """

    def __init__(self, program: Program, signs: dict[str, Tensor] | None, hypothesis: str, draw: random.Random) -> None:
        held = program.record.tensors.items()
        wide = {name: one.detach().double() if one.is_floating_point() else one for name, one in held}
        super().__init__(program.record.graph, wide)
        self._signs, self._hypothesis, self._draw = signs, hypothesis, draw
        self.noted: dict[str, Tensor] = {}

    def operation(self, node: fx.Node, args: Any, kwargs: Any) -> Any:
        """The operation's result, moved."""
        found, name = super().operation(node, args, kwargs), name_of(node)
        if name not in TABLE or TABLE[name].terms is None or not isinstance(found, Tensor):
            return found
        if self._signs is None:
            self.noted[node.name] = found
            return found
        sign = self._signs.get(node.name, torch.zeros(()))
        if self._hypothesis == "any order" and name in ("conv2d", "linear") and len(found.shape) in (2, 4):
            return self._added(name, args, found, sign)
        return found + sign * UNIT * found.abs()

    def _added(self, name: str, args: Any, found: Tensor, sign: Tensor) -> Tensor:
        """A sum whose products and additions all err by u, added one after another in some order."""
        given = dict(zip(("input", "weight", "bias", "stride", "padding", "dilation", "groups"), args, strict=False))
        x, weight, bias = given["input"], given["weight"], given.get("bias")
        if name == "linear":
            products = x[0][:, None] * weight.T  # [in, out]
        else:
            stride, padding, dilation = (
                given.get(k, [d, d]) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1))
            )
            if isinstance(padding, str) or given.get("groups", 1) != 1:
                return found + sign * UNIT * found.abs()
            columns = F.unfold(x, weight.shape[2:], dilation, padding, stride)[0]  # [in, pixels]
            products = columns[:, None, :] * weight.flatten(1).T[:, :, None]
        sign = sign.reshape(products.shape[1:])
        terms = [one + sign * UNIT * one.abs() for one in products]
        if bias is not None:
            terms.append(bias[..., None].expand_as(terms[0]) if name != "linear" else bias)
        self._draw.shuffle(terms)
        while len(terms) > 1:
            place = self._draw.choice((0, self._draw.randrange(len(terms) - 1)))  # in a chain, or in a random tree
            one, other = terms.pop(place), terms.pop(place)
            total = one + other
            rounds = (one != 0) & (other != 0)  # adding 0 is exact
            terms.insert(place, total + sign * UNIT * total.abs() * rounds)
        summed: Tensor = terms[0]
        return summed.reshape(found.shape)


def _outputs(run: _Run, image: Tensor) -> Tensor:
    return torch.cat([one.flatten() for one in run.run(image.double())])


def pushed(seed: int, hypothesis: str) -> tuple[float, ImageCertificate] | None:
    """What two programs differ by at the largest output, as a share of its bound; None where there is none."""
    model = network(seed)
    image = torch.randn(1, CHANNELS, *SIZE, generator=torch.Generator().manual_seed(seed))
    (found,) = certify_images(model, image, hypothesis=hypothesis, margins=0, seed=seed).images
    if found.bound is None:
        return None
    program, image = program_for(model, image)
    image = image.double().requires_grad_()
    noted = _Run(program, None, hypothesis, random.Random(seed))
    noted_outputs = _outputs(noted, image)
    values = [(name, one) for name, one in noted.noted.items() if one.requires_grad]
    slopes = torch.autograd.grad(noted_outputs[found.top], [one for _, one in values], allow_unused=True)
    signs = {
        name: torch.zeros(()) if one is None else one.sign() for (name, _), one in zip(values, slopes, strict=True)
    }
    ends = []
    with torch.no_grad():
        for way in (1, -1):
            ways = tree_map(lambda one, way=way: one * way, signs)
            run = _Run(program, ways, hypothesis, random.Random(seed + way))
            ends.append(float(_outputs(run, image.detach())[found.top]))
    apart = abs(ends[0] - ends[1])
    return (apart / found.bound if found.bound else float(apart > 0)), found


def search(first: int, last: int) -> None:
    """Pushes the programs of many networks, and prints the largest shares of a bound with their seeds."""
    largest, compared = {"once": (0.0, -1), "any order": (0.0, -1)}, 0
    unbounded, refused = 0, 0
    for seed in range(first, last):
        for hypothesis, before in largest.items():
            try:
                found = pushed(seed, hypothesis)
            except ConversionError:
                refused += 1
                continue
            compared, unbounded = compared + (found is not None), unbounded + (found is None)
            largest[hypothesis] = max(before, (found[0] if found is not None else 0.0, seed))
        print(seed, compared, "compared", unbounded, "unbounded", refused, "refused", largest, flush=True)


if __name__ == "__main__":
    search(*map(int, sys.argv[1:]))
