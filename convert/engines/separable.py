"""The separable engine: one softmax an axis, for heads with positions of their own and for content.

If a head's positional score is a sum of a row term and a column term, its exponential is a product, and so is the
sum over the grid that normalises it. The softmax over all keys is then the outer product of two softmaxes:

    softmax_k(a(k_1) + b(k_2)) = exp a(k_1) exp b(k_2) / (sum exp a)(sum exp b) = R[q_1, k_1] C[q_2, k_2]

so that head h reads R_h X C_h^T, and

    Attention(X) = sum_h W_h (R_h X C_h^T) = sum_C ( sum over heads with column table C of W_h (R_h X) ) C^T

The quadratic score -alpha |delta - Delta|^2 is such a sum for any real centre and any alpha of each head's own, and so
are learned tables; along n axes there are n terms, and n softmaxes. Where positions rest, the product R_h X is computed
once for all heads with the same row table, the product with C once for all heads with the same column table. While they
are trained, no two heads have the same for long, and ``head_sum`` computes the sum.

``proofs/claims/computing/separability.py`` proves that the softmax factors.

Heads that share nothing each have tables of their own. Their sum is

    Y = sum_h W_h A_h,      A_h = Z_h C_h^T,      Z_h = R_h X

with R_h and C_h the attention of head h along the rows and along the columns (one table for each axis of the layer).
Autograd would keep Z_h and A_h of every head, which are 2 K^2 images for a kernel of K x K taps. So queries along the
first axis are taken some at a time, and what they read is computed again in the backward pass. Heads that look nearby
read few of the pixels: on a CPU only the blocks of a table that are not zero are multiplied (``blocks_of``).

Inside, images are [*axes, batch, channels]: a product along an axis is then one of long vectors, of all places at once
along the first axis, and Z and A are multiplied as they lie.

Content, attention that reads the image, takes one softmax and two products for all heads.

The draft's eq. (7) is one dot product of the query's content and the key's, and one of a vector of the query with the
relative encoding r of the pair:

    score = (W_qry x_q + u) . (W_key x_k)  +  (W^_key^T W_qry x_q + v) . r

With phi(k) = (|k|^2, k) the encoding is linear in it up to a constant of the query, which softmax ignores:

    a |k - q|^2 + b . (k - q)  =  a |k|^2 + (b - 2 a q) . k  +  constant

so the score is one dot product of longer vectors, (W_qry x_q + u, a, b - 2 a q) with (W_key x_k, |k|^2, k), and no bias
for every pair is needed. Positions are counted from the grid's middle, where they are smallest. With sharp positions
large terms cancel, so scores are computed in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..arguments import Size
from ..bounds.rounding import separable_error
from ..context import is_traced, is_transformed
from ..heads.content import ContentTerms
from ..heads.encoding import head_vectors, key_numbers, key_positions
from ..heads.values import LayerValues
from ..spec import ConvSpec
from .base import Cost, Engine
from .convolution import laid_out_like
from .factored import BLOCK, Axis, axis_probabilities, keys_read, pad_for_tables, table, without_negligible
from .literal import all_queries

Blocks = tuple[tuple[int, int, int, int], ...]
"""As ``blocks_of`` gives them."""
_BLOCK_BYTES = 12 * 2**20  # of what all heads read for the queries that are taken at a time


def blocks_of(probabilities: Tensor, *, most: int | None = None) -> tuple[tuple[int, int, int, int], ...]:
    """First and last query, and first and last pixel that they read, of blocks of queries, in order.

    Args:
        probabilities: [..., queries, pixels]; a pixel that no leading index reads is left out.
        most: Queries of a block, at most. Without a limit, a table that is short or no narrow band is one block.
    """
    queries, pixels = probabilities.shape[-2:]
    if is_transformed():  # sizes may be symbols, which a range would make numbers of
        return ((0, queries, 0, pixels),)
    most = max(1, queries if most is None else most)
    whole = tuple((start, min(start + most, queries), 0, pixels) for start in range(0, queries, most))
    if not probabilities.is_cpu or queries <= 2 * BLOCK:
        return whole
    used = (probabilities != 0).flatten(0, -3).any(0) if probabilities.ndim > 2 else probabilities != 0
    first, last = used.int().argmax(1).tolist(), (pixels - used.flip(1).int().argmax(1)).tolist()
    rows = min(BLOCK, most)
    ends = [(start, min(start + rows, queries)) for start in range(0, queries, rows)]
    blocks = tuple((start, end, min(first[start:end]), max(last[start:end])) for start, end in ends)
    entries = sum((end - start) * (stop - begin) for start, end, begin, stop in blocks)
    return blocks if 2 * entries <= queries * pixels else whole


def head_sum(source: Tensor, weight: Tensor, tables: Sequence[Tensor]) -> Tensor:
    """sum_h W_h A_h.

    Args:
        source: X, [batch, in_channels, *pixels].
        weight: W, [num_heads, groups, out_channels / groups, in_channels / groups].
        tables: For each axis, attention probabilities [num_heads, queries, pixels]. Zeros far from where the heads look
            are taken to be constants (``without_negligible``): they are not multiplied, and get no gradient.

    Returns:
        [batch, out_channels, *queries].
    """
    moved, mixing = source.movedim((0, 1), (-2, -1)).contiguous(), weight.permute(1, 0, 3, 2).flatten(1, 2)
    first, *rest = tables
    others = [(table, blocks_of(table)) for table in rest]
    if is_transformed():
        summed = _block(moved, mixing, first, *others)
    else:
        parts = [
            checkpoint(
                _block,
                moved[begin:stop],
                mixing,
                first[:, start:end, begin:stop],
                *others,
                use_reentrant=False,
                preserve_rng_state=False,
            )
            for start, end, begin, stop in blocks_of(first, most=_queries_at_a_time(moved, tables))
        ]
        summed = parts[0] if len(parts) == 1 else torch.cat(parts)
    return summed.movedim((-2, -1), (0, 1))


def _block(source: Tensor, mixing: Tensor, first: Tensor, *others: tuple[Tensor, Blocks]) -> Tensor:
    """The sum for some queries along the first axis: [queries, *other queries, batch, out_channels].

    Args:
        source: [*pixels, batch, in_channels].
        mixing: W as one matrix for each group, [groups, num_heads * in, out] channels.
        first: [num_heads, queries, pixels].
        others: The tables of the other axes, and the blocks that they are multiplied in.
    """
    heads, (batch, channels) = first.shape[0], source.shape[-2:]
    queries = [first.shape[1], *(table.shape[1] for table, _ in others)]
    read = first.flatten(0, 1) @ source.flatten(1)
    for other, blocks in others:
        places = read.shape[0] // heads
        lines = read.view(heads * places, other.shape[2], read.shape[1] // other.shape[2])
        parts = [_along(other[:, start:end, begin:stop], lines[:, begin:stop]) for start, end, begin, stop in blocks]
        read = (parts[0] if len(parts) == 1 else torch.cat(parts, 1)).flatten(0, 1)
    return _mixed(read.view(heads, math.prod(queries) * batch, channels), mixing).view(
        *queries, batch, mixing.shape[0] * mixing.shape[2]
    )


def _along(table: Tensor, lines: Tensor) -> Tensor:
    """The product of each head's table [num_heads, queries, pixels] with its lines [num_heads * places, pixels, n]."""
    places = lines.shape[0] // table.shape[0]  # not their lengths, which would make a symbol a number
    return torch.bmm(table.unsqueeze(1).expand(-1, places, -1, -1).flatten(0, 1), lines)


