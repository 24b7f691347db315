"""Spare heads: attention to the image beside the heads of the taps, W_out = 0 at first.

Theorem 1 asks for *at least* one head a kernel tap. So a layer may carry M more, whose output projection starts at 0:

    head_j(q) = sum_k softmax_k( (W_qry^j x_q + b^j) . (W_key^j x_k) / sqrt(D_k)  [+ v^j . r_{k-q}] ) W_val^j x_k
    added(q)  = sum_j W_out^j head_j(q),             W_out = 0 at first, and v = 0

Keys are the pixels of the unpadded input. There are two places for such heads:

    in front of the taps      output = conv(x + added)        queries are the pixels of the input
    beside the taps           output = conv(x) + added        queries are the outputs

An identity is a convolution with one tap, so heads in front are Theorem 1 once more, for the identity: with one head
that is the non-local block of Wang et al. (2018). Beside the taps they are heads of the layer itself; a query then
reads the pixel of the padded input under the kernel's middle tap.

While W_out = 0, ``added`` is 0, exactly, and so are the gradients that it sends back: output and gradients are the
convolution's, bit for bit (``proofs/claims/theorem/spare_heads.py``). In floating point this needs two things more:

* Every number of the heads is finite where the image is, since 0 times infinity is NaN. So the heads read pixels
  clamped at ``input_limit``, and compare queries and keys clamped at ``score_limit``: fused kernels compute scores a
  second time in their backward pass, and exp(score - log of the sum) overflows once the two round far apart.
* Not even the sign of a 0 changes. -0 + 0 is +0, while y - 0 keeps every bit of y: the heads' sum is negated, made a
  sum with a +0 in it, which is +0, and subtracted. Their gradient of the image is -0, which adds nothing to any number.

A bias of the keys would cancel in the softmax, and one of the values only adds a constant, so there is none.

v . r_{k-q}, with r = (|k - q|^2, k - q), differs by a constant of the query from v_0 |k|^2 + (v_a - 2 v_0 q_a) k_a:
with (v_0, v_a - 2 v_0 q_a) behind a query and (|k|^2, k_a) behind a key it is part of the one product of both. Such
scores are computed in at least float32, since bfloat16 rounds an offset of 257 to 256.

The weights are plain parameters of the layer, so that a network's own ``model.apply(init)``, which looks for linear
layers and convolutions, leaves W_out at 0.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..arguments import Size
from ..context import autocast_dtype, is_transformed, without_autocast
from ..errors import ConversionError
from ..heads.encoding import grid_points
from ..heads.regime import compute_dtype
from ..heads.values import OUT, OWN_NAMES, POSITION, SPARE_KEYS
from ..spec import ConvSpec, reversed_pads
from ..subclasses.computed import COMPUTABLE
from .positions import HeadPositions

_PUT_BACK = "_put_back"
LOOKS = "its spare heads were trained, so it looks at the image"
UNGRAFT = "ungraft(model, all=True) takes them off and says what that changes"
TRAINED_SPARE = f"{LOOKS}: {UNGRAFT}"
_WIDTH = 8  # kernels of attention without a table of all pairs want equal dimensions, multiples of this


@dataclass(frozen=True)
class SpareHeads:
    """Description of a layer's spare heads.

    Attributes:
        heads: How many, M.
        key_dim: Dimension D_k of a head's queries and keys.
        value_dim: Dimension D_v of a head's values.
        beside: Whether they stand beside the taps, at the outputs; else in front of them, at the input.
        positions: Whether scores have the quadratic relative term, too.
        in_place_of_conv: Whether the graft made the layer of a convolution, so that ``ungraft`` makes it one again.
        seed: Seed of their first weights.
    """

    heads: int
    key_dim: int
    value_dim: int
    beside: bool = False
    positions: bool = False
    in_place_of_conv: bool = True
    seed: int = 0

    def __str__(self) -> str:
        """The heads, as a table has them."""
        count = "1 spare head" if self.heads == 1 else f"{self.heads} spare heads"
        widths = f"key width {self.key_dim}, value width {self.value_dim}{', relative positions' * self.positions}"
        return f"{count} ({widths}) {'beside' if self.beside else 'before'} the convolution"


class WithSpareHeads(HeadPositions):
    """A layer of one head a tap that may have spare heads.

    Attributes:
        spare: Description of the spare heads, or None.
        spare_query: W_qry of all heads, [heads * key_dim, in_channels].
        spare_query_bias: b, [heads * key_dim].
        spare_key: W_key, [heads * key_dim, in_channels].
        spare_value: W_val, [heads * value_dim, in_channels].
        spare_out: W_out, [in_channels or, beside the taps, out_channels, heads * value_dim]; zero at first.
        spare_position: v of each head, [heads, axes + 1], zero at first; only with positions.
    """

    spare: SpareHeads | None = None
    _loads: bool = False  # a state dict, whose tensors may become the parameters
    spare_query: nn.Parameter
    spare_query_bias: nn.Parameter
    spare_key: nn.Parameter
    spare_value: nn.Parameter
    spare_out: nn.Parameter
    spare_position: nn.Parameter

    def add_spare_heads(self, spare: SpareHeads) -> None:
        """Adds spare heads, in place; while W_out = 0 the layer computes what it computed.

        Args:
            spare: What heads. A generator with their seed draws their weights, uniformly within 1 / sqrt(in_channels),
                as PyTorch's 1x1 convolutions start; the global generator is not used.

        Raises:
            ConversionError: The layer has spare heads, or is transposed and they stand beside its taps.
        """
        if self.spare is not None:
            raise ConversionError(f"the layer has {self.spare} already")
        if spare.beside and self.spec.transposed:
            raise ConversionError(TRANSPOSED)
        for name, start in self._first_weights(spare).items():
            self.register_parameter(name, nn.Parameter(start))
        self.spare = spare

    def with_first_spare_weights(self) -> Self:
        """A copy whose spare heads have the weights that they started with, and look where they did then.

        Raises:
            ConversionError: The layer has no spare heads.
        """
        if self.spare is None:
            raise ConversionError("the layer has no spare heads")
        first = copy.deepcopy(self)
        for name, start in self._first_weights(self.spare).items():
            first.get_parameter(name).data = start
        return first

    @torch.no_grad()
    def read_by_taps(self, x: Tensor) -> Tensor:
        """Input of the taps, of the layer's [batch, in_channels, *size]: with the sum that heads before them add."""
        return x if self.spare is None or self.spare.beside else x - self.negated_sum(self.spare, x, self.spec)

    def _first_weights(self, spare: SpareHeads) -> dict[str, Tensor]:
        like, bound = next(self.parameters()), self.spec.in_channels**-0.5
        generator = torch.Generator().manual_seed((spare.seed or 0) % 2**63)
        found = {}
        for name, shape in self._spare_shapes(spare).items():
            start = torch.zeros(shape, dtype=torch.float64, device="cpu")
            if name not in (OUT, POSITION):
                start.uniform_(-bound, bound, generator=generator)
            dtype = compute_dtype(like.dtype) if name == POSITION else like.dtype
            found[name] = start.to(device=like.device, dtype=dtype)
        return found

    def remove_spare_heads(self) -> None:
        """Takes the spare heads off, in place."""
        for name in SPARE_KEYS:
            self._parameters.pop(name, None)
        self.spare = None

    def spare_heads_are_off(self) -> bool:
        """Whether the layer has no spare heads, or W_out = 0 keeps them from its outputs; reads W_out.

        On the meta device W_out has no values, and is taken for trained.
        """
        return self.spare is None or not (self.spare_out.is_meta or bool(self.spare_out.any()))

    def was_put_back(self) -> bool:
        """Whether a load put trained heads back to 0, where they still are, since this was last asked."""
        return vars(self).pop(_PUT_BACK, False) and self.spare_heads_are_off()

    def spare_parameters(self) -> list[nn.Parameter]:
        """The parameters of the spare heads."""
        return [self.get_parameter(name) for name in SPARE_KEYS if name in self._parameters]

    def _spare_shapes(self, spare: SpareHeads) -> dict[str, tuple[int, ...]]:
        keys, values, channels = spare.heads * spare.key_dim, spare.heads * spare.value_dim, self.spec.in_channels
        shapes: dict[str, tuple[int, ...]] = {
            "spare_query": (keys, channels),
            "spare_query_bias": (keys,),
            "spare_key": (keys, channels),
            "spare_value": (values, channels),
            OUT: (self.spec.out_channels if spare.beside else channels, values),
        }
        if spare.positions:
            shapes[POSITION] = (spare.heads, self.spec.axes + 1)
        return shapes

    def negated_sum(self, spare: SpareHeads, x: Tensor, spec: ConvSpec) -> Tensor:
        """The negative of what the spare heads add; +0 in every bit while W_out = 0 and x is finite.

        Args:
            spare: The heads.
            x: The unpadded input, [batch, in_channels, *size].
            spec: The geometry of this call.

        Returns:
            [batch, in_channels, *size], beside the taps [batch, out_channels, *output size].
        """
        size = Size(*x.shape[2:])
        pixels = _clamped_pixels(x)
        queries, output = pixels, x.shape[2:]
        if spare.beside:
            middle = _under_the_middle(spec, torch.unflatten(pixels.transpose(1, 2), 2, x.shape[2:]))
            queries, output = middle.flatten(2).transpose(1, 2), middle.shape[2:]
        most = score_limit(spare.key_dim, x.dtype)
        asked = F.hardtanh_(F.linear(queries, self.spare_query, self.spare_query_bias), -most, most)
        shown = F.hardtanh_(F.linear(pixels, self.spare_key), -most, most)
        values = F.linear(pixels, self.spare_value)
        asked, shown, values = (_by_head(each, spare.heads) for each in (asked, shown, values))
        if spare.positions:
            grid = _query_points(spec, size, x.device) if spare.beside else None
            with without_autocast(x.device):
                read = self._attend_by_place(spare, asked, shown, values, size, grid).to(values.dtype)
        else:
            read = _attend(asked, shown, values, scale=spare.key_dim**-0.5)
        nothing = self.spare_out.new_zeros(len(self.spare_out))
        negated = F.linear(read.transpose(1, 2).flatten(2), -self.spare_out, nothing)
        return torch.unflatten(negated.transpose(1, 2), 2, output)

    def _attend_by_place(
        self, spare: SpareHeads, asked: Tensor, shown: Tensor, values: Tensor, size: Size, grid: Tensor | None
    ) -> Tensor:
        """Attention whose scores have the quadratic term, in at least float32."""
        asked, shown = self._placed(spare, asked, shown, size, grid)
        return _attend(asked, shown, values.to(asked.dtype), scale=1.0)

    def _placed(
        self, spare: SpareHeads, asked: Tensor, shown: Tensor, size: Size, grid: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys with their places behind them, [batch, heads, number, D], of which scores are the products.

        Args:
            spare: The heads.
            asked: Queries.
            shown: Keys.
            size: Of the unpadded input.
            grid: Places of the queries on it, [num_queries, axes]; None for all its pixels.
        """
        v = self.spare_position.to(compute_dtype(self.spare_position.dtype))
        middle = torch.tensor([(length - 1) / 2 for length in size], dtype=v.dtype, device=v.device)
        keys = grid_points(*(torch.arange(n, dtype=v.dtype, device=v.device) for n in size)) - middle
        places = keys if grid is None else grid.to(v.dtype) - middle
        behind_keys = torch.cat([keys.square().sum(1, keepdim=True), keys], 1)
        slopes = v[:, None, 1:] - 2 * v[:, None, :1] * places
        behind_queries = torch.cat([v[:, None, :1].expand(-1, places.shape[0], 1), slopes], 2)
        batch = asked.shape[0]  # which a trace may leave open, and len would not
        asked = torch.cat([asked.to(v.dtype) * spare.key_dim**-0.5, behind_queries.expand(batch, -1, -1, -1)], -1)
        shown = torch.cat([shown.to(v.dtype), behind_keys.expand(batch, spare.heads, -1, -1)], -1)
        return asked, shown

    @torch.no_grad()
    def _spare_maps(self, x: Tensor, positions: Tensor) -> Tensor:
        """Where the spare heads look, [batch, heads, num_queries, *padded size]; 0 at padding, which has no keys.

        Args:
            x: The unpadded input, [batch, in_channels, *size].
            positions: Places of the queries on the padded input, [num_queries, axes]. In front of the taps a query in
                the padding is none, and looks nowhere: zeros.
        """
        asked, shown = self.spare_products(x, positions)
        maps = (asked @ shown.transpose(-1, -2)).softmax(-1)
        spec, size = self.spec, Size(*x.shape[2:])
        if self.spare is not None and not self.spare.beside:
            maps = maps * self.are_pixels(size, positions)[:, None]
        return _on_the_padded_grid(spec, size, maps.unflatten(-1, tuple(size)))

    def are_pixels(self, size: Size, positions: Tensor) -> Tensor:
        """Whether places on the padded input, [number, axes], are pixels of the unpadded one, [number]."""
        places = _unpadded(self.spec, size, positions)
        lengths = torch.tensor(size, dtype=places.dtype, device=places.device)
        return ((places >= 0) & (places < lengths) & (places == places.round())).all(1)

    @torch.no_grad()
    def spare_products(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors of queries and of keys, whose dot products are the spare heads' scores.

        Args:
            x: The unpadded input, [batch, in_channels, *size], whose pixels are the keys.
            positions: Places of the queries on the padded input, [num_queries, axes].

        Returns:
            [batch, heads, num_queries, D] and [batch, heads, pixels, D], in at least float32.

        Raises:
            ConversionError: The layer has no spare heads.
        """
        spare, spec, size = self.spare, self.spec, Size(*x.shape[2:])
        if spare is None:
            raise ConversionError("the layer has no spare heads: graft(model) adds them")
        dtype = compute_dtype(self.spare_query.dtype)
        pixels, most = _clamped_pixels(x).to(dtype), score_limit(spare.key_dim, dtype)
        places_of_queries: tuple[Any, ...] = tuple(positions.long().T)
        padded = spec.pad(torch.unflatten(pixels.transpose(1, 2), 2, x.shape[2:]))
        queries = padded[(..., *places_of_queries)].transpose(1, 2)
        asked = F.linear(queries, self.spare_query.to(dtype), self.spare_query_bias.to(dtype))
        asked, shown = (each.clamp(-most, most) for each in (asked, F.linear(pixels, self.spare_key.to(dtype))))
        asked, shown = _by_head(asked, spare.heads), _by_head(shown, spare.heads)
        if spare.positions:
            return self._placed(spare, asked, shown, size, _unpadded(spec, size, positions))
        return asked * spare.key_dim**-0.5, shown

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As ``nn.Module``'s, which assigning a parameter calls.

        Raises:
            ConversionError: A new weight or bias, as ``fuse_conv_bn_eval`` makes them, would leave trained heads beside
                the taps as they are; heads in front of them are scaled with the rest.
        """
        is_new = name in COMPUTABLE and self._parameters.get(OUT) is not None and not self._loads
        if is_new and self.spare is not None and self.spare.beside and not self.spare_heads_are_off():
            raise ConversionError(f"a new {name}, as of a folded batch norm, would leave heads out: {TRAINED_SPARE}")
        super().register_parameter(name, param)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """As ``nn.Module``'s; the state dict of the CNN, without anything of attention, puts W_out back to 0.

        On the meta device there are no other weights of the heads that could stay, so the CNN's file lacks theirs.
        """
        own = {key[len(prefix) :] for key in state_dict if key.startswith(prefix)}
        added = {"alpha", *OWN_NAMES}
        if self.spare is not None and own and not own & added and not self.spare_out.is_meta:
            kept: dict[str, Tensor] = {}
            self._save_to_state_dict(kept, "", keep_vars=False)
            kept[OUT] = torch.zeros_like(kept[OUT])
            state_dict = {**state_dict, **{prefix + name: kept[name].clone() for name in kept.keys() & added}}
            if not self.spare_heads_are_off():
                vars(self)[_PUT_BACK] = True
        rest = (local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        self._loads = True
        try:
            super()._load_from_state_dict(state_dict, prefix, *rest)
        finally:
            del self._loads


TRANSPOSED = (
    "spare heads beside the taps of a transposed convolution would have queries where the input has no pixel: beside="
    "False puts them in front"
)


def input_limit(channels: int, dtype: torch.dtype) -> float:
    """Where the heads clamp pixels of this many channels: a power of two.

    W x + b, with the first weights within 1 / sqrt(channels), is at most half the dtype's largest number then, and sums
    of as many values as the root of the largest number that sums are kept in are finite.

    Args:
        channels: The pixels' channels.
        dtype: Precision of the projections, autocast's under autocast.
    """
    summed, held = torch.finfo(compute_dtype(dtype)).max, torch.finfo(dtype).max
    return _power_of_two(min(summed**0.5, held / (2 * channels**0.5)))


def score_limit(key_dim: int, dtype: torch.dtype) -> float:
    """Where queries and keys are clamped: a power of two, 2048 up to width 10 and 256 at width 128 in single precision.

    With numbers up to L, scores and all their terms are at most sqrt(D) L^2. A score that is computed twice, whatever
    the order of its sum, and the logarithm of the sum of exponentials, differ by at most 2 (D + 4) eps of that; with L
    as here this is half the logarithm of the largest number at most, so the exponential of the difference is finite.

    Args:
        key_dim: Dimension D of queries and keys.
        dtype: Their precision; products of half precision are summed in single.
    """
    summed = torch.finfo(compute_dtype(dtype))
    return _power_of_two((math.log(summed.max) / 2 / (2 * (key_dim + 4) * summed.eps * key_dim**0.5)) ** 0.5)


def _power_of_two(most: float) -> float:
    """The largest power of two up to a number, which every dtype holds."""
    return float(2.0 ** (math.frexp(most)[1] - 1))


class _Clamped(torch.autograd.Function):
    """A clamp whose gradient has -0 for every 0: a sum keeps its bits when -0 is added, and not those of -0 for +0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, most: float) -> Tensor:
        """Clamps [batch, pixels, channels], and lays out pixel by pixel."""
        ctx.most, clamped = most, torch.clamp(x, -most, most, out=x.new_empty(x.shape))
        ctx.save_for_backward(clamped)
        return clamped

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        """The gradient where the clamp is the identity, and -0 for every 0."""
        (clamped,) = ctx.saved_tensors
        inside = torch.ops.aten.hardtanh_backward(slope, clamped, -ctx.most, ctx.most)
        return -(0.0 - inside), None


