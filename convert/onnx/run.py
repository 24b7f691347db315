"""Runs ONNX files by ONNX Runtime, and makes inputs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arguments import USUAL_SIZES, Size
from ..errors import OptionError, ToolError, importing

Feeds = Mapping[str, NDArray[Any]]
IMAGES = 2  # in a batch, where the file leaves that open
_TYPES = {"float": "float32", "double": "float64", **{name: name for name in ("float16", "int64", "int32", "bool")}}


def session(model: Path | bytes, *, optimised: bool = True) -> Any:
    """A session of ONNX Runtime's on the CPU, of a file or of its content.

    Args:
        model: The file or its content.
        optimised: Whether nodes may be fused and changed.

    Raises:
        ToolError: It is not installed.
        LibraryError: It cannot be imported.
    """
    with importing("onnxruntime", ToolError('running ONNX files needs ONNX Runtime (pip install "conv2attn[onnx]")')):
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # only fatal errors
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = str(model) if isinstance(model, Path) else model
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def random_feeds(model: Any, *, size: Size | None, count: int | None, seed: int) -> Feeds:
    """Normal numbers for inputs of floating point, zeros for others, where sizes are open in the usual ones.

    Args:
        model: A session.
        size: The last sizes of inputs that leave them open.
        count: The first, by default ``IMAGES``.
        seed: Seed of the numbers.

    Raises:
        OptionError: An input is of another kind.
    """
    generator, found = np.random.default_rng(seed), dict[str, NDArray[Any]]()
    for port in model.get_inputs():
        kind = _TYPES.get(port.type.removeprefix("tensor(").removesuffix(")"))
        if kind is None:
            raise OptionError(f"the input {port.name!r} is of {port.type}, for which no random numbers can be drawn")
        shape = _shape(port.shape, size, count)
        drawn = generator.standard_normal(shape) if kind.startswith("float") else np.zeros(shape)
        found[port.name] = drawn.astype(kind)
    return found


def _shape(declared: Sequence[Any], size: Size | None, count: int | None) -> list[int]:
    """A shape with numbers in the place of what is open: the batch, and then the size.

    The size is that of the last axes; of those before the last one where channels come last, as TensorFlow has them.
    """
    others = max(len(declared) - 1, 0)
    wanted = (size or USUAL_SIZES.get(others - 1, Size(*[1] * others)))[-others:] if others else ()
    are_known = [isinstance(known, int) and known > 0 for known in declared]
    channels_last = others > len(wanted) and are_known[-1] and not are_known[1]
    sizes = [count or IMAGES, *[1] * others]
    end = len(sizes) - channels_last
    sizes[end - len(wanted) : end] = wanted
    return [known if is_known else drawn for known, is_known, drawn in zip(declared, are_known, sizes, strict=False)]
