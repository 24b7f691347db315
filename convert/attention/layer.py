"""SelfAttention2d: multi-head self-attention over the pixels of an image, with relative positions.

``SelfAttention1d`` and ``SelfAttention3d`` are the same over sequences and volumes; ``SelfAttention`` is all of them.

Head h plays one kernel tap. It attends around its centre Delta_h, as sharply as alpha_h says, and carries the
tap's slice W_Delta of the kernel as its value projection:

    output[q] = bias + sum_h W_Delta_h . sum_k softmax_k(r_{k-q} . v_h) x_k

over the pixels k of the padded input. ``encoding.py`` derives the scores, ``engines/`` computes the layer.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self, overload

import torch
from torch import Tensor, fx, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..arguments import as_heads, as_integer, as_number, as_queries, as_size, as_tensor
from ..autocast import autocast_dtype, rounded, without_autocast
from ..engines import AUTO, ENGINES, Engine, check_engine_name, choose_engine, exact_engine
from ..engines.base import are_trained, positions_are_trained
from ..engines.literal import all_queries, attention_maps
from ..errors import ConversionError, GeometryError
from ..heads.axis_scores import AXES, AxisScores
from ..heads.content import ContentTerms
from ..heads.encoding import encoding_dim, head_vectors
from ..heads.graphs import assume_positive, assume_unchanged, one_call
from ..heads.regime import EXACT_ALPHA, SMALLEST_TRAINED_ALPHA, Regime, compute_dtype
from ..heads.regime_cache import RegimeCache
from ..heads.values import LayerValues, opened_gate
from ..size import Size, format_bytes
from ..spec import ConvSpec, batch_shape
from ..transforms import is_differentiating, is_traced, is_transformed
from .checked import checked_model

DEFAULT_MEMORY_LIMIT = 2**30  # bytes


class SelfAttention(nn.Module):
    """A multi-head self-attention layer with a quadratic relative positional encoding (Theorem 1).

    ``attention_from_conv`` makes one from a convolution. Its parameters are the convolution's, and three
    numbers a head; those three do not require gradients until ``requires_grad_`` says so.

    Args:
        spec: Geometry: channels, one head for each kernel tap, padding, stride between queries.
        weight: The value projections, as under Attributes; None draws new ones, and a new bias.
        bias: The output bias; only with ``weight``.
        alpha: Locality strength of all heads; None means so large that attention is exactly one-hot, in whatever
            precision the layer is converted to later.
        engine: How the layer is computed: "auto", "literal", "sdpa", "separable" or "factored".
        memory_limit: Bytes that the literal engine may hold at the same time.
        device: Where new parameters live.
        dtype: Their precision: float64, float32, bfloat16 or float16.

    Attributes:
        weight: The value projections, as the convolution holds them (``ConvSpec.weight_shape``): head h, at kernel tap
            (m, n), has W_val^(h) = kernel[:, :, m, n], block diagonal in the groups.
        bias: Bias of the output projection, [out_channels], or None.
        alpha: Locality strength of each head, positive, [num_heads]; one that is trained stays at least
            ``SMALLEST_TRAINED_ALPHA``. Positions are numbers about the grid, not about
            the channels: alpha and centers are float64 in a layer of float64, and float32 in any other. Where
            attention is exactly one-hot their gradients are zero; they are then None, so that an optimizer's weight
            decay does not move them. On a GPU, write to them under ``torch.no_grad()``: a change through ``.data`` is
            found by an assertion there.
        centers: Centre of each head, its offset from the query in pixels (row, column), [num_heads, axes].
        alpha_follows_dtype: Whether alpha was left to the layer, which then keeps attention one-hot in every precision.
        content: The content terms of the scores, or None, as after a conversion.
        axis_scores: Learned tables in place of the quadratic scores, or None, as after a conversion.
        memory_limit: As above; may be changed at any time.

    Raises:
        ConversionError: alpha is not positive and finite, or there is no such engine.
    """

    axes: ClassVar[int | None] = None  # of a subclass
    bias: nn.Parameter | None

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
        self.content: ContentTerms | None = None
        self.axis_scores: AxisScores | None = None
        if weight is None:
            weight = nn.Parameter(torch.empty(spec.weight_shape, device=device, dtype=dtype))
            bias = nn.Parameter(weight.new_empty(spec.out_channels)) if spec.bias else None
            _draw(weight, bias)
        self.weight = weight
        self.register_parameter("bias", bias)
        precise = compute_dtype(weight.dtype)
        alphas = weight.new_full((spec.num_heads,), check_alpha(alpha, weight.dtype), dtype=precise)
        self.alpha = nn.Parameter(alphas, requires_grad=False)
        self.centers = nn.Parameter(weight.new_tensor(spec.tap_offsets, dtype=precise), requires_grad=False)
        self.alpha_follows_dtype = alpha is None
        self._regime_cache = RegimeCache()
        self._look_at_positions()

    @property
    def engine(self) -> str:
        """How the layer is computed; "auto" takes the cheapest engine that is exact for its parameters."""
        return self._engine

    @engine.setter
    def engine(self, name: str) -> None:
        self._engine = check_engine_name(name)

    @property
    def regime(self) -> Regime:
        """What the present values of ``alpha`` and ``centers`` allow."""
        self._keep_positive()
        return self._regime_cache.get(self.spec, alpha=self.alpha, centers=self.centers)

    def _keep_positive(self) -> None:
        """Moves locality strengths that a step of training took too low, or below 0, back to the smallest.

        The layer does so whenever it reads or saves them. Their gradient there is that of the softmax, so it may lead
        back, which that of a function that is cut off would not.
        """
        if self.alpha.requires_grad and not (self.alpha.is_meta or is_transformed()):
            self.alpha.data.clamp_(min=SMALLEST_TRAINED_ALPHA)

    def _save_to_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._keep_positive()
        super()._save_to_state_dict(*args, **kwargs)

    def _look_at_positions(self) -> None:
        """Reads the regime now, because it cannot be read while the layer is traced.

        Invalid positions are reported when the layer is used. Positions without values, or with parts on other devices
        (DTensor), are read only then.
        """
        if not (self.alpha.is_meta or is_traceable_wrapper_subclass(self.alpha)):
            with contextlib.suppress(ConversionError):
                self._regime_cache.get(self.spec, alpha=self.alpha, centers=self.centers)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._look_at_positions()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.alpha.dtype
        super()._apply(self._without_narrow_positions(fn), recurse)  # type: ignore[no-untyped-call]
        if self.alpha.dtype != before and self.alpha_follows_dtype and not self.alpha.is_meta:
            with torch.no_grad():
                self.alpha.masked_fill_(self.alpha == EXACT_ALPHA[before], EXACT_ALPHA[self.alpha.dtype])
        self._look_at_positions()
        return self

    def _without_narrow_positions(self, fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """What ``.half()`` or ``.to()`` does to each parameter, but never less than float32 for positions."""
        gate = None if self.content is None else self.content.gate
        precise_ones = [parameter for parameter in (self.alpha, self.centers, gate) if parameter is not None]
        kept = {id(tensor) for one in precise_ones for tensor in (one, one.grad) if tensor is not None}

        def apply(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            precise = compute_dtype(moved.dtype)
            if id(tensor) not in kept or moved.dtype == precise:
                return moved
            return tensor.to(device=moved.device, dtype=precise)

        return apply

    def train(self, mode: bool = True) -> Self:
        """As ``nn.Module.train``; after training, positions are read anew, for a layer that is traced next."""
        super().train(mode)
        self._look_at_positions()
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._look_at_positions()

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
    groups = property(lambda self: self.spec.groups)
    padding_mode = property(lambda self: self.spec.padding_mode)
    transposed = property(lambda self: self.spec.transposed)
    output_padding = property(lambda self: self.spec.output_padding)

    @overload
    def forward(
        self, x: Tensor, output_size: Sequence[int] | None = ..., *, need_weights: Literal[False] = ...
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        output_size: Sequence[int] | None = ...,
        *,
        need_weights: Literal[True],
        average_attn_weights: bool = ...,
    ) -> tuple[Tensor, Tensor]: ...

    def forward(
        self,
        x: Tensor,
        output_size: Sequence[int] | None = None,
        *,
        need_weights: bool = False,
        average_attn_weights: bool = True,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Computes the layer.

        Args:
            x: [batch, in_channels, *size], of an image [batch, in_channels, rows, columns], or without the batch
                dimension; any size that the convolution accepts, with finite values.
            output_size: Of a transposed convolution, the size of its output, as its class takes it; it chooses the
                output padding.
            need_weights: Whether to return the attention probabilities too, as ``nn.MultiheadAttention`` does.
            average_attn_weights: Whether these are averaged over the heads.

        Returns:
            [batch, out_channels, *output size]; under ``torch.autocast`` in autocast's dtype, as a convolution's
            (``autocast.py``). With need_weights a pair, of this and the probabilities in at least float32: averaged
            [batch, queries, keys], else [batch, num_heads, queries, keys]; queries are the output's pixels, and keys
            those of the padded input, both row by row.

        Raises:
            ConversionError: The input's shape or dtype does not fit, the engine cannot compute it, or the weights are
                larger than ``memory_limit``.
        """
        if not isinstance(x, Tensor):
            return self._forward_other(x, need_weights=need_weights)
        is_single = x.ndim == self.spec.axes + 1
        images = x.unsqueeze(0) if is_single else x
        spec = self.spec if output_size is None else self.spec.with_output_size(images.shape[2:], output_size)
        average = average_attn_weights if need_weights else None
        dtype = autocast_dtype(x.device)
        if dtype is None:
            results = self._results(images, self._values()._replace(spec=spec), average)
        else:
            with torch.autocast(x.device.type, enabled=False):
                values = self._values()._replace(spec=spec).rounded(dtype)
                results = self._results(rounded(images, dtype), values, average)
        if is_single:
            results = tuple(result.squeeze(0) for result in results)
        return (results[0], results[1]) if need_weights else results[0]

    def _results(self, x: Tensor, values: LayerValues, average: bool | None) -> tuple[Tensor, ...]:
        """The output; and the attention weights, averaged over the heads or not, unless ``average`` is None."""
        output = self._attend(x, values)
        return (output,) if average is None else (output, _attention_weights(values, x, average=average))

    def _attend(self, x: Tensor, values: LayerValues) -> Tensor:
        if x.dtype != values.weight.dtype:
            raise ConversionError(f"input must have the layer's dtype {values.weight.dtype}; got {x.dtype}")
        return self._engine_for(values, x.shape).attend(values, x)

    def _forward_other(self, x: Any, *, need_weights: bool) -> Any:
        """Handles an input that is not a tensor: traces the proxy of torch.fx, and refuses anything else."""
        if isinstance(x, fx.Proxy) and (isinstance(need_weights, fx.Proxy) or not need_weights):
            return one_call(self, x)
        return as_tensor(x, "input")  # which it is not

    def __prepare_scriptable__(self) -> Self:
        """Refuses ``torch.jit.script``, which calls this."""
        raise ConversionError(
            "torch.jit.script cannot compile a self-attention layer, which chooses its engine in Python: use "
            "torch.export or torch.jit.trace, or script what restore_model gives back"
        )

    def _values(self) -> LayerValues:
        self._keep_positive()
        alpha: Tensor = self.alpha
        centers: Tensor = self.centers
        joined = self.content is not None and self.content.gate is None  # in one softmax with the positions
        if are_trained(alpha, centers):
            regime = self._regime_cache.get_in_training(self.spec, alpha=alpha, centers=centers, content=joined)
        else:
            regime = self._regime_cache.get(self.spec, alpha=alpha, centers=centers)
        trained = alpha.requires_grad or centers.requires_grad
        if trained and regime.is_exact and not joined:  # then no output changes with the positions
            alpha, centers = alpha.detach(), centers.detach()
        content = self._content_that_counts()
        return LayerValues(
            self.spec,
            self.weight,
            self.bias,
            alpha,
            centers,
            content,
            self.axis_scores,
            self.memory_limit,
            regime,
            opened_gate(content),
        )

    def _content_that_counts(self) -> ContentTerms | None:
        """The content terms, but where a closed gate is known without waiting, and nothing is to be learned of it."""
        content = self.content
        if content is None or content.gate is None or is_transformed() or not content.gate.is_cpu:
            return content
        return None if not are_trained(content.gate) and content.is_off() else content

    def _engine_for(self, values: LayerValues, shape: torch.Size) -> Engine:
        """The engine for inputs of a shape, chosen once for each."""
        scores = values.content is None, values.axis_scores is None, positions_are_trained(values), is_differentiating()
        key = self.engine, shape, values.spec.output_padding, scores
        return values.regime.remember(key, lambda: self._choose_engine(values, shape))

    def _assume_positions(self) -> None:
        """Puts a check into a traced layer: the choice of its engine holds for these positions only."""
        regime = self.regime
        if not regime.is_read:
            return  # nothing is assumed
        if self.alpha.requires_grad and not regime.is_exact:
            assume_positive(self.alpha)
        else:
            assume_unchanged(self.alpha, list(regime.alpha))
        if not self.centers.requires_grad:
            assume_unchanged(self.centers, [coordinate for center in regime.centers for coordinate in center])

    def _choose_engine(self, values: LayerValues, shape: torch.Size) -> Engine:
        """Checks the shape of an input and chooses the engine for it; in a trace, for every shape."""
        if is_traced():
            self._assume_positions()
            return exact_engine(values, self.engine)
        if len(shape) != self.spec.axes + 2 or shape[1] != self.spec.in_channels:
            raise GeometryError(f"input must be {batch_shape(self.spec)}; got {list(shape)}")
        size = Size(*shape[2:])
        values.spec.output_size(size)
        return choose_engine(values, self.engine, size, batch=shape[0])

    def head_vectors(self) -> Tensor:
        """v_h = -alpha_h (1, -2 Delta_h1, -2 Delta_h2), [num_heads, axes + 1]."""
        return head_vectors(self.alpha, self.centers)

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
            heads: Heads to return, by default all; head m * kernel columns + n plays tap (m, n).
            queries: Output pixels (row, column) to return, by default all, row by row.
            x: The input [batch, in_channels, *size]; only a layer with content terms needs it.

        Returns:
            [heads, queries, *padded size], a probability distribution over the padded input for every head and query;
            with content terms, a batch dimension in front.

        Raises:
            ConversionError: A head or a query that does not exist, or maps larger than ``memory_limit``.
        """
        size = as_size(size, self.spec.axes)
        output, padded_size = self.spec.output_size(size), self.spec.padded_size(size)
        head_numbers, query_numbers = as_heads(heads, self.num_heads), as_queries(queries, output)
        if x is not None and as_tensor(x, "x").shape[1:] != (self.spec.in_channels, *size):
            wanted = ", ".join(map(str, (self.spec.in_channels, *size)))
            raise GeometryError(f"x must be [batch, {wanted}]; got {list(x.shape)}")
        positions = all_queries(self.spec, size, like=self.alpha)[query_numbers]
        with without_autocast(self.alpha.device):
            maps = attention_maps(self, size, positions, None if x is None else self.spec.pad(x))
        return torch.unflatten(maps[..., head_numbers, :].transpose(-3, -2), -1, tuple(padded_size))

    def add_content(self, key_dim: int, *, gated: bool = False) -> ContentTerms:
        """Adds the content terms (a), (b) and (c), without changing what the layer computes.

        In one softmax with the positions, as eq. (7) has it, W_qry and u start at zero, so the new scores are zero
        until training changes them (``proofs/claims/theorem/position_alone.py``). Behind a gate the terms have a
        softmax of their own, p = (1 - g) p_position + g p_content, and the gate g of every head starts at zero
        (``heads/gate.py``); this can be trained from any alpha on. Once training has changed either, the layer is more
        than a convolution.

        Args:
            key_dim: Dimension D_k in which queries and keys are compared.
            gated: Whether the terms are behind a gate.

        Raises:
            ConversionError: key_dim is not a positive integer.
        """
        self.content = ContentTerms(
            self.num_heads,
            self.spec.in_channels,
            key_dim=as_integer(key_dim, "key_dim", least=1),
            encoding_dim=encoding_dim(self.spec.axes),
            gated=gated,
            device=self.weight.device,
            dtype=self.weight.dtype,
        )
        return self.content

    def set_axis_scores(self, *tables: Tensor) -> AxisScores:
        """Replaces the quadratic scores by learned tables over the offsets along each axis: rows, then columns.

        ``alpha`` and ``centers`` are not used from then on.

        Args:
            *tables: For each axis, scores of the offsets -(n - 1), ..., n - 1, [num_heads, 2 n - 1], for padded inputs
                of up to n pixels along it.

        Raises:
            GeometryError: The tables have other shapes, or are not one for each axis.
        """
        for name, table in zip(AXES[-self.spec.axes :], tables, strict=False):
            if as_tensor(table, name).ndim == 0 or len(table) != self.num_heads:
                raise GeometryError(f"score tables must have {self.num_heads} heads; got {list(table.shape)}")
        if len(tables) != self.spec.axes:
            raise GeometryError(f"there must be a score table for each of {self.spec.axes} axes; got {len(tables)}")
        self.axis_scores = AxisScores(*(table.to(self.weight) for table in tables))
        return self.axis_scores

    def explain(self, size: Sequence[int], *, batch: int = 1) -> str:
        """Which engine computes inputs of this size, why, and what each engine costs in FLOPs and bytes."""
        size, batch = as_size(size, self.spec.axes), as_integer(batch, "batch", least=1)
        chosen = choose_engine(self, self.engine, size, batch=batch)
        why = "asked for" if self.engine != AUTO else "the cheapest that is exact for these parameters"
        if self.engine == AUTO and self.content is not None and chosen is not ENGINES["literal"]:
            why += " and takes memory linear in the pixels"
        lines = [f"{chosen.name}: {why}, for input {size}, batch {batch}"]
        for name, engine in ENGINES.items():
            cost, reason = engine.cost(self, size, batch=batch), engine.refusal(self)
            verdict = "exact" if reason is None else f"refuses: {reason}"
            lines.append(f"  {name:9} {cost.flops:.3g} FLOPs, {format_bytes(cost.bytes)}: {verdict}; {engine.summary}")
        return "\n".join(lines)

    def extra_repr(self) -> str:
        """The geometry, the heads, alpha and the engine, as ``print(model)`` shows them."""
        return f"{self.spec}, heads={self.num_heads}, alpha={_shown(self.alpha)}, engine={self.engine}"


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


def _attention_weights(values: LayerValues, x: Tensor, *, average: bool) -> Tensor:
    """The probabilities behind ``forward(x, need_weights=True)``; its docstring has the shapes."""
    size = Size(*x.shape[2:])
    padded = None if values.content is None else values.spec.pad(x)
    maps = attention_maps(values, size, all_queries(values.spec, size, like=x), padded).transpose(-3, -2)
    if average:
        maps = maps.mean(-3)
    return maps.expand(len(x), *maps.shape) if padded is None else maps


def _shown(alpha: Tensor) -> str:
    """The range of the locality strengths as text; "unknown" on the meta device, which holds no values."""
    if alpha.is_meta:
        return "unknown"
    low, high = alpha.min().item(), alpha.max().item()
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def set_engine(model: nn.Module, engine: str) -> None:
    """Makes every self-attention layer of a model compute with this engine.

    Raises:
        EngineError: There is no such engine.
        ConversionError: The model is not an ``nn.Module`` in Python.
    """
    check_engine_name(engine)
    for module in checked_model(model).modules():
        if isinstance(module, SelfAttention):
            module.engine = engine


def _draw(weight: Tensor, bias: Tensor | None) -> None:
    """Draws parameters as a new ``nn.Conv2d`` does."""
    nn.init.kaiming_uniform_(weight, a=5**0.5)
    if bias is not None:
        bound = weight[0].numel() ** -0.5
        nn.init.uniform_(bias, -bound, bound)


def check_alpha(alpha: float | None, dtype: torch.dtype) -> float:
    """The locality strength for a layer of this dtype; None means the exact regime.

    Raises:
        ConversionError: alpha is not positive and finite in this dtype.
    """
    if alpha is None:
        return EXACT_ALPHA[compute_dtype(dtype)]
    precise = compute_dtype(dtype)
    alpha = as_number(alpha, "alpha")
    if not 0 < torch.tensor(alpha, dtype=precise, device="cpu").item() < math.inf:
        raise ConversionError(f"alpha must be positive and finite in {precise}; got {alpha}")
    return alpha
