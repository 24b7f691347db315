"""Faults in the construction, planted by several suites to see that they are caught."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.arguments import Size
from conv2attn.convert.engines import literal
from conv2attn.convert.heads.encoding import key_positions
from conv2attn.convert.spec import ConvSpec, reversed_pads


def shift_centers(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = vars(ConvSpec)["tap_offsets"].fget
    shifted = property(lambda spec: tuple((*before, max(column - 1, 0)) for *before, column in honest(spec)))
    monkeypatch.setattr(ConvSpec, "tap_offsets", shifted)


def swap_rows_and_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literal, "key_positions", lambda grid, *, like: key_positions(grid, like=like).flip(-1))


def ignore_stride(monkeypatch: pytest.MonkeyPatch) -> None:
    def unstrided(spec: ConvSpec, size: Size, *, like: Tensor) -> Tensor:
        output = spec.output_size(size)
        axes = (start + torch.arange(n, dtype=torch.float64) for start, n in zip(spec.middle, output, strict=True))
        return torch.cartesian_prod(*axes).view(-1, spec.axes)

    monkeypatch.setattr(literal, "all_queries", unstrided)


def attend_over_the_unpadded_border(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ConvSpec.pad

    def replicate(spec: ConvSpec, x: Tensor) -> Tensor:
        if spec.padding_mode != "zeros" or spec.transposed:
            return honest(spec, x)
        return nn.functional.pad(x, reversed_pads(spec.pads), mode="replicate")

    monkeypatch.setattr(ConvSpec, "pad", replicate)


def misplace_the_odd_pixel(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = vars(ConvSpec)["pads"].fget

    def swapped(spec: ConvSpec) -> tuple[tuple[int, int], ...]:
        return tuple((after, before) for before, after in honest(spec))

    monkeypatch.setattr(ConvSpec, "pads", property(swapped))


def drop_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = literal.project_values

    def without_the_last(layer: object, padded: Tensor) -> Tensor:
        values = honest(layer, padded).clone()  # type: ignore[arg-type]
        values[-1] = 0
        return values

    monkeypatch.setattr(literal, "project_values", without_the_last)