def _clamped_pixels(x: Tensor) -> Tensor:
    """Pixels of [batch, channels, *size] as the heads read them: [batch, pixels, channels], within ``input_limit``.

    In a trace or a transform, where zeros keep no sign, the gradient is an ordinary clamp's.
    """
    computed = autocast_dtype(x.device)
    most = input_limit(x.shape[1], x.dtype if computed is None or x.dtype == torch.float64 else computed)
    pixels = x.flatten(2).transpose(1, 2)
    if is_transformed():
        return F.hardtanh(pixels, -most, most).contiguous()
    clamped: Tensor = _Clamped.apply(pixels, most)  # type: ignore[no-untyped-call]
    return clamped


def _by_head(vectors: Tensor, heads: int) -> Tensor:
    return torch.unflatten(vectors, -1, (heads, -1)).transpose(1, 2)


def _attend(asked: Tensor, shown: Tensor, values: Tensor, *, scale: float) -> Tensor:
    """One call of attention over all keys, [batch, heads, num_queries, value_dim]."""
    width = max(asked.shape[-1], values.shape[-1])
    width += -width % _WIDTH
    q, k, v = (_widened(each, width) for each in (asked, shown, values))
    return F.scaled_dot_product_attention(q, k, v, scale=scale)[..., : values.shape[-1]]


