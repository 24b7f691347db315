"""Checks of one layer: each engine against the convolution, and against the literal engine.

    integers      outputs on integer tensors are equal, also in parts and after a change of precision
    certificate   outputs on real numbers differ by no more than the certificate says, one-hot and soft
    adversarial   the same on inputs made to break it
    gradients     of input, weight and bias, on integer tensors, are equal
    round trip    the convolution comes back bit for bit, and a saved layer computes the same
    extremes      as adversarial, on weights and inputs of every magnitude, also where subnormals are flushed
    autocast      under autocast, outputs differ by no more than the certificate of the rounded layer says

An exception is also a violation: no request made here may be refused.

The certificate compares attention with a convolution. A layer whose centres are anywhere is no convolution; there, two
engines are compared with each other, within a bound of their own.
"""

from __future__ import annotations

import copy
import io
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from ...convert import SelfAttention, certify, conv_from_attention
from ...convert.agreement.layers import wrong_call
from ...convert.arguments import Size
from ...convert.bounds.rounding import EXP_ULPS, gamma, unit_roundoff
from ...convert.engines import ENGINES, choose_engine
from ...convert.errors import ConversionError
from ...convert.spec import Convolution, ConvSpec
from .arithmetic import certified_arithmetic
from .case import (
    NORMAL,
    ONE_HOT,
    Case,
    Comparison,
    attention_of,
    channel_bounds,
    compare_certified,
    in_engines,
    kind_of,
    same,
    within,
    wrong,
)
from .layers import DTYPES, HALF, RandomLayer, channel_limits, may_be_wrong
from .values import (
    ANY_SIZE,
    WITHOUT_OVERFLOW,
    cotangent,
    drawn_convolution,
    extreme_convolution,
    extreme_inputs,
    images,
    move_heads,
    perhaps_flushed,
)

ANYWHERE = "heads anywhere"
_PARTS = 8  # about the number of parts in which the literal engine computes an output


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
        checks: Names out of ``CHECKS``; None means all.
        device: Where to compute.

    Returns:
        The comparisons of all checks; an exception is one that does not hold.
    """
    found, raised = list[Comparison](), list[Comparison]()
    case = Case(layer, engines, torch.device(device))
    with certified_arithmetic(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Using padding='same' with even kernel")
        for name in CHECKS if checks is None else checks:
            try:
                found.extend(replace(made, check=name) for made in CHECKS[name](case))
            except Exception as error:
                raised.append(replace(wrong("any", f"raises {type(error).__name__}: {error}"), check=name))
        if not all(made.holds for made in found) and (fault := _wrong_call(case)) is not None:
            found = [made if made.holds else replace(made, what=f"{made.what}; {fault}") for made in found]
    return found + raised


@torch.no_grad()
def _wrong_call(case: Case) -> str | None:
    """A sentence that the convolution's own call is wrong on normal numbers; None if not, or without a certificate."""
    conv, x = case.conv, case.images
    try:
        allowed = certify(attention_of(conv), input_range=channel_limits(x)).rounding_convolution
    except ConversionError:
        return None
    return wrong_call(conv, (x,), {}, conv(x), allowed)


@torch.no_grad()
def check_integers(case: Case) -> Iterator[Comparison]:
    """Outputs on integers are equal: nothing rounds, whatever the order of the sums."""
    layer, engines = case.layer, case.engines
    conv, x = drawn_convolution(layer, case.device, integers=True), images(layer, case.device, integers=True)
    exact, attention = copy.deepcopy(conv).double(), attention_of(conv)
    expected = exact(x.double()).to(x.dtype)
    wider = torch.cat([x, x[..., -1:]], dim=-1)  # the last column once more
    larger = exact(wider.double()).to(x.dtype)
    other: torch.dtype = getattr(torch, layer.choose("other precision", DTYPES))
    made_elsewhere = attention_of(copy.deepcopy(conv).to(other)).to(conv.weight.dtype)
    for one in in_engines(attention, engines):
        yield same(ONE_HOT, f"output, {one.engine}", one(x), expected)
        yield same(ONE_HOT, f"output of a larger input, {one.engine}", one(wider), larger)
    for one in in_engines(attention, engines):
        one.memory_limit = _limit_for_parts(layer, one)
        yield same(ONE_HOT, f"output in parts, {one.engine}", one(x), expected)
    for one in in_engines(made_elsewhere, engines):
        yield same(ONE_HOT, f"output after a change of precision, {one.engine}", one(x), expected)