def _mixed(read: Tensor, mixing: Tensor) -> Tensor:
    """sum_h W_h A_h, [places, out_channels], of A [num_heads, places, in_channels] and W as in ``_block``."""
    if len(mixing) == 1:
        weights = mixing[0].unflatten(0, (len(read), -1))
        return torch.bmm(read, weights).sum(0)
    by_place = torch.unflatten(read, 2, (len(mixing), -1)).permute(2, 1, 0, 3).flatten(2)
    return torch.bmm(by_place, mixing).transpose(0, 1).flatten(1)


def head_weights(layer: LayerValues, dtype: torch.dtype) -> Tensor:
    """The value projections, [num_heads, groups, out_channels / groups, in_channels / groups]."""
    weight = layer.kernel.to(dtype).flatten(2).permute(2, 0, 1)
    return torch.unflatten(weight, 1, (layer.spec.groups, -1)).contiguous()


def project(weight: Tensor, x: Tensor) -> Tensor:
    """W x at every pixel: [batch, in_channels, *size] -> [batch, out_channels, *size].

    Args:
        weight: [groups, out_channels / groups, in_channels / groups].
        x: [batch, in_channels, *size].
    """
    groups, _, channels = weight.shape
    pixels = torch.unflatten(x.flatten(2), 1, (groups, channels))
    projected = weight * pixels if channels == 1 else weight @ pixels
    return torch.unflatten(projected.flatten(1, 2), 2, x.shape[2:])


