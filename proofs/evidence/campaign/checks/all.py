"""Ways to check one layer: each engine against the convolution, and against the literal engine.

    integers      outputs on integer tensors are equal, also in parts and after a change of precision
    certificate   outputs on real numbers differ by no more than the certificate says, one-hot and soft
    adversarial   the same on inputs made to break it
    gradients     of input, weight and bias, on integer tensors, are equal
    round trip    the convolution comes back bit for bit, and a saved layer computes the same
    extremes      as adversarial, on weights and inputs of every magnitude, also where subnormals are flushed
    content       terms that read the image are what they are when written out
    network       a network's certificate holds for what runs, or there is none
    autocast      under autocast, outputs differ by no more than the certificate of the rounded layer says

An exception is a violation too: nothing that is asked of a layer here is refused.
"""

from __future__ import annotations

import copy
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from .....convert import SelfAttention, attention_from_conv, certify, certify_network, conv_from_attention
from .....convert.certificate.reference import right_convolutions, untrusted_note
from .....convert.engines import ENGINES
from .....convert.spec import Convolution, ConvSpec
from ...arithmetic import certified_arithmetic
from ...random_layers import DTYPES, RandomLayer, channel_limits
from .adversarial import PATTERNS
from .bounds import engines_bound
from .comparison import Comparer, Comparison
from .content import MOST_SCORES, add_content, number_of_scores, written_out
from .extremes import extreme_convolution, extreme_images, perhaps_flushed
from .inputs import choose, convolution, cotangent, images
from .programs import PROGRAMS

Check = Callable[[RandomLayer, Sequence[str], torch.device], Iterator[Comparison]]

ONE_HOT, SOFT, ANYWHERE = "one-hot", "soft", "heads anywhere"
_MOST_MOVED, _LARGEST_ALPHA = 2.0, 8.0  # of heads that sit anywhere, in pixels
CPU = torch.device("cpu")
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
    (expected, note), attention = _reference(conv, x), _attention(conv)
    compare = Comparer("integers", ONE_HOT, note)
    for computed in _in_engines(attention, engines):
        yield compare.same(f"output, {computed.engine}", computed(x), expected)
    larger, _ = _reference(conv, _wider(x))
    for computed in _in_engines(attention, engines):
        yield compare.same(f"output of a larger input, {computed.engine}", computed(_wider(x)), larger)
    for computed in _in_engines(attention, engines):
        computed.memory_limit = 0
        if computed.engine == "literal":  # which then takes one query at a time, and refuses less
            computed.memory_limit = ENGINES["literal"].cost(computed, layer.size, batch=len(x)).bytes
        yield compare.same(f"output in parts, {computed.engine}", computed(x), expected)
    for computed in _in_engines(_made_elsewhere(layer, conv), engines):
        yield compare.same(f"output after a change of precision, {computed.engine}", computed(x), expected)