@torch.no_grad()
def check_certificate(case: Case) -> Iterator[Comparison]:
    """Outputs on normal numbers stay within the certificate; heads anywhere agree with the literal engine."""
    for found in case.certified:
        yield from found[NORMAL]
    if case.layer.dtype != "float64":
        yield _convolution_alone(case.conv, case.images)
    if {"separable", "literal"} <= set(case.engines):
        moved = attention_of(case.conv)
        move_heads(moved, case.layer.generator("heads"))
        separable, literal = (attention(case.images) for attention in in_engines(moved, ("separable", "literal")))
        bound = torch.tensor(engines_bound(moved, case.images))
        yield within(ANYWHERE, f"{NORMAL}, separable against literal", separable, literal, bound)


@torch.no_grad()
def check_adversarial(case: Case) -> Iterator[Comparison]:
    """As the certificate's check, on inputs made to break it."""
    for found in case.certified:
        yield from itertools.chain.from_iterable(made for name, made in found.items() if name != NORMAL)


def check_gradients(case: Case) -> Iterator[Comparison]:
    """Gradients on integers are equal."""
    layer = case.layer
    conv, x = drawn_convolution(layer, case.device, integers=True), images(layer, case.device, integers=True)
    upstream = cotangent(layer, x.new_empty(layer.batch, layer.spec.out_channels, *layer.spec.output_size(layer.size)))
    exact = _gradients(copy.deepcopy(conv).double(), x.double(), upstream.double())
    expected = {name: gradient.to(x.dtype) for name, gradient in exact.items()}
    for attention in in_engines(attention_of(conv), case.engines):
        for name, gradient in _gradients(attention, x, upstream).items():
            yield same(ONE_HOT, f"gradient of {name}, {attention.engine}", gradient, expected[name])


@torch.no_grad()
def check_round_trip(case: Case) -> Iterator[Comparison]:
    """The convolution comes back, from one-hot and from soft attention; a saved layer is the same layer."""
    for attention in case.attentions:
        back, kind = conv_from_attention(attention, tolerance=math.inf), kind_of(attention)
        if ConvSpec.from_conv(back) != case.layer.spec:
            yield wrong(kind, "geometry of the convolution that came back")
        for name, parameter in case.conv.named_parameters():
            yield same(kind, f"bits of the {name}", _bits(back.get_parameter(name)), _bits(parameter))
        file = io.BytesIO()
        torch.save(attention.state_dict(), file)
        file.seek(0)
        new = type(attention)(attention.spec, device=attention.weight.device, dtype=attention.weight.dtype)
        new.load_state_dict(torch.load(file, weights_only=True))
        yield same(kind, "output of the saved layer", new(case.images), attention(case.images))


@torch.no_grad()
def check_extremes(case: Case) -> Iterator[Comparison]:
    """As the certificate's check, with numbers of every magnitude. Where a sum can overflow, the bound is infinite."""
    with perhaps_flushed(case.layer):
        conv = extreme_convolution(case.layer, case.device)
        inputs = extreme_inputs(case.layer, conv)
        for alpha in (None, case.layer.alpha):
            found = compare_certified(inputs, conv, attention_of(conv, alpha), case.engines)
            yield from (replace(made, says_nothing=math.isinf(made.bound)) for made in found[ANY_SIZE])
            yield from found[WITHOUT_OVERFLOW]


@torch.no_grad()
def check_autocast(case: Case) -> Iterator[Comparison]:
    """Under autocast, outputs stay within the certificate of the rounded layer on the rounded input."""
    layer, conv, x = case.layer, case.conv, case.images
    # The layer's own precision may be right where autocast's is not. Autocast leaves float64 alone.
    right = [name for name in HALF if layer.dtype == "float64" or not may_be_wrong(layer.spec, layer.size, name)]
    if not right:
        return
    dtype: torch.dtype = getattr(torch, layer.choose("autocast", right))
    rounded = copy.deepcopy(conv).to(layer.torch_dtype if layer.dtype == "float64" else dtype)
    limits = channel_limits(x.to(rounded.weight.dtype))
    with torch.autocast(case.device.type, dtype=dtype):
        expected = conv(x)
    for alpha, attention in zip((None, layer.alpha), case.attentions, strict=True):
        bound = channel_bounds(attention_of(rounded, alpha), limits)
        with torch.autocast(case.device.type, dtype=dtype):
            outputs = {one.engine: one(x) for one in in_engines(attention, case.engines)}
        for engine, output in outputs.items():
            yield within(kind_of(attention), f"{NORMAL}, {engine}", output, expected, bound)


