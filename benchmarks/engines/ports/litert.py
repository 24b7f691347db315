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

from benchmarks.engines.port import Calls

PACKAGE = "litert-torch ai-edge-litert"
VERSION = version("ai-edge-litert")
DECLARED = {"XNNPACK": "float32", "own kernels": "float32"}


def port(network: nn.Module, inputs: Tensor, way: str, folder: Path) -> Calls:
    """The network in LiteRT."""
    path = folder / "network.tflite"
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        litert_torch.convert(network, (inputs,)).export(str(path))
    resolver = OpResolverType.AUTO if way == "XNNPACK" else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(str(path), experimental_op_resolver_type=resolver, num_threads=1)
    interpreter.allocate_tensors()
    dtype = interpreter.get_input_details()[0]["dtype"]
    run = interpreter.get_signature_runner()

    def call(x: Tensor) -> tuple[Tensor, ...]:
        found = run(args_0=x.numpy().astype(dtype))
        return tuple(torch.from_numpy(found[f"output_{place}"].copy()) for place in range(len(found)))

    return call
