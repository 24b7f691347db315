"""SelfAttention2d: multi-head self-attention over the pixels of an image, with relative positions.

``SelfAttention1d`` and ``SelfAttention3d`` are the same over sequences and volumes; ``SelfAttention`` is all of them.

Head h plays one kernel tap. It attends around its centre Delta_h, as sharply as alpha_h says, and carries the
tap's slice W_Delta of the kernel as its value projection:

    output[q] = bias + sum_h W_Delta_h . sum_k softmax_k(r_{k-q} . v_h) x_k

over the pixels k of the padded input. ``encoding.py`` derives the scores, ``engines/`` computes the layer. Its
positions rest: they are numbers, which ``set_positions`` sets and no call reads from a tensor. A layer learns where to
look, in place, from ``train_positions``, ``add_content`` or ``set_axis_scores`` on; ``learn.melt`` does it to a whole
network. Its weight and bias stay the very parameters that they were, and so do its hooks and parametrisations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, overload

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.module import _has_any_global_hook

from ..arguments import Size, as_heads, as_integer, as_queries, as_size, as_tensor, format_bytes
from ..context import autocast_dtype, is_scripted, is_traced, is_transformed, refuse_script, rounded, without_autocast
from ..engines import AUTO, ENGINES, check_engine_name, choose_engine
from ..engines.convolution import own_call
from ..engines.literal import all_queries, attention_maps
from ..errors import ConversionError, GeometryError
from ..heads.content import AXES, AxisScores, ContentTerms
from ..heads.encoding import encoding_dim, head_vectors
from ..heads.regime import Regime, compute_dtype
from ..heads.values import LayerValues
from ..spec import ConvSpec, batch_shape
from ..subclasses.computed import in_eval_mode
from .checked import checked_model
from .positions import TRAINED
from .spare import TRAINED_SPARE, SpareHeads, WithSpareHeads

DEFAULT_MEMORY_LIMIT = 2**30  # bytes
_CONVOLVES = (AUTO, "factored")  # engines that make the convolution's own call where attention is one-hot


class SelfAttention(WithSpareHeads):
    """A multi-head self-attention layer with a quadratic relative positional encoding (Theorem 1).

    ``attention_from_conv`` makes one from a convolution. Its parameters are the convolution's; its positions, three
    numbers a head, are no parameters before ``train_positions``.

    Args:
        spec: Geometry: channels, one head for each kernel tap, padding, stride between queries.
        weight: The value projections, as under Attributes; None draws new ones, and a new bias.
        bias: The output bias; only with ``weight``.
        alpha: Sharpness of all heads; None means so large that attention is exactly one-hot, in whatever
            precision the layer is converted to later.
        engine: How the layer is computed: "auto", "literal", "sdpa", "separable" or "factored".
        memory_limit: Bytes that an engine may hold beside the input, the output and the parameters.
        device: Where new parameters live.
        dtype: Their precision: float64, float32, bfloat16 or float16.

    Attributes:
        weight: The value projections, as the convolution holds them (``ConvSpec.weight_shape``): head h, at kernel tap
            (m, n), has W_val^(h) = kernel[:, :, m, n], block diagonal in the groups.
        bias: Bias of the output projection, [out_channels], or None.
        content: The content terms of the scores, or None.
        axis_scores: Learned tables in place of the quadratic scores, or None.
        memory_limit: As above; may be changed at any time.

    Raises:
        ConversionError: alpha is not positive and finite, or there is no such engine.

    Examples:
        >>> layer = c2a.attention_from_conv(torch.nn.Conv2d(3, 8, kernel_size=3, stride=2))
        >>> layer.num_heads, layer.alpha[0].item()
        (9, 128.0)
        >>> layer.attention_probabilities((5, 5), queries=[(0, 0)]).shape  # heads, queries, keys by row and column
        torch.Size([9, 1, 5, 5])
    """

    axes: ClassVar[int | None] = None  # of a subclass
    bias: nn.Parameter | None
    content: ContentTerms | None
    axis_scores: AxisScores | None

    def __init__(
        self,
        spec: ConvSpec,
        *,
        weight: nn.Parameter | None = None,
        bias: nn.Parameter | None = None,
        alpha: float | None = None,
        engine: str = AUTO,
        memory_limit: int = DEFAULT_MEMORY_LIMIT,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(spec, ConvSpec):
            raise ConversionError(f"spec must be a ConvSpec, as ConvSpec.from_conv makes it; got {type(spec).__name__}")
        if self.axes is not None and spec.axes != self.axes:
            raise ConversionError(f"{type(self).__name__} has {self.axes} axes; the kernel has {spec.axes}: {spec}")
        self.spec = spec
        self.engine = engine
        self.memory_limit = memory_limit
        self.content = None
        self.axis_scores = None
        if weight is None:
            weight = nn.Parameter(torch.empty(spec.weight_shape, device=device, dtype=dtype))
            bias = nn.Parameter(weight.new_empty(spec.out_channels)) if spec.bias else None
            # as a new nn.Conv2d draws them
            nn.init.kaiming_uniform_(weight, a=5**0.5)
            if bias is not None:
                bound = weight[0].numel() ** -0.5
                nn.init.uniform_(bias, -bound, bound)
        self.weight = weight
        self.register_parameter("bias", bias)
        self._rest_at_taps(alpha, compute_dtype(weight.dtype))

    @property
    def engine(self) -> str:
        """How the layer is computed; "auto" takes the fastest engine that is exact for its parameters."""
        return self._engine

    @engine.setter
    def engine(self, name: str) -> None:
        self._engine = check_engine_name(name)

    @property
    def num_heads(self) -> int:
        """One head for each kernel tap."""
        return self.spec.num_heads

    @property
    def kernel(self) -> Tensor:
        """The value projections of all heads, [out_channels, in_channels / groups, *kernel_size]: head by tap."""
        return self.spec.kernel(self.weight)

    # Code around a convolution reads these of it, so its replacement answers too.
    in_channels = property(lambda self: self.spec.in_channels)
    out_channels = property(lambda self: self.spec.out_channels)
    kernel_size = property(lambda self: self.spec.kernel_size)
    stride = property(lambda self: self.spec.stride)
    padding = property(lambda self: self.spec.padding)
    dilation = property(lambda self: self.spec.dilation)
    padding_mode = property(lambda self: self.spec.padding_mode)
    transposed = property(lambda self: self.spec.transposed)
    output_padding = property(lambda self: self.spec.output_padding)

    @property
    def groups(self) -> int:
        """The convolution's groups, which a layer with trained spare heads has not: an output reads every channel.

        Code that makes a new convolution of a layer, as folding does, asks for them; other code hardly does.

        Raises:
            ConversionError: Its spare heads were trained.
        """
        if not self.spare_heads_are_off():
            raise ConversionError(f"no convolution with groups takes the layer's place: {TRAINED_SPARE}")
        return self.spec.groups

    @overload
    def forward(
        self, input: Tensor, output_size: Sequence[int] | None = ..., *, need_weights: Literal[False] = ...
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        input: Tensor,
        output_size: Sequence[int] | None = ...,
        *,
        need_weights: Literal[True],
        average_attn_weights: bool = ...,
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        input: Tensor,
        output_size: Sequence[int] | None = None,
        *,
        need_weights: bool = False,
        average_attn_weights: bool = True,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Computes the layer.

        Args:
            input: [batch, in_channels, *size], of an image [batch, in_channels, rows, columns], or without the batch
                dimension; any size that the convolution accepts, with finite values.
            output_size: Of a transposed convolution, the size of its output, as its class takes it; it chooses the
                output padding.
            need_weights: Whether to return the attention probabilities too, as ``nn.MultiheadAttention`` does; those of
                the taps' heads (``attention_probabilities`` has those of spare heads).
            average_attn_weights: Whether these are averaged over the heads.

        Returns:
            [batch, out_channels, *output size]; under ``torch.autocast`` in autocast's dtype, as a convolution's
            (``context.py``). With need_weights a pair, of this and the probabilities in at least float32: averaged
            [batch, queries, keys], else [batch, num_heads, queries, keys]; queries are the output's pixels, and keys
            those of the padded input, both row by row.

        Raises:
            ConversionError: The input's shape or dtype does not fit, the engine cannot compute it, or the weights are
                larger than ``memory_limit``.
        """
        if not isinstance(input, Tensor):
            return self._forward_other(input, need_weights=need_weights)
        if is_scripted():
            refuse_script()
        spec = self.spec
        if output_size is not None:
            spec = spec.with_output_size(input.shape[input.ndim - spec.axes :], output_size)
        weights = average_attn_weights if need_weights else None
        if self.spare is not None:
            return self._with_spare_heads(self.spare, input, spec, weights)
        return self._taps(input, spec, weights)

    def _taps(self, input: Tensor, spec: ConvSpec, average: bool | None) -> Tensor | tuple[Tensor, Tensor]:
        """The layer without spare heads; ``average`` as ``forward``'s, None where no weights are wanted."""
        if average is None and self._is_convolution():
            return self._convolve(input, spec)
        values = self._values(spec)  # under autocast, as a convolution reads a weight that is computed
        if not is_traced():
            self._check_input(input, spec, values.weight.dtype)
            spec.output_size(Size(*input.shape[input.ndim - spec.axes :]))
        images = input.unsqueeze(0) if input.ndim == spec.axes + 1 else input
        dtype = autocast_dtype(input.device)
        with without_autocast(input.device):
            if dtype is not None:
                images, values = rounded(images, dtype), values.rounded(dtype)
            results = [choose_engine(values, self._engine).attend(values, images)]
            if average is not None:
                results.append(_attention_weights(values, images, average=average))
        if input.ndim == spec.axes + 1:
            results = [result.squeeze(0) for result in results]
        return results[0] if average is None else (results[0], results[1])

    def _with_spare_heads(
        self, spare: SpareHeads, x: Tensor, spec: ConvSpec, average: bool | None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The layer with spare heads. Each difference has the CNN's summand first, and its bits, dtype and strides.

        The heads are computed before the taps also where they stand beside them: then the gradient of the taps is the
        first of the input's, and gives the sum of both its strides. A weight that is computed is left to the taps.
        """
        if not is_traced():
            self._check_input(x, spec, self.spare_query.dtype)
            if spare.beside:
                spec.output_size(Size(*x.shape[x.ndim - spec.axes :]))
        is_single = x.ndim == spec.axes + 1
        negated = self.negated_sum(spare, x.unsqueeze(0) if is_single else x, spec)
        negated = negated.squeeze(0) if is_single else negated
        if not spare.beside:
            return self._taps(_minus(x, negated), spec, average)
        result = self._taps(x, spec, average)
        if isinstance(result, tuple):
            return _minus(result[0], negated), result[1]
        return _minus(result, negated)

    def _is_convolution(self) -> bool:
        """Whether what is left of the layer is the convolution's own call."""
        at_rest = self.content is None and self.axis_scores is None and TRAINED not in self._parameters
        return at_rest and self._regime.is_exact and self._engine in _CONVOLVES

    def _convolve(self, x: Tensor, spec: ConvSpec) -> Tensor:
        weight, bias = self.weight, self.bias
        if is_traced():
            return own_call(spec, x, weight, bias)
        try:
            return own_call(spec, x, weight, bias)
        except (RuntimeError, GeometryError):
            self._check_input(x, spec, weight.dtype)
            spec.output_size(Size(*x.shape[x.ndim - spec.axes :]))
            raise

    def _check_input(self, x: Tensor, spec: ConvSpec, dtype: torch.dtype) -> None:
        """Refuses an input whose shape or dtype a convolution of this dtype does not take, whatever its size."""
        if x.ndim - spec.axes not in (1, 2) or x.shape[x.ndim - spec.axes - 1] != spec.in_channels:
            raise GeometryError(f"input must be {batch_shape(spec)}; got {list(x.shape)}")
        if x.dtype != dtype and autocast_dtype(x.device) is None:
            raise ConversionError(f"input must have the layer's dtype {dtype}; got {x.dtype}")

    def _values(self, spec: ConvSpec) -> LayerValues:
        """The layer during one call, with the geometry of this call; positions that are trained are not read.

        A weight that is computed is read once, as a convolution's call reads it: it may draw numbers, or have a state.
        """
        weight, bias, trained, regime = self.weight, self.bias, None, self._regime
        if self.trains_positions:
            trained, regime = self._trained(), Regime.unread(spec, compute_dtype(weight.dtype))
        parts = trained, self.content, self.axis_scores
        return LayerValues(spec, weight, bias, regime, self.memory_limit, *parts)

    def values(self) -> LayerValues:
        """The layer as it is now, with its positions read: what engines and certificates take.

        Raises:
            ConversionError: Its spare heads were trained, which no engine and no bound knows of.
        """
        if not self.spare_heads_are_off():
            raise ConversionError(f"no engine or certificate describes the whole layer: {TRAINED_SPARE}")
        return self._tap_values()

    def _tap_values(self) -> LayerValues:
        """As ``values``, of the taps alone; a weight that is computed is that of eval mode, and its state stays."""
        with in_eval_mode(self):
            return self._values(self.spec)._replace(regime=self.regime)

    def _forward_other(self, x: Any, *, need_weights: bool) -> Any:
        """Handles an input that is not a tensor: traces the proxy of torch.fx, and refuses anything else."""
        if isinstance(x, fx.Proxy) and (isinstance(need_weights, fx.Proxy) or not need_weights):
            return _one_call(self, x)
        return as_tensor(x, "input")  # which it is not

    def __prepare_scriptable__(self) -> Self:
        """Refuses ``torch.jit.script``, which calls this."""
        refuse_script()

    def head_vectors(self) -> Tensor:
        """v_h = -alpha_h (1, -2 Delta_h1, -2 Delta_h2), [num_heads, axes + 1]."""
        values = self._tap_values()
        return head_vectors(values.alpha, values.centers)

    def attention_probabilities(
        self,
        size: Sequence[int],
        *,
        heads: Sequence[int] | None = None,
        queries: Sequence[Sequence[int]] | None = None,
        x: Tensor | None = None,
    ) -> Tensor:
        """Where each head looks from each query: the maps that the paper's figures show.

        Args:
            size: Size of an input, of an image rows and columns, without padding.
            heads: Heads to return, by default those of the taps; head m * kernel columns + n plays tap (m, n). From
                ``num_heads`` on the numbers are those of spare heads, whose query is the pixel under the middle tap.
            queries: Output pixels (row, column) to return, by default all, row by row.
            x: The input [batch, in_channels, *size]; only content terms and spare heads need it.

        Returns:
            [heads, queries, *padded size], a probability distribution over the padded input for every head and query;
            with content terms or spare heads, a batch dimension in front. Spare heads in front of the taps have no
            query in the padding: zeros.

        Raises:
            ConversionError: A head or a query that does not exist, or maps larger than ``memory_limit``.
        """
        size = as_size(size, self.spec.axes)
        output, padded_size = self.spec.output_size(size), self.spec.padded_size(size)
        spares = 0 if self.spare is None else self.spare.heads
        head_numbers = as_heads(range(self.num_heads) if heads is None else heads, self.num_heads + spares)
        query_numbers = as_queries(queries, output)
        if x is not None and as_tensor(x, "x").shape[1:] != (self.spec.in_channels, *size):
            wanted = ", ".join(map(str, (self.spec.in_channels, *size)))
            raise GeometryError(f"x must be [batch, {wanted}]; got {list(x.shape)}")
        values = self._tap_values()
        positions = all_queries(self.spec, size, like=values.weight)[query_numbers]
        with without_autocast(values.weight.device):
            maps = attention_maps(values, size, positions, None if x is None else self.spec.pad(x))
            if any(number >= self.num_heads for number in head_numbers):
                if x is None:
                    raise ConversionError("spare heads look at the image: x= gives it")
                spare = self._spare_maps(x, positions).flatten(3).transpose(1, 2)
                maps = torch.cat([maps.expand(len(spare), *maps.shape[-3:]).to(spare.dtype), spare], 2)
        return torch.unflatten(maps[..., head_numbers, :].transpose(-3, -2), -1, tuple(padded_size))

    def add_content(self, key_dim: int) -> ContentTerms:
        """Adds the content terms (a), (b) and (c), in place.

        What it computes does not change: the terms share one softmax with the positions, as eq. (7) has it, and W_qry
        and u start at zero, so the new scores are zero until training changes them
        (``proofs/claims/theorem/position_alone.py``). Then the layer is more than a convolution.

        Args:
            key_dim: Dimension D_k in which queries and keys are compared.

        Raises:
            ConversionError: key_dim is not a positive integer.
        """
        like = self._tap_values().weight
        self.content = ContentTerms(
            self.num_heads,
            self.spec.in_channels,
            key_dim=as_integer(key_dim, "key_dim", least=1),
            encoding_dim=encoding_dim(self.spec.axes),
            device=like.device,
            dtype=like.dtype,
        )
        return self.content

    def set_axis_scores(self, *tables: Tensor) -> AxisScores:
        """Replaces the quadratic scores by learned tables, in place.

        ``alpha`` and ``centers`` are not used from then on.

        Args:
            *tables: For each axis, rows, then columns, scores of the offsets -(n - 1), ..., n - 1 along it,
                [num_heads, 2 n - 1], for padded inputs of up to n pixels along it.

        Raises:
            GeometryError: The tables have other shapes, or are not one for each axis.
        """
        for name, table in zip(AXES[-self.spec.axes :], tables, strict=False):
            if as_tensor(table, name).ndim == 0 or len(table) != self.num_heads:
                raise GeometryError(f"score tables must have {self.num_heads} heads; got {list(table.shape)}")
        if len(tables) != self.spec.axes:
            raise GeometryError(f"there must be a score table for each of {self.spec.axes} axes; got {len(tables)}")
        like = self._tap_values().weight
        self.axis_scores = AxisScores(*(table.to(like) for table in tables))
        return self.axis_scores

    def explain(self, size: Sequence[int], *, batch: int = 1) -> str:
        """Which engine computes inputs of this size, why, and what each engine costs in FLOPs and bytes."""
        size, batch = as_size(size, self.spec.axes), as_integer(batch, "batch", least=1)
        values = self._tap_values()
        chosen = choose_engine(values, self.engine)
        why = "asked for" if self.engine != AUTO else "the fastest that is exact for these parameters"
        lines = [f"{chosen.name}: {why}, for input {size}, batch {batch}"]
        for name, engine in ENGINES.items():
            cost, reason = engine.cost(values, size, batch=batch), engine.refusal(values)
            verdict = "exact" if reason is None else f"refuses: {reason}"
            lines.append(f"  {name:9} {cost.flops:.3g} FLOPs, {format_bytes(cost.bytes)}: {verdict}; {engine.summary}")
        if self.spare is not None:
            lines.append(f"  {self.spare}: every pixel looks at all {math.prod(size):,}, by one call of attention")
        return "\n".join(lines)

    def extra_repr(self) -> str:
        """The geometry, the heads, alpha and the engine, as ``print(model)`` shows them."""
        alpha = " to ".join(f"{end:g}" for end in sorted({min(self.regime.alpha), max(self.regime.alpha)}))
        spare = "" if self.spare is None else f", {self.spare}"
        return f"{self.spec}, heads={self.num_heads}, alpha={alpha}, engine={self.engine}{spare}"


class SelfAttention1d(SelfAttention):
    """``SelfAttention`` over sequences, [batch, in_channels, length]."""

    axes = 1


class SelfAttention2d(SelfAttention):
    """``SelfAttention`` over images, [batch, in_channels, rows, columns]."""

    axes = 2


class SelfAttention3d(SelfAttention):
    """``SelfAttention`` over volumes or films, [batch, in_channels, planes, rows, columns]."""

    axes = 3


LAYERS: dict[int, type[SelfAttention]] = {1: SelfAttention1d, 2: SelfAttention2d, 3: SelfAttention3d}


def _minus(x: Tensor, negated: Tensor) -> Tensor:
    """The difference, in the dtype and with the strides of x; of +0 it has the bits of x."""
    total = x - negated.to(x.dtype)
    if is_transformed() or total.stride() == x.stride():
        return total
    return x.clone().sub_(negated)  # a new tensor chooses strides for axes of one pixel or channel


def _attention_weights(values: LayerValues, x: Tensor, *, average: bool) -> Tensor:
    """The probabilities behind ``forward(x, need_weights=True)``; its docstring has the shapes."""
    size = Size(*x.shape[2:])
    padded = None if values.content is None else values.spec.pad(x)
    maps = attention_maps(values, size, all_queries(values.spec, size, like=x), padded).transpose(-3, -2)
    if average:
        maps = maps.mean(-3)
    return maps.expand(len(x), *maps.shape) if padded is None else maps


def _one_call(layer: nn.Module, x: fx.Proxy) -> fx.Proxy:
    """Puts a layer into the graph of ``torch.fx.symbolic_trace`` as one call, as torch's own layers are.

    The tracer has already traced the layer's forward hooks, if it has any; then only its ``forward`` is called, so that
    they do not run twice.

    Raises:
        ConversionError: The layer is itself the root that is traced.
    """
    path = x.tracer.path_of_module(layer)  # type: ignore[attr-defined]
    if not path:
        raise ConversionError("torch.fx traces this layer as one call inside a network: wrap it in nn.Sequential")
    if layer._forward_hooks or layer._forward_pre_hooks or _has_any_global_hook():
        return x.tracer.create_proxy("call_method", "forward", (x.tracer.create_proxy("get_attr", path, (), {}), x), {})
    return x.tracer.create_proxy("call_module", path, (x,), {})


def set_engine(model: nn.Module, engine: str) -> None:
    """Makes every self-attention layer of a model compute with this engine.

    Raises:
        EngineError: There is no such engine.
        ConversionError: The model is not an ``nn.Module`` in Python.

    Examples:
        >>> model, _ = c2a.convert_model(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()))
        >>> c2a.set_engine(model, "literal")
        >>> model[0].engine
        'literal'
    """
    check_engine_name(engine)
    for module in checked_model(model).modules():
        if isinstance(module, SelfAttention):
            module.engine = engine
