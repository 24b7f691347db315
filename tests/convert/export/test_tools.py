"""PyTorch's tools on converted networks: what FlopCounterMode counts, and training in two processes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from conv2attn.convert import attention_from_conv
from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.heads.encoding import encoding_dim
from tests.convert.export.two_processes import NETWORKS, WAYS
from tests.processes import finished

SIZE, BATCH = Size(9, 12), 2
FUSED_ON_CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def conv() -> nn.Conv2d:
    return nn.Conv2d(6, 8, 3, stride=(2, 1), padding=1, groups=2)


def counted(layer: nn.Module, **options: Any) -> int:
    """FLOPs as PyTorch's own tool counts them."""
    with FlopCounterMode(display=False, **options) as counter:
        layer(torch.randn(BATCH, 6, *SIZE))
    return int(counter.get_total_flops())


def attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(sdpa_flop_count(query, key, value))


def pairs() -> int:
    """A head, a query and a key each, of one image."""
    return 9 * (5 * 12) * (11 * 14)


def test_one_hot_attention_counts_as_its_convolution() -> None:
    layer = conv()
    assert counted(attention_from_conv(layer)) == counted(layer) > 0


@pytest.mark.parametrize("alpha", [None, 2.0])
def test_the_literal_engine_counts_its_products_with_values_and_not_its_scores(alpha: float | None) -> None:
    layer = attention_from_conv(conv(), alpha=alpha, engine="literal")
    scores = (2 * encoding_dim(2) + 4) * pairs()
    assert counted(layer) == ENGINES["literal"].cost(layer.values(), SIZE, batch=BATCH).flops - scores


def test_fused_attention_on_a_cpu_counts_once_the_counter_is_told_its_formula() -> None:
    layer = attention_from_conv(conv(), engine="sdpa")
    softmax = 4 * BATCH * pairs()
    total = ENGINES["sdpa"].cost(layer.values(), SIZE, batch=BATCH).flops - softmax
    with torch.no_grad():
        assert counted(layer, custom_mapping={FUSED_ON_CPU: attention_flops}) == total


@pytest.mark.parametrize("engine", ["separable", "factored"])
def test_the_engines_along_axes_count_at_least_the_convolution_and_less_than_the_literal_one(engine: str) -> None:
    layer = conv()
    total = counted(attention_from_conv(layer, alpha=2.0, engine=engine))
    assert counted(layer) <= total < counted(attention_from_conv(layer, alpha=2.0, engine="literal"))


@pytest.mark.slow
def test_ddp_and_fsdp2_in_two_processes_train_as_one_process_bit_for_bit(tmp_path: Path) -> None:
    """Two images a process; the loss is a mean, and halves are added, so no sum depends on the number of processes."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.convert.export.two_processes"]
    root = Path(__file__).parents[3]
    done = finished([*command, tmp_path / "store"], cwd=root)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [f"{way}:{name}:same" for way in WAYS for name in NETWORKS]
