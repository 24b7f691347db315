"""A converted network is exported to ONNX with dynamic batch and size, and the file computes what the network does."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import pytest
import torch
from onnx.reference import ReferenceEvaluator
from torch import nn
from torch.export import Dim

from conv2attn.convert import attention_from_conv, certify


@pytest.mark.parametrize(("alpha", "engine"), [(None, "literal"), (None, "sdpa"), (1.0, "separable"), (1.0, "auto")])
def test_an_exported_layer_computes_other_sizes(alpha: float | None, engine: str, tmp_path: Path) -> None:
    conv = nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=1, dilation=(1, 2), groups=2)
    layer = attention_from_conv(conv, alpha=alpha, engine=engine)
    sizes = {0: Dim("batch", min=2, max=64), 2: Dim("rows", min=4, max=64), 3: Dim("columns", min=4, max=64)}
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        program = torch.onnx.export(
            layer, (torch.randn(2, 2, 6, 7),), dynamo=True, dynamic_shapes=(sizes,), verbose=False
        )
    assert program is not None
    program.save(tmp_path / "layer.onnx")
    model = onnx.load(tmp_path / "layer.onnx")
    onnx.checker.check_model(model, full_check=True)
    evaluator = ReferenceEvaluator(model)
    for shape in ((2, 2, 6, 7), (3, 2, 11, 8)):
        x = torch.randn(shape).clamp(-1, 1)
        (output,) = list(evaluator.run(None, {model.graph.input[0].name: x.numpy()}))
        bound = 2 * certify(layer, input_range=(-1, 1)).rounding_attention
        assert (torch.from_numpy(output) - layer(x)).abs().max() <= bound