def _widened(vectors: Tensor, width: int) -> Tensor:
    """Vectors with zeros behind, if they are narrower; a pad by nothing would copy them."""
    return vectors if vectors.shape[-1] == width else F.pad(vectors, (0, width - vectors.shape[-1]))


def _under_the_middle(spec: ConvSpec, x: Tensor) -> Tensor:
    """The pixel of the padded input under the kernel's middle tap, for each output, [batch, channels, *output size].

    An input of open size, in a trace, keeps it open: both ends are numbers.
    """
    along = zip(spec.middle, spec.reach, spec.query_stride, strict=True)
    places: tuple[Any, ...] = tuple(slice(m, (m - reach) or None, step) for m, reach, step in along)
    return spec.pad(x)[(..., *places)]


def _query_points(spec: ConvSpec, size: Size, device: torch.device) -> Tensor:
    """Places of the outputs' queries on the unpadded input, [num_queries, axes]."""
    along = zip(spec.middle, spec.query_stride, spec.output_size(size), spec.pads_at(size), strict=True)
    return grid_points(*(torch.arange(n, device=device) * step + (m - pads[0]) for m, step, n, pads in along))


def _unpadded(spec: ConvSpec, size: Size, positions: Tensor) -> Tensor:
    """Places on the padded input as places on the unpadded one; between pixels where the input is stuffed."""
    before = torch.tensor([pads[0] for pads in spec.pads_at(size)], dtype=positions.dtype, device=positions.device)
    return (positions - before) / torch.tensor(spec.stuffing, dtype=positions.dtype, device=positions.device)


def _on_the_padded_grid(spec: ConvSpec, size: Sequence[int], maps: Tensor) -> Tensor:
    """Maps over the unpadded input, [..., *size], as maps over the padded one, zeros between, [..., *padded size]."""
    stuffed = [(length - 1) * step + 1 for length, step in zip(size, spec.stuffing, strict=True)]
    full = maps.new_zeros(*maps.shape[: -spec.axes], *stuffed)
    places: tuple[Any, ...] = tuple(slice(None, None, step) for step in spec.stuffing)
    full[(..., *places)] = maps
    return F.pad(full, reversed_pads(spec.pads_at(Size(*size))))
