"""MNN: it converts ONNX files. Importing ``MNN.tools`` installs a package that reports use; ``_tools`` does not."""

from __future__ import annotations

from pathlib import Path

import _tools
import MNN
import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.engines.port import Calls
from benchmarks.engines.ports.onnxruntime import exported, outputs_of

PACKAGE = "MNN"
VERSION = MNN.version()
DECLARED = {"precision high": "float32", "precision normal": "float32", "precision low": "bfloat16 stored"}


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in MNN's backend for processors."""
    path, made = exported(network, inputs, folder / "network.onnx"), str(folder / "network.mnn")
    _tools.mnnconvert(["mnnconvert", "-f", "ONNX", "--modelFile", str(path), "--MNNModel", made, "--bizCode", "x"])
    names = [f"y{place}" for place in range(len(outputs_of(network(inputs))))]
    config = {"backend": "CPU", "precision": way.split()[1], "numThread": 1}
    manager = MNN.nn.create_runtime_manager((config,))
    module = MNN.nn.load_module_from_file(made, ["x"], names, runtime_manager=manager)

    def call(x: Tensor) -> tuple[Tensor, ...]:
        kind, given = (MNN.expr.float, x) if x.is_floating_point() else (MNN.expr.int, x.int())
        made = MNN.expr.const(given.numpy(), list(x.shape), MNN.expr.NCHW, kind)
        found = (MNN.expr.convert(one, MNN.expr.NCHW) for one in module.forward([made]))
        return tuple(torch.from_numpy(np.array(one.read())) for one in found)

    return call