def bytes_held(spec: ConvSpec, size: Size, batch: int, element: int) -> int:
    """Bytes that the sum holds: the images as they are moved, and what all heads read for some queries."""
    grid, output = spec.padded_size(size), spec.output_size(size)
    row = spec.num_heads * _read_by_a_row(output[1:], grid[1:]) * batch * spec.in_channels * element
    images = batch * (spec.in_channels * math.prod(grid) + 2 * spec.out_channels * math.prod(output))
    return images * element + max(min(_BLOCK_BYTES, row * output[0]), row)


def _read_by_a_row(queries: Sequence[int], pixels: Sequence[int]) -> int:
    """Numbers that a head reads for one query along the first axis, of an image of one channel, over all passes."""
    return sum(math.prod(queries[:axis]) * math.prod(pixels[axis:]) for axis in range(len(queries) + 1))


def _queries_at_a_time(source: Tensor, tables: Sequence[Tensor]) -> int:
    queries, pixels = [t.shape[1] for t in tables[1:]], source.shape[1:-2]
    row = len(tables[0]) * _read_by_a_row(queries, pixels) * source.shape[-2:].numel() * source.element_size()
    blocks = math.ceil(tables[0].shape[1] * row / _BLOCK_BYTES)
    return math.ceil(tables[0].shape[1] / max(blocks, 1))


_CACHE = 2**21  # bytes of scores that are formed at once
_SCORES = 2**26  # bytes of scores up to which all are formed; beyond, torch's fused kernel takes them by parts


def content_cost(layer: LayerValues, content: ContentTerms, size: Size, *, batch: int) -> Cost:
    """All pairs; memory for the queries, keys and values of all heads, and for the scores where they are formed."""
    spec, grid = layer.spec, layer.spec.padded_size(size)
    element = 8  # of double precision
    queries, keys, key_dim = math.prod(spec.output_size(size)), math.prod(grid), content.key_weight.shape[1]
    pairs = batch * spec.num_heads * queries * keys
    mixing = batch * queries * spec.num_heads * spec.out_channels * spec.in_channels // spec.groups
    flops = pairs * (content.score_flops + 2 * spec.in_channels) + 2 * mixing
    width, formed = key_dim + spec.axes + 1, 2 * pairs
    if pairs * element > _SCORES:
        width, formed = max(width, spec.in_channels), 0
    held = batch * spec.num_heads * (queries * (width + spec.in_channels) + keys * (width + spec.in_channels))
    return Cost(flops, (held + formed) * element)


def attend_content(layer: LayerValues, content: ContentTerms, x: Tensor) -> Tensor:
    """Computes a layer with content terms.

    Args:
        layer: The layer.
        content: Its content terms.
        x: [batch, in_channels, *size].

    Returns:
        [batch, out_channels, *output size].
    """
    spec, size, bias = layer.spec, Size(*x.shape[2:]), layer.bias
    pixels = spec.pad(x).to(torch.float64).flatten(2).transpose(1, 2)
    queries, keys = _queries_and_keys(layer, content, pixels, size)
    attended = _attention(queries, keys, pixels.unsqueeze(1))  # [batch, heads, queries, in_channels]
    grouped = torch.unflatten(attended, 3, (spec.groups, -1)).permute(0, 3, 2, 1, 4).flatten(3)
    mixing = head_weights(layer, torch.float64).permute(1, 0, 3, 2).flatten(1, 2)
    output = torch.unflatten((grouped @ mixing).transpose(2, 3).flatten(1, 2), 2, tuple(spec.output_size(size)))
    return (output if bias is None else output + bias.view(-1, *(1,) * spec.axes)).to(x.dtype)


def _queries_and_keys(layer: LayerValues, content: ContentTerms, pixels: Tensor, size: Size) -> tuple[Tensor, Tensor]:
    """The longer vectors, [batch, num_heads, queries or keys, key_dim + axes + 1].

    Args:
        layer: The layer.
        content: Its content terms.
        pixels: The padded input, [batch, keys, in_channels].
        size: Size of the input, without padding.
    """
    grid, dtype = layer.spec.padded_size(size), pixels.dtype
    positions = all_queries(layer.spec, size, like=pixels)
    asked = torch.einsum("bqc,hdc->bhqd", pixels[:, key_numbers(positions, grid)], content.query_weight.to(dtype))
    shown = torch.einsum("bkc,hdc->bhkd", pixels, content.key_weight.to(dtype))
    of_query = torch.einsum("bhqd,hdp->bhqp", asked, content.position_weight.to(dtype))
    of_query = of_query + head_vectors(layer.alpha.double(), layer.centers.double()).unsqueeze(1)
    middle = torch.stack([positions.new_full((), (length - 1) / 2) for length in grid])
    at = (key_positions(grid, like=pixels) - middle.to(dtype)).to(dtype)
    square, linear = of_query[..., :1], of_query[..., 1:] - 2 * of_query[..., :1] * (positions - middle).to(dtype)
    encoded = torch.cat([at.square().sum(-1, keepdim=True), at], -1).expand(*shown.shape[:2], -1, -1)
    queries = torch.cat([asked + content.key_bias.to(dtype).unsqueeze(1), square, linear], -1)
    return queries, torch.cat([shown, encoded], -1)


