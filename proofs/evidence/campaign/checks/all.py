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
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .....convert import SelfAttention, certify, certify_network, conv_from_attention
from .....convert.certificate.reference import right_convolutions, untrusted_note
from .....convert.engines import ENGINES, choose_engine
from .....convert.spec import Convolution, ConvSpec
from ...arithmetic import certified_arithmetic
from ...random_layers import DTYPES, RandomLayer, channel_limits
from .adversarial import PATTERNS
from .bounds import engines_bound, gate_gradient_bound
from .case import Case, attention_of
from .comparison import Comparer, Comparison
from .content import MOST_SCORES, add_content, gate_gradient, gate_of, number_of_scores, written_out
from .extremes import extreme_convolution, extreme_images, perhaps_flushed
from .inputs import choose, convolution, cotangent, images
from .programs import FOLLOWED, PROGRAMS

Check = Callable[[Case], Iterator[Comparison]]

_NORMAL = "normal input"
ONE_HOT, SOFT, ANYWHERE = "one-hot", "soft", "heads anywhere"
_MOST_MOVED, _LARGEST_ALPHA = 2.0, 8.0  # of heads that sit anywhere, in pixels
CPU = torch.device("cpu")
_PARTS = 8  # about so many, of an output that the literal engine computes in parts


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
    case = Case(layer, engines, torch.device(device))
    with certified_arithmetic(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")
        for name in CHECKS if checks is None else checks:
            try:
                found.extend(CHECKS[name](case))
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
def check_integers(case: Case) -> Iterator[Comparison]:
    """Outputs on integers are equal: nothing rounds, whatever the order of the sums."""
    layer, engines = case.layer, case.engines
    conv, x = convolution(layer, case.device, integers=True), images(layer, case.device, integers=True)
    (expected, note), attention = _reference(conv, x), attention_of(conv)
    compare = Comparer("integers", ONE_HOT, note)
    for computed in _in_engines(attention, engines):
        yield compare.same(f"output, {computed.engine}", computed(x), expected)
    larger, _ = _reference(conv, _wider(x))
    for computed in _in_engines(attention, engines):
        yield compare.same(f"output of a larger input, {computed.engine}", computed(_wider(x)), larger)
    for computed in _in_engines(attention, engines):
        computed.memory_limit = _limit_for_parts(layer, computed)
        yield compare.same(f"output in parts, {computed.engine}", computed(x), expected)
    for computed in _in_engines(_made_elsewhere(layer, conv), engines):
        yield compare.same(f"output after a change of precision, {computed.engine}", computed(x), expected)


@torch.no_grad()
def check_certificate(case: Case) -> Iterator[Comparison]:
    """Outputs on normal numbers stay within the certificate; heads anywhere agree with the literal engine."""
    layer, conv, x = case.layer, case.conv, case.images
    for alpha in case.alphas:
        yield from _certified("certificate", {_NORMAL: x}, _computed(case, alpha))
    if layer.dtype != "float64":
        yield _convolution_alone(conv, x)
    if {"separable", "literal"} <= set(case.engines):
        moved = _with_heads_anywhere(layer, conv)
        separable, literal = (attention(x) for attention in _in_engines(moved, ("separable", "literal")))
        bound, compare = torch.tensor(engines_bound(moved, x)), Comparer("certificate", ANYWHERE)
        yield compare.within("normal input, separable against literal", separable, literal, bound)


@torch.no_grad()
def check_extremes(case: Case) -> Iterator[Comparison]:
    """As the certificate's check, with numbers of every magnitude; where a sum could overflow, there is no bound."""
    with perhaps_flushed(case.layer):
        conv = extreme_convolution(case.layer, case.device)
        inputs = {"extreme input": extreme_images(case.layer, case.device)}
        for alpha in case.alphas:
            found = _certified("extremes", inputs, _Computed.of(inputs, conv, attention_of(conv, alpha), case.engines))
            yield from (comparison for comparison in found if math.isfinite(comparison.bound))


@torch.no_grad()
def check_content(case: Case) -> Iterator[Comparison]:
    """Attention that reads the image to decide where to look is what it is when written out, in double precision."""
    layer = case.layer
    if number_of_scores(layer) > MOST_SCORES:
        return
    conv = convolution(layer, CPU, integers=True).double()
    attention, x = attention_of(conv, 0.5), images(layer, CPU, integers=True).double()
    add_content(layer, attention, gated=choose(layer, "gate", (False, True)))
    gate, bound, compare = gate_of(attention), torch.tensor(engines_bound(attention, x)), Comparer("content", SOFT)
    expected = written_out(attention, x, None if gate is None else gate.clamp(0, 1))
    for computed in _in_engines(attention, case.engines):
        yield compare.within(f"output, {computed.engine}", computed(x), expected, bound)
    if gate is None:
        return
    upstream = cotangent(layer, x.new_empty(expected.shape))
    gradient, bound = gate_gradient(attention, gate, x, upstream)[None], gate_gradient_bound(attention, x, upstream)
    for computed in _in_engines(attention, case.engines):
        computed.memory_limit = _limit_for_parts(layer, computed) + x.element_size() * number_of_scores(layer)
        with torch.enable_grad():
            found = _gradients(computed, x, upstream)["content.gate"][None]
        yield compare.within(f"gradient of the gate in parts, {computed.engine}", found, gradient, bound)


@torch.no_grad()
def check_network(case: Case) -> Iterator[Comparison]:
    """A network's certificate holds for the program that runs, or there is none."""
    layer, conv, x = case.layer, case.conv, case.images
    attention = case.attention(choose(layer, "regime", case.alphas))
    name = choose(layer, "program", tuple(PROGRAMS))
    cnn, network = PROGRAMS[name](conv).eval(), PROGRAMS[name](attention).eval()
    limits, kind = channel_limits(x), _kind(attention)
    bound = certify_network(network, input_range=limits, size=layer.size).bound
    if bound is not None:
        expected, note = _reference(cnn, x)
        yield Comparer("network", kind, note).within(f"output, {name}", network(x), expected, torch.tensor(bound))
    elif name in FOLLOWED and layer.dtype != "float16":  # which some values exceed
        yield Comparer("network", kind).wrong("no bound for a network that can be followed")


@torch.no_grad()
def check_autocast(case: Case) -> Iterator[Comparison]:
    """Under autocast, outputs stay within the certificate of the rounded layer on the rounded input."""
    layer, conv, x = case.layer, case.conv, case.images
    dtype: torch.dtype = getattr(torch, choose(layer, "autocast", ("bfloat16", "float16")))
    as_rounded = layer.torch_dtype if layer.dtype == "float64" else dtype  # autocast leaves float64 alone
    values, rounded = x.to(as_rounded), copy.deepcopy(conv).to(as_rounded)
    limits = channel_limits(values)
    with torch.autocast(case.device.type, dtype=dtype):
        expected, note = _reference(conv, x)
    for alpha in case.alphas:
        bound = torch.tensor(certify(attention_of(rounded, alpha), input_range=limits).per_channel, dtype=torch.float64)
        attention = case.attention(alpha)
        with torch.autocast(case.device.type, dtype=dtype):
            outputs = {computed.engine: computed(x) for computed in _in_engines(attention, case.engines)}
        compare = Comparer("autocast", _kind(attention), note)
        for engine, output in outputs.items():
            yield compare.within(f"normal input, {engine}", output, expected, bound)


@torch.no_grad()
def check_adversarial(case: Case) -> Iterator[Comparison]:
    """As the certificate's check, on each of ``PATTERNS``."""
    for alpha in case.alphas:
        yield from _certified("adversarial", _adversarial(case, alpha), _computed(case, alpha))


def check_gradients(case: Case) -> Iterator[Comparison]:
    """Gradients on integers are equal."""
    layer = case.layer
    conv, x = convolution(layer, case.device, integers=True), images(layer, case.device, integers=True)
    upstream = cotangent(layer, x.new_empty(layer.batch, layer.spec.out_channels, *layer.spec.output_size(layer.size)))
    with right_convolutions() as faults:
        expected = _gradients(conv, x, upstream)
    compare = Comparer("gradients", ONE_HOT, untrusted_note(faults))
    for attention in _in_engines(attention_of(conv), case.engines):
        for name, gradient in _gradients(attention, x, upstream).items():
            yield compare.same(f"gradient of {name}, {attention.engine}", gradient, expected[name])


@torch.no_grad()
def check_round_trip(case: Case) -> Iterator[Comparison]:
    """The convolution comes back, from one-hot and from soft attention; a saved layer is the same layer."""
    layer, conv, x = case.layer, case.conv, case.images
    for alpha in case.alphas:
        attention = case.attention(alpha)
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


def _wider(x: Tensor) -> Tensor:
    """The same images with their last column once more."""
    return torch.cat([x, x[..., -1:]], dim=-1)


def _made_elsewhere(layer: RandomLayer, conv: Convolution) -> SelfAttention:
    """The attention of the same convolution in another precision, brought to this one."""
    other: torch.dtype = getattr(torch, choose(layer, "other precision", DTYPES))
    return attention_of(copy.deepcopy(conv).to(other)).to(conv.weight.dtype)


def _limit_for_parts(layer: RandomLayer, attention: SelfAttention) -> int:
    """A memory limit at which an engine computes in parts, and does not refuse."""
    engine = choose_engine(attention, attention.engine)

    def needed(limit: int) -> int:
        attention.memory_limit = limit
        return engine.cost(attention, layer.size, batch=layer.batch).bytes

    most, least = needed(attention.memory_limit), needed(0)
    if engine.name != "literal":
        return least
    return least + (most - least) // _PARTS


def _in_engines(attention: SelfAttention, engines: Sequence[str]) -> Iterator[SelfAttention]:
    """The same layer in one engine after the other, without those that refuse it, and then in its own again."""
    own = attention.engine
    try:
        for name in engines:
            if ENGINES[name].refusal(attention) is None:
                attention.engine = name
                yield attention
    finally:
        attention.engine = own


@dataclass(frozen=True)
class _Computed:
    """Outputs of a convolution and of its attention, for several inputs by name.

    Attributes:
        attention: The attention.
        expected: What the convolution gives.
        note: Why that is not torch's own, if it is not.
        outputs: What each engine gives that does not refuse.
    """

    attention: SelfAttention
    expected: Mapping[str, Tensor]
    note: str | None
    outputs: Mapping[str, Mapping[str, Tensor]]

    @classmethod
    def of(
        cls, inputs: Mapping[str, Tensor], conv: Convolution, attention: SelfAttention, engines: Sequence[str]
    ) -> _Computed:
        """Computes all inputs in one batch."""
        together, parts = torch.cat(list(inputs.values())), [len(x) for x in inputs.values()]

        def named(output: Tensor) -> dict[str, Tensor]:
            return dict(zip(inputs, output.split(parts), strict=True))

        expected, note = _reference(conv, together)
        outputs = {computed.engine: named(computed(together)) for computed in _in_engines(attention, engines)}
        return cls(attention, named(expected), note, outputs)


def _adversarial(case: Case, alpha: float | None) -> dict[str, Tensor]:
    """The inputs of ``PATTERNS``, in the layer's memory format."""

    def made() -> dict[str, Tensor]:
        attention = case.attention(alpha)
        with torch.enable_grad():  # the worst case is found by a gradient
            found = {name: pattern(case.layer, case.conv, attention) for name, pattern in PATTERNS.items()}
        return {f"{name} input": case.layer.lay_out(x) for name, x in found.items()}

    return case.once(("adversarial", alpha), made)


def _computed(case: Case, alpha: float | None) -> _Computed:
    """Normal and adversarial inputs, which two checks hold against the certificate."""

    def made() -> _Computed:
        inputs = {_NORMAL: case.images} | _adversarial(case, alpha)
        return _Computed.of(inputs, case.conv, case.attention(alpha), case.engines)

    return case.once(("computed", alpha), made)


def _certified(check: str, inputs: Mapping[str, Tensor], computed: _Computed) -> Iterator[Comparison]:
    """Holds every engine against the convolution, with a certificate for the range of each channel of each input."""
    ranges = {what: channel_limits(x) for what, x in inputs.items()}
    attention, bounds = computed.attention, {}
    for what, limits in ranges.items():
        bounds[what] = torch.tensor(certify(attention, input_range=limits).per_channel, dtype=torch.float64)
    compare = Comparer(check, _kind(attention), computed.note)
    for engine, outputs in computed.outputs.items():
        for what, bound in bounds.items():
            yield compare.within(f"{what}, {engine}", outputs[what], computed.expected[what], bound)


def _convolution_alone(conv: Convolution, x: Tensor) -> Comparison:
    """Holds the convolution against double precision: the part of the certificate that is its rounding, by itself."""
    limits, precise = channel_limits(x), copy.deepcopy(conv).double()
    parts = (certify(attention_of(module), input_range=limits).rounding_convolution for module in (conv, precise))
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
    attention, generator = attention_of(conv), layer.generator("heads")
    moves = torch.rand(attention.centers.shape, generator=generator, dtype=torch.float64) * 2 - 1
    alphas = torch.rand(attention.alpha.shape, generator=generator, dtype=torch.float64)
    attention.set_positions(centers=attention.centers + ((moves * _MOST_MOVED).to(attention.centers)))
    attention.set_positions(alpha=_LARGEST_ALPHA * (alphas + 1 / 128))
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