CHECKS: dict[str, Callable[[Case], Iterator[Comparison]]] = {
    "integers": check_integers,
    "certificate": check_certificate,
    "adversarial": check_adversarial,
    "gradients": check_gradients,
    "round trip": check_round_trip,
    "extremes": check_extremes,
    "autocast": check_autocast,
}


def _limit_for_parts(layer: RandomLayer, attention: SelfAttention) -> int:
    """A memory limit at which an engine computes in parts, and does not refuse."""
    engine = choose_engine(attention.values(), attention.engine)

    def needed(limit: int) -> int:
        attention.memory_limit = limit
        return engine.cost(attention.values(), layer.size, batch=layer.batch).bytes

    most, least = needed(attention.memory_limit), needed(0)
    return least if engine.name != "literal" else least + (most - least) // _PARTS


def _convolution_alone(conv: Convolution, x: Tensor) -> Comparison:
    """Holds the convolution against double precision: the part of the certificate that is its rounding, by itself."""
    limits, precise = channel_limits(x), copy.deepcopy(conv).double()
    parts = (certify(attention_of(module), input_range=limits).rounding_convolution for module in (conv, precise))
    bound = torch.tensor(sum(parts))
    return within(ONE_HOT, f"{NORMAL}, convolution", conv(x).double(), precise(x.double()), bound)


def _gradients(module: nn.Module, x: Tensor, upstream: Tensor) -> dict[str, Tensor]:
    """Gradients of sum(output * upstream) for the input, the weight and the bias."""
    x = x.detach().requires_grad_()
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    found = torch.autograd.grad(module(x), [x, *trained.values()], upstream)
    return dict(zip(("input", *trained), found, strict=True))


def _bits(parameter: Tensor) -> Tensor:
    """The bytes of a tensor, so that 0 and -0 differ."""
    return parameter.detach().contiguous().view(torch.uint8)


_ROUNDED_PRODUCTS = 10  # in a score: four products, three sums, the head vector, the maximum; and one more


def engines_bound(layer: SelfAttention, x: Tensor) -> float:
    """Bounds the difference of two engines on an input [batch, in_channels, *size], over all outputs.

    Every output is a sum of at most heads * keys * channels products of a probability, a weight and an input, whose
    absolute values sum to at most max |x| times the absolute sum of the channel's weights. Relative to that,

    * sums, quotients and exponentials err by gamma_m in the precision of the probabilities;
    * a score sums products of at most alpha (2 reach)^2, where reach is the grid's diagonal and the distance of the
      centre from it, in double precision; an error s of a score makes one of e^(2 s) - 1 in a probability;
    * the output is rounded to the layer's precision.

    Underflow is added as an absolute error.
    """
    dtype, grid = layer.regime.dtype, layer.spec.padded_size(Size(*x.shape[2:]))
    keys = math.prod(grid)
    reach = math.hypot(*grid) + 2 * float(layer.centers.detach().abs().max())
    largest_score = float(layer.alpha.detach().max()) * (2 * reach) ** 2
    score = largest_score * gamma(_ROUNDED_PRODUCTS, unit_roundoff(torch.float64))
    terms = layer.num_heads * keys * x.shape[1] + 8 * EXP_ULPS + 2 * keys + 8
    relative = gamma(terms, unit_roundoff(dtype)) + 2 * math.expm1(2 * score)
    narrowing = unit_roundoff(x.dtype) * (1 + relative) if x.dtype != dtype else 0.0
    scale = x.abs().max().double() * layer.kernel.detach().double().abs().flatten(1).sum(1).max()
    if layer.bias is not None:
        scale = scale + layer.bias.detach().double().abs().max()
    underflow = terms * torch.finfo(dtype).smallest_normal + torch.finfo(x.dtype).smallest_normal
    return 2 * ((relative + narrowing) * float(scale) + underflow)
