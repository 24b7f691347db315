"""The literal engine is the formula, written out query by query; what it needs is known before it is allocated."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import SelfAttention, attention_from_conv, certify
from conv2attn.convert.arguments import Size
from conv2attn.convert.bounds.rounding import literal_error
from conv2attn.convert.engines import choose_engine
from conv2attn.convert.engines.literal import (
    all_queries,
    bytes_needed,
    project_values,
)
from conv2attn.convert.errors import EngineError
from conv2attn.convert.heads.encoding import key_positions, relative_encoding, relative_positions
from tests.bounds import output_bound
from tests.integers import integers, with_integers

GEOMETRIES: dict[str, tuple[type[nn.Module], tuple[int, ...], dict[str, Any]]] = {
    "a sequence": (nn.Conv1d, (6,), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "an image": (nn.Conv2d, (4, 5), {"kernel_size": (3, 2), "stride": (1, 2), "dilation": (1, 2), "padding": (2, 1)}),
    "a volume": (nn.Conv3d, (3, 2, 3), {"kernel_size": (1, 2, 2), "padding": (0, 1, 0)}),
    "a transposed image": (nn.ConvTranspose2d, (2, 3), {"kernel_size": (2, 3), "stride": (2, 1), "padding": (1, 0)}),
}


def layer_of(geometry: str, *, alpha: float | None = 0.7, groups: int = 2) -> tuple[SelfAttention, Size]:
    """A layer of 4 -> 6 channels in double precision whose heads are off their taps, and a size for it."""
    kind, size, options = GEOMETRIES[geometry]
    conv: Any = kind(4, 6, groups=groups, dtype=torch.float64, **options)
    layer = attention_from_conv(conv, alpha=alpha, engine="literal")
    generator = torch.Generator().manual_seed(0)
    layer.set_positions(
        centers=layer.centers + (torch.rand(layer.centers.shape, generator=generator, dtype=torch.float64))
    )
    layer.set_positions(
        alpha=layer.alpha * (1 + torch.rand(layer.alpha.shape, generator=generator, dtype=torch.float64))
    )
    return layer, Size(*size)


def pixels_of(grid: Size) -> list[tuple[int, ...]]:
    return list(itertools.product(*map(range, grid)))


def shares(layer: SelfAttention, size: Size) -> Tensor:
    """softmax_k(-alpha_h |k - q - Delta_h|^2) number by number, [queries, heads, keys]."""
    keys, queries = pixels_of(layer.spec.padded_size(size)), list(itertools.product(*layer.spec.query_positions(size)))
    table = torch.zeros(len(queries), layer.num_heads, len(keys), dtype=torch.float64)
    for (q, query), (h, center) in itertools.product(enumerate(queries), enumerate(layer.centers.tolist())):
        alpha = float(layer.alpha[h])
        scores = [-alpha * sum((k - p - c) ** 2 for k, p, c in zip(key, query, center, strict=True)) for key in keys]
        powers = [math.exp(score - max(scores)) for score in scores]
        table[q, h] = torch.tensor(powers, dtype=torch.float64) / math.fsum(powers)
    return table


@pytest.mark.parametrize(("geometry", "groups"), [*zip(GEOMETRIES, (1, 2, 1, 2), strict=True)])
def test_the_output_is_the_formula(geometry: str, groups: int) -> None:
    layer, size = layer_of(geometry, groups=groups)
    x = torch.randn(3, 4, *size, dtype=torch.float64)
    table, pixels = shares(layer, size), layer.spec.pad(x).flatten(2)
    output = torch.zeros(3, 6, table.shape[0], dtype=torch.float64)
    for h, o in itertools.product(range(layer.num_heads), range(6)):
        weight = layer.kernel.flatten(2)[o, :, h]
        first = o // (6 // groups) * (4 // groups)
        read = torch.einsum("qk,bck->bqc", table[:, h], pixels[:, first : first + 4 // groups])
        output[:, o] += read @ weight
    if layer.bias is not None:
        output += layer.bias.view(-1, 1)
    magnitude = layer.kernel.abs().flatten(1).sum(1).max() * x.abs().max() + 1
    observed = layer(x)
    assert observed.shape == (3, 6, *layer.spec.output_size(size))
    assert float((observed.flatten(2) - output).detach().abs().max()) <= 4 * literal_error(layer.values()) * magnitude


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_with_content_the_output_is_the_formula_in_one_softmax(geometry: str) -> None:
    layer, size = layer_of(geometry)
    content = with_integers(layer.add_content(2), largest=1)
    x = integers(3, 4, *size, largest=1, dtype=torch.float64)
    with torch.no_grad():
        padded, asked = layer.spec.pad(x), all_queries(layer.spec, size, like=x)
        keys = padded.flatten(2).mT
        lying = (asked * torch.tensor(padded[0, 0].stride())).sum(1).long()
        encoding = relative_encoding(relative_positions(asked, key_positions(Size(*padded.shape[2:]), like=x)))
        positional, scores = shares(layer, size), content.scores(keys[:, lying], keys, encoding)
        table = (positional.log() + scores).softmax(-1)
        expected = torch.einsum("bqhk,hkbo->boq", table, project_values(layer.values(), padded))
        if layer.bias is not None:
            expected += layer.bias.view(-1, 1)
        observed = layer(x).flatten(2)
    # Scores, and logarithms of shares, are at most this large, and rounded fewer times than the bound counts.
    farthest = 2 * (encoding[..., 0].max() + layer.centers.detach().square().sum(1).max())
    largest = float(layer.alpha.detach().max() * farthest + scores.abs().max())
    assert float((observed - expected).abs().max()) <= output_bound(layer, x) * (2 + largest)


@pytest.mark.parametrize(("dilation", "alpha"), [(59_428_400, 104.1231), (97_664_080, 127.667), (2**25 + 4, 128.0)])
def test_heads_so_far_away_that_scores_cancel_are_refused_before_anything_is_computed(
    dilation: int, alpha: float
) -> None:
    conv = nn.Conv1d(1, 1, 2, dilation=dilation, bias=False)
    layer, x = attention_from_conv(conv, alpha=alpha, engine="literal"), torch.zeros(1, 1, 1)
    layer.memory_limit = 2**62
    assert certify(layer, input_range=(0, 1), engine="literal").bound == math.inf
    assert certify(layer, input_range=(0, 1)).bound < 1e-5  # auto takes another engine
    with pytest.raises(EngineError, match="cannot be told apart"):
        layer(x.expand(1, 1, dilation + 1))
    with pytest.raises(EngineError, match="cannot be told apart"):
        layer.attention_probabilities((dilation + 1,))
    layer.engine = "auto"
    assert choose_engine(layer.values(), "auto").name != "literal"


@pytest.mark.parametrize("is_kept", [False, True])
def test_queries_are_taken_as_they_fit_and_what_does_not_fit_is_refused_before_it_is_allocated(is_kept: bool) -> None:
    layer, size = layer_of("an image")
    x, queries = torch.randn(3, 4, *size, dtype=torch.float64), math.prod(layer.spec.output_size(size))
    with torch.set_grad_enabled(is_kept):
        whole = layer(x)
        values, query, kept = bytes_needed(layer.values(), size, batch=3)
        assert (values, query, kept) == (8 * 6 * 56 * 3 * 6, 8 * (2 * 3 * 56 + 3 * 6 * 56), 8 * 6 * 56)
        least = values + query + (queries * kept if is_kept else 0)
        for more in (0, query, 4 * query):
            layer.memory_limit = least + more
            assert (layer(x) - whole).abs().max() <= output_bound(layer, x)
        layer.memory_limit = least - 1
        with pytest.raises(
            EngineError, match=r"needs .* for 6 heads, 18 queries, 56 keys, batch 3.*memory_limit allows"
        ):
            layer(x)
    layer.memory_limit = queries * kept + query - 1
    with pytest.raises(EngineError, match="all of whose probabilities are kept"):
        layer.attention_probabilities(size)
    layer.memory_limit += 1
    maps = layer.attention_probabilities(size)
    layer.memory_limit = 2**30
    assert torch.equal(maps, layer.attention_probabilities(size))
