"""Both axes at once: one product is the two passes, in the shape that torch computes fast."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from conv2attn.convert.engines import joint
from conv2attn.convert.engines.convolution import Geometry, convolve
from conv2attn.convert.engines.joint import JointStencil, JointTable
from conv2attn.convert.engines.processor import LANES
from conv2attn.convert.engines.stencil import Stencil

ROWS = Stencil(torch.tensor([2.0, -1.0, 3.0]), torch.tensor([1.0, 2.0, 4.0]), 2, 1)  # of 5 rows
COLUMNS = Stencil(torch.tensor([5.0, 1.0]), torch.tensor([1.0, 3.0, -2.0, 1.0, 2.0]), 1, 0)  # of 6 columns
FORMATS = (torch.contiguous_format, torch.channels_last)


def images(channels: int, layout: torch.memory_format) -> Tensor:
    return torch.randint(-9, 10, (2, channels, 5, 6)).float().contiguous(memory_format=layout)


@pytest.mark.parametrize("channels", [1, 3, LANES, LANES + 1])
@pytest.mark.parametrize("layout", FORMATS)
def test_one_stencil_along_both_axes_is_one_along_each(channels: int, layout: torch.memory_format) -> None:
    both = JointStencil.of(ROWS, COLUMNS, 30, images=channels, channels_last=False)
    x = images(channels, layout)
    assert torch.equal(both(x), COLUMNS.columns_of(ROWS.rows_of(x)))
    assert (both.stride, both.padding) == ((2, 1), (1, 0))
    assert both.nbytes == 4 * (3 * 2 + 3 * 5)


@pytest.mark.parametrize(
    ("channels", "layout", "asked"),
    [
        (3, torch.contiguous_format, (1, 6, 5, 6)),
        (3, torch.channels_last, (2, 3, 5, 6)),
        (LANES, torch.contiguous_format, (2, LANES, 5, 6)),
        (2 * LANES, torch.contiguous_format, (2, 2 * LANES, 5, 6)),
        (LANES - 1, torch.contiguous_format, (1, 2 * LANES - 2, 5, 6)),
    ],
)
def test_images_become_channels_where_channels_do_not_fill_the_registers(
    channels: int, layout: torch.memory_format, asked: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[tuple[int, ...], int]] = []

    def noted(x: Tensor, weight: Tensor, bias: None, geometry: Geometry) -> Tensor:
        seen.append((tuple(x.shape), geometry.groups))
        return convolve(x, weight, bias, geometry)

    monkeypatch.setattr(joint, "convolve", noted)
    JointStencil.of(ROWS, COLUMNS, 30, images=1, channels_last=False)(images(channels, layout))
    assert seen == [(asked, asked[1])]


@pytest.mark.parametrize("layout", FORMATS)
def test_one_table_along_both_axes_is_one_along_each(layout: torch.memory_format) -> None:
    rows, columns = (torch.randint(-9, 10, shape).float() for shape in ((3, 5), (4, 6)))
    both, x = JointTable.of(rows, columns, images=1, channels_last=False), images(2, layout)
    assert torch.equal(both(x), rows @ x @ columns.T)
    assert both.queries == (3, 4)
    assert both.nbytes == 4 * 3 * 4 * 5 * 6
