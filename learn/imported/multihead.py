"""PyTorch's own ``nn.MultiheadAttention`` whose queries and keys are tokens of positions, and whose values are pixels.

scores_h = (W_q^h t_q + b_q^h) . (W_k^h t_k + b_k^h) / sqrt(d)        for the tokens t of an image of one size
W_h      = out_proj[:, h] W_v^h                                       and the bias out_proj (b_v) + b
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...convert.arguments import as_size, as_tensor
from ...convert.errors import ConversionError, GeometryError
from ...convert.size import Size
from ..heads.attention import HeadAttention
from ..heads.positions import Grid, Positions


class Fixed(Positions):
    """Scores for each head, query and key of images of one size: what absolute positions come to.

    Attributes:
        table: The scores, [num_heads, num_queries, num_keys], row by row.
        size: Rows and columns of the image, whose pixels are queries and keys.
    """

    table: Tensor

    def __init__(self, table: Tensor, size: Size) -> None:
        super().__init__(len(table))
        self.size = size
        self.register_buffer("table", table.detach().clone())

    def scores(self, grid: Grid) -> Tensor:
        """The table.

        Raises:
            GeometryError: The image has another size, or keys beyond its pixels.
        """
        if (grid.rows, grid.columns, grid.padding) != (*self.size, 0):
            raise GeometryError(f"these positions are for images of {self.size}; got {grid}")
        return self.table


def read_multihead(
    module: nn.MultiheadAttention, tokens: Tensor | None, keys: Tensor | None, size: Sequence[int] | None
) -> HeadAttention:
    """The layer of its positions, for images of a size; ``attention_from`` has the arguments.

    Raises:
        ConversionError: There are no tokens or size, or it adds keys of its own.
        GeometryError: The tokens have another shape.
    """
    if tokens is None or size is None:
        raise ConversionError(
            "nn.MultiheadAttention does not know positions, which come to it as queries and keys: give them as tokens, "
            "and the image's size"
        )
    if module.bias_k is not None or module.bias_v is not None or module.add_zero_attn:
        raise ConversionError("it has keys that are no pixels (add_bias_kv, add_zero_attn)")
    size, tokens = as_size(size), as_tensor(tokens, "tokens").detach()
    keys = tokens if keys is None else as_tensor(keys, "keys").detach()
    wanted = [[size[0] * size[1], width] for width in (module.embed_dim, module.kdim)]
    if [list(tokens.shape), list(keys.shape)] != wanted:
        raise GeometryError(f"tokens and keys must be {wanted}; got {list(tokens.shape)} and {list(keys.shape)}")
    (query, query_bias), (key, key_bias), (value, value_bias) = _projections(module)
    asked, shown = tokens.double() @ query.T + query_bias, keys.double() @ key.T + key_bias
    heads = module.num_heads
    by_head = [part.unflatten(1, (heads, -1)).transpose(0, 1) for part in (asked, shown)]  # [heads, pixels, d]
    scores = by_head[0] @ by_head[1].transpose(1, 2) * (module.embed_dim // heads) ** -0.5
    out = module.out_proj.weight.detach().double()
    mixed = torch.einsum("ohd,hdi->ohi", out.unflatten(1, (heads, -1)), value.unflatten(0, (heads, -1)))
    bias = out @ value_bias + (0 if module.out_proj.bias is None else module.out_proj.bias.detach().double())
    like = module.out_proj.weight.detach()
    return HeadAttention.of(Fixed(scores.to(like), size), mixed.to(like), bias.to(like))


def _projections(module: nn.MultiheadAttention) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of queries, keys and values, in double precision."""
    if module.in_proj_weight is None:
        weights = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
    else:
        weights = list(module.in_proj_weight.chunk(3))
    bias = module.in_proj_bias
    biases = [torch.zeros_like(weight[:, 0]) for weight in weights] if bias is None else list(bias.chunk(3))
    return [(weight.detach().double(), part.detach().double()) for weight, part in zip(weights, biases, strict=True)]
