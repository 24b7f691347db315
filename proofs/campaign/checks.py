"""Five ways to check one layer: each engine against the convolution, and against the literal engine.

    integers      outputs on integer tensors are equal
    certificate   outputs on real numbers differ by no more than the certificate says, one-hot and soft
    adversarial   the same on inputs made to break it
    gradients     of input, weight and bias, on integer tensors, are equal
    round trip    the convolution comes back bit for bit, and a saved layer computes the same

An exception is a violation too: nothing that is asked of a layer here is refused.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, attention_from_conv, certify, conv_from_attention
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.campaign.adversarial import PATTERNS
from conv2attn.proofs.campaign.arithmetic import certified_arithmetic
from conv2attn.proofs.campaign.bounds import engines_bound
from conv2attn.proofs.campaign.comparison import Comparer, Comparison
from conv2attn.proofs.campaign.inputs import convolution, cotangent, images
from conv2attn.proofs.random_layers import RandomLayer

Check = Callable[[RandomLayer, Sequence[str], torch.device], Iterator[Comparison]]

ONE_HOT, SOFT, ANYWHERE = "one-hot", "soft", "heads anywhere"
_MOST_MOVED, _LARGEST_ALPHA = 2.0, 8.0  # of heads that sit anywhere, in pixels
_NO_LIMIT = 2**62  # bytes: a campaign chooses the sizes of its inputs itself


def compare_layer(
    layer: RandomLayer,
    *,
    engines: Sequence[str] = tuple(ENGINES),
    checks: Sequence[str] | None = None,
    device: str = "cpu",
) -> list[Comparison]:
    """Checks one layer.

    Args:
        layer: The layer.
        engines: Engines to check, each where it does not refuse.
        checks: Names out of ``CHECKS``; all by default.
        device: Where to compute.
    """
    found: list[Comparison] = []
    with certified_arithmetic(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")
        for name in CHECKS if checks is None else checks:
            try:
                found.extend(CHECKS[name](layer, engines, torch.device(device)))
            except Exception as error:
                found.append(Comparer(name, "any").wrong(f"raises {type(error).__name__}: {error}"))
    return found


def violations(
    layer: RandomLayer,
    *,
    engines: Sequence[str] = tuple(ENGINES),
    checks: Sequence[str] | None = None,
    device: str = "cpu",
) -> list[Comparison]:
    """The comparisons of ``compare_layer`` that do not hold."""
    found = compare_layer(layer, engines=engines, checks=checks, device=device)
    return [comparison for comparison in found if not comparison.holds]


@torch.no_grad()
def check_integers(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """Outputs on integers are equal: nothing rounds, whatever the order of the sums."""
    conv, x = convolution(layer, device, integers=True), images(layer, device, integers=True)
    expected, compare = conv(x), Comparer("integers", ONE_HOT)
    for attention in _in_engines(_attention(conv), engines):
        yield compare.same(f"output, {attention.engine}", attention(x), expected)


@torch.no_grad()
def check_certificate(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """Outputs on normal numbers stay within the certificate; heads anywhere agree with the literal engine."""
    conv, x = convolution(layer, device), images(layer, device)
    for alpha in (None, layer.alpha):
        yield from _certified("certificate", {"normal input": x}, conv, _attention(conv, alpha), engines)
    if {"separable", "literal"} <= set(engines):
        moved = _with_heads_anywhere(layer, conv)
        separable, literal = (attention(x) for attention in _in_engines(moved, ("separable", "literal")))
        bound, compare = torch.tensor(engines_bound(moved, x)), Comparer("certificate", ANYWHERE)
        yield compare.within("normal input, separable against literal", separable, literal, bound)


def check_adversarial(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """As the certificate's check, on each of ``PATTERNS``."""
    conv = convolution(layer, device)
    for alpha in (None, layer.alpha):
        attention = _attention(conv, alpha)
        inputs = {f"{name} input": pattern(layer, conv, attention) for name, pattern in PATTERNS.items()}
        with torch.no_grad():
            yield from _certified("adversarial", inputs, conv, attention, engines)


