"""The sdpa engine: a vanilla multi-head attention with absolute positions, through PyTorch's fused kernel.

Relative positions can be had from absolute ones. With (|k|^2, k) appended to the keys and the target t = q + Delta of
the head in the query,

    -alpha |k - t|^2 = alpha (2 t . k - |k|^2) - alpha |t|^2,

the dot product of (-alpha, 2 alpha t_1, 2 alpha t_2) and (|k|^2, k_1, k_2), up to a constant of the query that the
softmax ignores. So ``F.scaled_dot_product_attention`` computes the layer, without a bias for every pair, in memory in
proportion to queries plus keys.

It is used in the exact regime only. There the scores are integers times alpha, computed without rounding as long as
three squared diagonals of the grid are at most 2^53, and a fused softmax, which rescales its sums by exponentials as it
meets new maxima, rescales by exactly 0 or 1.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..arguments import Size
from ..bounds.rounding import staged_error
from ..context import is_traced
from ..errors import EngineError
from ..heads.encoding import encoding_dim, is_power_of_two, key_positions
from ..heads.values import LayerValues
from ..spec import ConvSpec
from .base import Cost, Engine, learned_scores
from .literal import all_queries, project_values


class SdpaEngine(Engine):
    """Queries and keys from absolute positions; the rest is PyTorch's."""

    name: ClassVar[str] = "sdpa"
    summary: ClassVar[str] = "vanilla attention with absolute positions, through F.scaled_dot_product_attention"

    def refusal(self, layer: LayerValues) -> str | None:
        """It needs one-hot attention, so that the fused softmax is exact, in arithmetic that does not round scores."""
        learned = learned_scores(layer)
        if learned is not None:
            return learned
        if not _is_exact(layer):
            return "attention is not exactly one-hot, or alpha is no power of two"
        if layer.weight.device.type != "cpu":
            return "on this device the fused kernels may round scores to TF32"
        return None

    def cost(self, layer: LayerValues, size: Size, *, batch: int = 1) -> Cost:
        """All pairs, for every image of the batch; memory for queries, keys and values only."""
        spec, dim = layer.spec, _dimension(layer.spec)
        queries, keys = math.prod(spec.output_size(size)), math.prod(spec.padded_size(size))
        project = batch * keys * spec.num_heads * spec.out_channels * spec.in_channels // spec.groups
        pairs = batch * spec.num_heads * queries * keys
        held = batch * spec.num_heads * dim * (2 * queries + 2 * keys)
        return Cost(2 * project + pairs * (4 * dim + 4), held * _score_dtype(layer, size).itemsize)

    def error(self, layer: LayerValues) -> float:
        """``rounding.staged_error``; infinite for alphas that it refuses."""
        return staged_error(layer) if _is_exact(layer) else math.inf

    def attend(self, layer: LayerValues, x: Tensor) -> Tensor:
        """Computes the layer; raises EngineError before allocating anything on a grid that is too large."""
        spec, batch, size = layer.spec, x.shape[0], Size(*x.shape[2:])
        grid = spec.padded_size(size)
        if not is_traced() and not _holds_scores(grid, torch.float64):
            raise EngineError(
                "the sdpa engine is exact only where three squared diagonals of the padded input are at most 2^53; got "
                f"{' x '.join(map(str, grid))} pixels; engine 'auto' takes one that is exact"
            )
        self.check_memory(layer, x)
        padded = spec.pad(x).to(_score_dtype(layer, size))
        values = project_values(layer, padded).permute(2, 0, 1, 3)
        queries, keys = absolute_positions(layer, size, like=padded)
        spare = (0, _dimension(spec) - spec.out_channels)
        read = F.scaled_dot_product_attention(
            queries.expand(batch, -1, -1, -1),
            keys.expand(batch, spec.num_heads, -1, -1),
            F.pad(values, spare).contiguous(),  # the fused kernel refuses others, and torch then forms all pairs
            scale=1.0,
        )
        output = read[..., : spec.out_channels].sum(1)
        if layer.bias is not None:
            output = output + layer.bias.to(output.dtype)
        return torch.unflatten(output.to(x.dtype).transpose(1, 2), 2, tuple(spec.output_size(size)))


def absolute_positions(layer: LayerValues, size: Size, *, like: Tensor) -> tuple[Tensor, Tensor]:
    """Queries (-alpha, 2 alpha t) and keys (|k|^2, k), with zeros appended up to the dimension of the values.

    Returns:
        [num_heads, num_queries, dimension] and [num_keys, dimension], with the dtype and device of ``like``.
    """
    spec, alpha = layer.spec, layer.alpha.to(like).view(-1, 1, 1)
    pixels = key_positions(spec.padded_size(size), like=like)
    keys = torch.cat([pixels.square().sum(-1, keepdim=True), pixels], dim=-1)
    targets = all_queries(spec, size, like=like).to(like.dtype) + layer.centers.to(like).unsqueeze(1)
    queries = alpha * torch.cat([-torch.ones_like(targets[..., :1]), 2 * targets], dim=-1)
    spare = (0, _dimension(spec) - encoding_dim(spec.axes))
    return F.pad(queries, spare), F.pad(keys, spare)


def _is_exact(layer: LayerValues) -> bool:
    """Whether attention is one-hot, and scores are integers times a power of two."""
    return layer.regime.is_exact and all(map(is_power_of_two, layer.regime.alpha))


def _dimension(spec: ConvSpec) -> int:
    """One dimension for queries, keys and values, as fused kernels want it."""
    return max(encoding_dim(spec.axes), spec.out_channels)


def _score_dtype(layer: LayerValues, size: Size) -> torch.dtype:
    """float32 where scores are known to be exact there; else float64."""
    exact = not is_traced() and _holds_scores(layer.spec.padded_size(size), torch.float32)
    return layer.regime.dtype if exact else torch.float64


def _holds_scores(grid: Size, dtype: torch.dtype) -> bool:
    """Whether |2 t . k| + |k|^2, at most three squared diagonals, and each part of it is a number of this dtype."""
    return 3 * sum(length**2 for length in grid) <= 2 / torch.finfo(dtype).eps
