"""LiteRT: litert-torch writes the file, XNNPACK runs it; without a delegate, LiteRT's own kernels do."""

from __future__ import annotations

import contextlib
import io
from importlib.metadata import version
from pathlib import Path

import litert_torch
import torch
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from torch import Tensor, nn

from benchmarks.engines.port import Call

PACKAGE = "litert-torch ai-edge-litert"
VERSION = version("ai-edge-litert")
DECLARED = {"XNNPACK": "float32", "own kernels": "float32"}


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Call:
    """The network in LiteRT."""
    path = folder / "network.tflite"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        litert_torch.convert(network, (inputs,)).export(str(path))
    resolver = OpResolverType.AUTO if way == "XNNPACK" else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    given, found = interpreter.get_input_details()[0], interpreter.get_output_details()[0]

    def call(x: Tensor) -> Tensor:
        interpreter.set_tensor(given["index"], x.numpy().astype(given["dtype"]))
        interpreter.invoke()
        return torch.from_numpy(interpreter.get_tensor(found["index"]).copy())

    return call