def _attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(Q K^T) V of all heads, which share their values.

    Where the scores of all pairs are few, they are formed, on a CPU for as many images at once as its cache holds;
    where they are many, torch's fused kernel takes them by parts, which needs vectors of one width.
    """
    heads = queries.shape[1]
    if is_transformed() or queries.shape[:3].numel() * keys.shape[2] * queries.element_size() <= _SCORES:
        if is_traced() or not queries.is_cpu:
            return _formed(queries, keys, values)
        at_once = max(1, _CACHE // (queries.shape[1:3].numel() * keys.shape[2] * queries.element_size()))
        parts = (each.split(at_once) for each in (queries, keys, values))
        return torch.cat([_formed(*part) for part in zip(*parts, strict=True)])
    channels, width = values.shape[3], max(values.shape[3], keys.shape[3])
    values = values.contiguous().expand(-1, heads, -1, -1)  # as in sdpa.py
    q, k, v = (F.pad(each, (0, width - each.shape[3])) for each in (queries, keys, values))
    return F.scaled_dot_product_attention(q, k, v, scale=1.0)[..., :channels]


def _formed(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The same, by one product with V for all heads."""
    probabilities = torch.softmax(queries @ keys.transpose(2, 3), -1)
    return torch.unflatten(probabilities.flatten(1, 2) @ values.squeeze(1), 1, (queries.shape[1], -1))


_CHUNK_BYTES = 4 * 2**20  # of one intermediate result: larger ones fall out of the cache


class SeparableEngine(Engine):
    """Row tables, channels, column tables."""

    name: ClassVar[str] = "separable"
    summary: ClassVar[str] = "a softmax along rows and one along columns for each head, whose product is the attention"

    def refusal(self, layer: LayerValues) -> str | None:
        """It needs positional scores that are a sum of one term an axis; ``attend_content`` computes the others."""
        if layer.content is not None and layer.axis_scores is not None:
            return "the layer has content terms in one softmax with learned tables"
        return None

    def cost(self, layer: LayerValues, size: Size, *, batch: int = 1) -> Cost:
        """The passes over all distinct tables, and the channels in between; with content, all pairs."""
        if layer.content is not None:
            return content_cost(layer, layer.content, size, batch=batch)
        spec, output, grid = layer.spec, layer.spec.output_size(size), layer.spec.padded_size(size)
        names = list(zip(*_table_names(layer), strict=True))
        leading, lengths = 0, list(grid)
        for axis in range(spec.axes - 1):  # each distinct head along the axes before needs its own pass
            lengths[axis] = output[axis]
            repeats = len(set(zip(*names[:axis], strict=True))) if axis else 1
            leading += spec.in_channels * repeats * _keys_read(layer, grid[axis], axis) * math.prod(lengths)
        mixed = math.prod(lengths)
        mixing = spec.num_heads * spec.out_channels * spec.in_channels // spec.groups * mixed
        last = spec.out_channels * math.prod(output) * _keys_read(layer, grid[-1], spec.axes - 1)
        flops = 2 * batch * (leading + mixing + last)
        if _is_at_rest(layer):
            return Cost(flops, _memory(layer, size, batch)[1])
        tables = spec.num_heads * sum(q * k for q, k in zip(output, grid, strict=True))
        return Cost(flops, bytes_held(spec, size, batch, layer.regime.dtype.itemsize) + 2 * 8 * tables)

    def error(self, layer: LayerValues) -> float:
        """``rounding.separable_error``."""
        return separable_error(layer)

    def attend(self, layer: LayerValues, x: Tensor) -> Tensor:
        """Computes the layer."""
        self.check_memory(layer, x)
        if layer.content is not None:
            return attend_content(layer, layer.content, x)
        output = _by_table(layer, x) if _is_at_rest(layer) else _by_head(layer, x)
        if layer.bias is not None:
            output = output + layer.bias.to(output.dtype).view(-1, *(1,) * layer.spec.axes)
        return laid_out_like(x, output.to(x.dtype))


def _is_at_rest(layer: LayerValues) -> bool:
    """Whether the tables are known as numbers."""
    return layer.axis_scores is None and not layer.trains_positions