def check_gradients(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """Gradients on integers are equal."""
    conv, x = convolution(layer, device, integers=True), images(layer, device, integers=True)
    upstream = cotangent(layer, conv(x).detach())
    expected, compare = _gradients(conv, x, upstream), Comparer("gradients", ONE_HOT)
    for attention in _in_engines(_attention(conv), engines):
        for name, gradient in _gradients(attention, x, upstream).items():
            yield compare.same(f"gradient of {name}, {attention.engine}", gradient, expected[name])


@torch.no_grad()
def check_round_trip(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """The convolution comes back, from one-hot and from soft attention; a saved layer is the same layer."""
    conv, x = convolution(layer, device), images(layer, device)
    for alpha in (None, layer.alpha):
        attention = _attention(conv, alpha)
        back, compare = conv_from_attention(attention, tolerance=math.inf), Comparer("round trip", _kind(attention))
        if ConvSpec.from_conv(back) != layer.spec:
            yield compare.wrong("geometry of the convolution that came back")
        for name, parameter in conv.named_parameters():
            yield compare.same(f"bits of the {name}", _bits(back.get_parameter(name)), _bits(parameter))
        yield compare.same("output of the saved layer", _saved_and_loaded(attention)(x), attention(x))


CHECKS: dict[str, Check] = {
    "integers": check_integers,
    "certificate": check_certificate,
    "adversarial": check_adversarial,
    "gradients": check_gradients,
    "round trip": check_round_trip,
}


def _attention(conv: nn.Conv2d, alpha: float | None = None) -> SelfAttention2d:
    attention = attention_from_conv(conv, alpha=alpha)
    attention.memory_limit = _NO_LIMIT
    return attention


def _in_engines(attention: SelfAttention2d, engines: Sequence[str]) -> Iterator[SelfAttention2d]:
    """The same layer in one engine after the other, without those that refuse it."""
    for name in engines:
        if ENGINES[name].refusal(attention) is None:
            attention.engine = name
            yield attention


def _certified(
    check: str, inputs: Mapping[str, Tensor], conv: nn.Conv2d, attention: SelfAttention2d, engines: Sequence[str]
) -> Iterator[Comparison]:
    """Holds every engine against the convolution, with a certificate for the range of each channel of each input."""
    ranges = [(x.amin((0, 2, 3)), x.amax((0, 2, 3))) for x in inputs.values()]
    bounds = [torch.tensor(certify(attention, input_range=r).per_channel, dtype=torch.float64) for r in ranges]
    together, parts = torch.cat(list(inputs.values())), [len(x) for x in inputs.values()]
    expected, compare = conv(together).split(parts), Comparer(check, _kind(attention))
    for computed in _in_engines(attention, engines):
        for what, *compared in zip(inputs, computed(together).split(parts), expected, bounds, strict=True):
            yield compare.within(f"{what}, {computed.engine}", *compared)


def _kind(attention: SelfAttention2d) -> str:
    return ONE_HOT if attention.regime.is_exact else SOFT


def _with_heads_anywhere(layer: RandomLayer, conv: nn.Conv2d) -> SelfAttention2d:
    """The attention of a convolution with its heads moved off their taps, each with a locality strength of its own."""
    attention, generator = _attention(conv), layer.generator("heads")
    moves = torch.rand(attention.centers.shape, generator=generator, dtype=torch.float64) * 2 - 1
    alphas = torch.rand(attention.alpha.shape, generator=generator, dtype=torch.float64)
    attention.centers.add_((moves * _MOST_MOVED).to(attention.centers))
    attention.alpha.copy_(_LARGEST_ALPHA * (alphas + 1 / 128))
    return attention


def _gradients(module: nn.Module, x: Tensor, upstream: Tensor) -> dict[str, Tensor]:
    """Gradients of sum(output * upstream) for the input, the weight and the bias."""
    x = x.detach().requires_grad_()
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    found = torch.autograd.grad(module(x), [x, *trained.values()], upstream)
    return dict(zip(("input", *trained), found, strict=True))


def _saved_and_loaded(attention: SelfAttention2d) -> SelfAttention2d:
    """A new layer with the parameters that came back from a file."""
    file = io.BytesIO()
    torch.save(attention.state_dict(), file)
    file.seek(0)
    new = SelfAttention2d(attention.spec, device=attention.weight.device, dtype=attention.weight.dtype)
    new.load_state_dict(torch.load(file, weights_only=True))
    return new


def _bits(parameter: Tensor) -> Tensor:
    """The bytes of a tensor, so that 0 and -0 differ."""
    return parameter.detach().contiguous().view(torch.uint8)
