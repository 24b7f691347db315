"""How far the certificate is above what happens: ``python benchmarks/tightness.py`` prints both tables.

In the soft regime the worst input is known in closed form (``campaign/values.py``) and held against the tail. In the
exact regime only rounding is left, here in the geometries of torchvision's ResNet-50. Random
numbers are held against the certificate for their range and for their measured sums. Rounding errors of random numbers
cancel; those of equal products do not, so that they come nearer to the bound, which has to hold for every order of the
sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from bench import networks
from torch import Tensor, nn

from conv2attn.convert.arguments import Size
from conv2attn.convert.certificate.data import certify_data
from conv2attn.convert.certificate.layer import certify
from conv2attn.convert.examples.networks import NETWORKS, load_example
from conv2attn.convert.layer.construction import attention_from_conv
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.convert.spec import Convolution, ConvSpec
from conv2attn.proofs.campaign.strategies import convolution_of
from conv2attn.proofs.campaign.values import gain, largest_difference

ALPHAS = (0.5, 1.0, 2.0, 4.0, 8.0)
BOXES = (2, 3, 7, 11)
SIDE = 7  # pixels of the inputs in the exact regime: the bound does not depend on them
TRIALS = 512
SEED = 0


@dataclass(frozen=True)
class SoftTightness:
    """Worst case over tail, for a family of kernels.

    Attributes:
        kernels: Which.
        alpha: Sharpness.
        shares: What the worst input reaches of the tail, smallest first.
    """

    kernels: str
    alpha: float
    shares: tuple[float, ...]


@dataclass(frozen=True)
class ExactTightness:
    """Certificate over observed rounding errors, for one geometry; random numbers and equal products.

    Attributes:
        spec: Geometry.
        difference: Largest |attention - convolution| of random numbers.
        errors: Largest error of attention plus largest error of convolution, likewise, against double precision.
        bound: Certificate for the range.
        data_bound: Certificate for the measured sums.
        worst_attention: Rounding part of the attention over its largest error for equal products.
        worst_convolution: The same for the convolution.
        worst: Both rounding parts over both errors, added.
    """

    spec: ConvSpec
    difference: float
    errors: float
    bound: float
    data_bound: float
    worst_attention: float
    worst_convolution: float
    worst: float


def share_of_tail(layer: SelfAttention) -> float:
    """Share of a layer's tail that the worst input within [-1, 1] reaches, at a pixel far from the borders."""
    spec, alpha = layer.spec, min(layer.regime.alpha)
    margin = math.ceil(math.sqrt(12 / alpha)) + max(map(max, spec.pads))
    steps = [math.ceil(margin / stride) for stride in spec.stride]
    size = Size(*(2 * steps[a] * spec.stride[a] + spec.dilation[a] * spec.kernel_size[a] for a in (0, 1)))
    reached = (largest_difference(gain(layer, size, output=(o, steps[0], steps[1]))) for o in range(spec.out_channels))
    return max(reached) / certify(layer, input_range=(-1, 1)).tail


def soft_tightness() -> Iterator[SoftTightness]:
    """The trained example networks' kernels, and box filters."""
    for alpha in ALPHAS:
        trained = (conv for name in NETWORKS for conv in load_example(name).modules() if isinstance(conv, nn.Conv2d))
        yield SoftTightness("trained examples", alpha, _shares(trained, alpha))
        yield SoftTightness("boxes", alpha, _shares(map(_box, BOXES), alpha))


@torch.no_grad()
def exact_tightness(specs: Iterable[ConvSpec]) -> Iterator[ExactTightness]:
    """Random normal numbers and equal products in these geometries, in single precision, literal engine."""
    generator = torch.Generator().manual_seed(SEED)
    for spec in specs:
        conv = convolution_of(spec)
        for parameter in conv.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
        x = torch.randn(2, spec.in_channels, SIDE, SIDE, generator=generator)
        layer = attention_from_conv(conv, engine="literal")
        attention, convolution, exact = _outputs(layer, conv, x)
        certificate = certify(layer, input_range=(x.min().item(), x.max().item()), engine="literal")
        yield ExactTightness(
            spec,
            _largest(attention, convolution),
            _largest(attention, exact) + _largest(convolution, exact),
            certificate.bound,
            certify_data(layer, [x], engine="literal").bound,
            *_equal_products(spec, generator),
        )


def _equal_products(spec: ConvSpec, generator: torch.Generator) -> tuple[float, float, float]:
    """Rounding parts over largest errors, of each side and of both: weights of 1, images of one number each."""
    spec = replace(spec, out_channels=8 * spec.groups, stride=(1, 1), padding=(), bias=False)  # one output each
    conv = convolution_of(spec)
    nn.init.ones_(conv.weight)
    layer = attention_from_conv(conv, engine="literal")
    numbers = 1 + torch.rand(TRIALS, 1, 1, 1, generator=generator)
    x = numbers.expand(-1, spec.in_channels, *spec.kernel_size).contiguous()
    certificate = certify(layer, input_range=(0, x.max().item()), engine="literal")
    bounds = certificate.rounding_attention, certificate.rounding_convolution
    *computed, exact = _outputs(layer, conv, x)
    errors = [_largest(found, exact) or math.nan for found in computed]
    return bounds[0] / errors[0], bounds[1] / errors[1], sum(bounds) / sum(errors)


def _outputs(layer: SelfAttention, conv: Convolution, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    spec, weight = layer.spec, conv.weight.double()
    bias = None if conv.bias is None else conv.bias.double()
    exact = F.conv2d(spec.pad(x.double()), weight, bias, spec.stride, 0, spec.dilation, spec.groups)
    return layer(x).double(), conv(x).double(), exact


def _largest(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def _shares(convs: Iterable[Convolution], alpha: float) -> tuple[float, ...]:
    return tuple(sorted(share_of_tail(attention_from_conv(conv.double(), alpha=alpha)) for conv in convs))


def _box(side: int) -> nn.Conv2d:
    conv = nn.Conv2d(1, 1, side, bias=False)
    nn.init.ones_(conv.weight)
    return conv


def _print_soft() -> None:
    print("| kernels | alpha | smallest share | median | largest |\n| --- | --- | --- | --- | --- |")
    for row in soft_tightness():
        low, middle, high = row.shares[0], row.shares[len(row.shares) // 2], row.shares[-1]
        print(f"| {row.kernels} | {row.alpha:g} | {low:.2f} | {middle:.2f} | {high:.2f} |")


def _print_exact() -> None:
    print(
        "| ResNet-50 layer | difference | bound over it | data | over errors | data | equal: attention | conv | both |"
    )
    print("| --- " * 9 + "|")
    _, found = networks(["resnet50"])
    layers = [module for module in found["resnet50"].modules() if isinstance(module, nn.Conv2d)]
    for row in exact_tightness(dict.fromkeys(map(ConvSpec.from_conv, layers))):
        ratios = [
            "-" if not observed else f"{bound / observed:,.0f}"
            for observed in (row.difference, row.errors)
            for bound in (row.bound, row.data_bound)
        ]
        ratios += [f"{value:,.0f}" for value in (row.worst_attention, row.worst_convolution, row.worst)]
        print(f"| {row.spec} | {row.difference:.1e} | {' | '.join(ratios)} |")


if __name__ == "__main__":
    _print_soft()
    print()
    _print_exact()