def _by_head(layer: LayerValues, x: Tensor) -> Tensor:
    """sum_h W_h (R_h X C_h^T), each head with tables of its own."""
    spec, size = layer.spec, Size(*x.shape[2:])
    source = pad_for_tables(spec, x).to(layer.regime.dtype)
    found = [axis_probabilities(layer, size, axis) for axis in range(spec.axes)]
    tables = [Axis.of(spec, size, axis).seen(without_negligible(part)) for axis, part in enumerate(found)]
    return head_sum(source, head_weights(layer, source.dtype), tables)


def _by_table(layer: LayerValues, x: Tensor) -> Tensor:
    """The same, where heads with equal tables share the passes."""
    size = Size(*x.shape[2:])
    source = pad_for_tables(layer.spec, x).to(layer.regime.dtype)
    weight = head_weights(layer, source.dtype)
    images = [source] if is_traced() else torch.split(source, _images(layer, size, x.shape[0]))
    parts = [_attend(layer, size, weight, part) for part in images]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def _attend(layer: LayerValues, size: Size, weight: Tensor, source: Tensor) -> Tensor:
    """sum over column tables C of ( sum over their heads of W_h (R_h X) ) C^T.

    Args:
        layer: The layer.
        size: Size of its input.
        weight: [num_heads, groups, out_channels / groups, in_channels / groups].
        source: [batch, in_channels, *pixels], what ``pad_for_tables`` made of its input.

    Returns:
        [batch, out_channels, *output size].
    """
    axes = [Axis.of(layer.spec, size, axis) for axis in range(layer.spec.axes)]
    names = _table_names(layer)
    read: dict[tuple[object, ...], Tensor] = {(): source}

    def along(number: int, name: tuple[float, float], images: Tensor) -> Tensor:
        return table(axes[number], *name, source.dtype, source.device).along(images, number)

    def read_by(leading: tuple[tuple[float, float], ...]) -> Tensor:
        """The values that heads with these tables along the first axes read, computed once."""
        if leading not in read:
            read[leading] = along(len(leading) - 1, leading[-1], read_by(leading[:-1]))
        return read[leading]

    total: Tensor | None = None
    for column in dict.fromkeys(name[-1] for name in names):
        heads = [head for head, name in enumerate(names) if name[-1] == column]
        mixed = project(weight[heads[0]], read_by(names[heads[0]][:-1]))
        for head in heads[1:]:
            mixed = mixed + project(weight[head], read_by(names[head][:-1]))
        part = along(len(axes) - 1, column, mixed)
        total = part if total is None else total + part
    return source if total is None else total


def _table_names(layer: LayerValues) -> list[tuple[tuple[float, float], ...]]:
    """For each head, what determines its table along each axis; equal where tables coincide."""
    if not _is_at_rest(layer):
        return [((head, 0.0),) * layer.spec.axes for head in range(layer.spec.num_heads)]
    pairs = zip(layer.regime.alpha, layer.regime.centers, strict=True)
    return [tuple((alpha, coordinate) for coordinate in center) for alpha, center in pairs]


def _keys_read(layer: LayerValues, keys: int, axis: int) -> int:
    """Keys along one axis that a query reads with a probability above zero, over all distinct tables."""
    names = {name[axis] for name in _table_names(layer)}
    if not _is_at_rest(layer):
        return len(names) * keys
    return sum(keys_read(alpha, keys, layer.regime.dtype) for alpha, _ in names)


def _images(layer: LayerValues, size: Size, batch: int) -> int:
    """Images at a time, so that an intermediate result stays in the cache, and all under the layer's memory limit."""
    return _memory(layer, size, batch)[0]


def _memory(layer: LayerValues, size: Size, batch: int) -> tuple[int, int]:
    """Images at a time, and the bytes that are held then: the padded input, tables, and what heads read."""
    spec, output, grid = layer.spec, layer.spec.output_size(size), layer.spec.padded_size(size)
    names, element = list(zip(*_table_names(layer), strict=True)), layer.regime.dtype.itemsize
    tables = sum(len(set(along)) * q * k for along, q, k in zip(names, output, grid, strict=True))
    fixed = (batch * spec.in_channels * math.prod(grid) + tables) * element
    one = max(spec.in_channels, spec.out_channels) * math.prod((*output[:-1], grid[-1])) * element
    image = (len(set(zip(*names[:-1], strict=True))) + 2) * one
    images = max(1, min(batch, _CHUNK_BYTES // one, (layer.memory_limit - fixed) // image))
    return images, fixed + images * image