@torch.no_grad()
def check_certificate(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """Outputs on normal numbers stay within the certificate; heads anywhere agree with the literal engine."""
    conv, x = convolution(layer, device), images(layer, device)
    for alpha in (None, layer.alpha):
        yield from _certified("certificate", {"normal input": x}, conv, _attention(conv, alpha), engines)
    if layer.dtype != "float64":
        yield _convolution_alone(conv, x)
    if {"separable", "literal"} <= set(engines):
        moved = _with_heads_anywhere(layer, conv)
        separable, literal = (attention(x) for attention in _in_engines(moved, ("separable", "literal")))
        bound, compare = torch.tensor(engines_bound(moved, x)), Comparer("certificate", ANYWHERE)
        yield compare.within("normal input, separable against literal", separable, literal, bound)


@torch.no_grad()
def check_extremes(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """As the certificate's check, with numbers of every magnitude; where a sum could overflow, there is no bound."""
    with perhaps_flushed(layer):
        conv, x = extreme_convolution(layer, device), extreme_images(layer, device)
        for alpha in (None, layer.alpha):
            attention = _attention(conv, alpha)
            found = _certified("extremes", {"extreme input": x}, conv, attention, engines)
            yield from (comparison for comparison in found if math.isfinite(comparison.bound))


@torch.no_grad()
def check_content(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """Attention that reads the image to decide where to look is what it is when written out, in double precision."""
    if number_of_scores(layer) > MOST_SCORES:
        return
    conv = convolution(layer, CPU, integers=True).double()
    attention, x = _attention(conv, 0.5), images(layer, CPU, integers=True).double()
    add_content(layer, attention, gated=choose(layer, "gate", (False, True)))
    bound, compare, expected = (
        torch.tensor(engines_bound(attention, x)),
        Comparer("content", SOFT),
        written_out(attention, x),
    )
    for computed in _in_engines(attention, engines):
        yield compare.within(f"output, {computed.engine}", computed(x), expected, bound)


@torch.no_grad()
def check_network(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """A network's certificate holds for the program that runs, or there is none."""
    conv, x = convolution(layer, device), images(layer, device)
    attention = _attention(conv, choose(layer, "regime", (None, layer.alpha)))
    name = choose(layer, "program", tuple(PROGRAMS))
    cnn, network = PROGRAMS[name](conv).eval(), PROGRAMS[name](attention).eval()
    limits, kind = channel_limits(x), _kind(attention)
    bound = certify_network(network, input_range=limits, size=layer.size).bound
    if bound is not None:
        expected, note = _reference(cnn, x)
        yield Comparer("network", kind, note).within(f"output, {name}", network(x), expected, torch.tensor(bound))
    elif name == "plain":
        yield Comparer("network", kind).wrong("no bound for a network that can be followed")


@torch.no_grad()
def check_autocast(layer: RandomLayer, engines: Sequence[str], device: torch.device) -> Iterator[Comparison]:
    """Under autocast, outputs stay within the certificate of the rounded layer on the rounded input."""
    dtype: torch.dtype = getattr(torch, choose(layer, "autocast", ("bfloat16", "float16")))
    conv, x = convolution(layer, device), images(layer, device)
    as_rounded = layer.torch_dtype if layer.dtype == "float64" else dtype  # autocast leaves float64 alone
    values, rounded = x.to(as_rounded), copy.deepcopy(conv).to(as_rounded)
    for alpha in (None, layer.alpha):
        limits = channel_limits(values)
        bound = torch.tensor(certify(_attention(rounded, alpha), input_range=limits).per_channel, dtype=torch.float64)
        attention = _attention(conv, alpha)
        with torch.autocast(device.type, dtype=dtype):
            expected, note = _reference(conv, x)
            outputs = {computed.engine: computed(x) for computed in _in_engines(attention, engines)}
        compare = Comparer("autocast", _kind(attention), note)
        for engine, output in outputs.items():
            yield compare.within(f"normal input, {engine}", output, expected, bound)


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
    upstream = cotangent(layer, x.new_empty(layer.batch, layer.spec.out_channels, *layer.spec.output_size(layer.size)))
    with right_convolutions() as faults:
        expected = _gradients(conv, x, upstream)
    compare = Comparer("gradients", ONE_HOT, untrusted_note(faults))
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
    "extremes": check_extremes,
    "content": check_content,
    "network": check_network,
    "autocast": check_autocast,
}


def _attention(conv: Convolution, alpha: float | None = None) -> SelfAttention:
    attention = attention_from_conv(conv, alpha=alpha)
    attention.memory_limit = _NO_LIMIT
    return attention


def _wider(x: Tensor) -> Tensor:
    """The same images with their last column once more."""
    return torch.cat([x, x[..., -1:]], dim=-1)


def _made_elsewhere(layer: RandomLayer, conv: Convolution) -> SelfAttention:
    """The attention of the same convolution in another precision, brought to this one."""
    other: torch.dtype = getattr(torch, choose(layer, "other precision", DTYPES))
    return _attention(copy.deepcopy(conv).to(other)).to(conv.weight.dtype)


def _in_engines(attention: SelfAttention, engines: Sequence[str]) -> Iterator[SelfAttention]:
    """The same layer in one engine after the other, without those that refuse it."""
    for name in engines:
        if ENGINES[name].refusal(attention) is None:
            attention.engine = name
            yield attention


def _certified(
    check: str, inputs: Mapping[str, Tensor], conv: Convolution, attention: SelfAttention, engines: Sequence[str]
) -> Iterator[Comparison]:
    """Holds every engine against the convolution, with a certificate for the range of each channel of each input."""
    ranges = [channel_limits(x) for x in inputs.values()]
    bounds = [torch.tensor(certify(attention, input_range=r).per_channel, dtype=torch.float64) for r in ranges]
    together, parts = torch.cat(list(inputs.values())), [len(x) for x in inputs.values()]
    expected, note = _reference(conv, together)
    compare = Comparer(check, _kind(attention), note)
    for computed in _in_engines(attention, engines):
        outputs = computed(together).split(parts)
        for what, *compared in zip(inputs, outputs, expected.split(parts), bounds, strict=True):
            yield compare.within(f"{what}, {computed.engine}", *compared)


def _convolution_alone(conv: Convolution, x: Tensor) -> Comparison:
    """Holds the convolution against double precision: the part of the certificate that is its rounding, by itself."""
    limits, precise = channel_limits(x), copy.deepcopy(conv).double()
    parts = (certify(_attention(module), input_range=limits).rounding_convolution for module in (conv, precise))
    (observed, note), expected = _reference(conv, x), precise(x.double())
    return Comparer("certificate", ONE_HOT, note).within(
        "normal input, convolution", observed.double(), expected, torch.tensor(sum(parts))
    )


def _reference(cnn: nn.Module, x: Tensor) -> tuple[Tensor, str | None]:
    """What a convolution gives, or a network of them, and why that is not torch's own, if it is not."""
    with right_convolutions() as faults:
        output: Tensor = cnn(x)
    return output, untrusted_note(faults)


def _kind(attention: SelfAttention) -> str:
    return ONE_HOT if attention.regime.is_exact else SOFT


def _with_heads_anywhere(layer: RandomLayer, conv: Convolution) -> SelfAttention:
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


def _saved_and_loaded(attention: SelfAttention) -> SelfAttention:
    """A new layer with the parameters that came back from a file."""
    file = io.BytesIO()
    torch.save(attention.state_dict(), file)
    file.seek(0)
    new = type(attention)(attention.spec, device=attention.weight.device, dtype=attention.weight.dtype)
    new.load_state_dict(torch.load(file, weights_only=True))
    return new


def _bits(parameter: Tensor) -> Tensor:
    """The bytes of a tensor, so that 0 and -0 differ."""
    return parameter.detach().contiguous().view(torch.uint8)
