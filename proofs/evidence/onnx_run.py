"""Runs ONNX files by ONNX Runtime, and makes inputs for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...convert.errors import OptionError, ToolError
from ...convert.size import USUAL_SIZES, Size

Feeds = Mapping[str, NDArray[Any]]
IMAGES = 2  # in a batch, where the file leaves that open
_TYPES = {
    "float": "float32",
    "double": "float64",
    "float16": "float16",
    "int64": "int64",
    "int32": "int32",
    "bool": "bool",
}


def session(model: Path | bytes) -> Any:
    """A session of ONNX Runtime's on the CPU, of a file or of its content.

    Raises:
        ToolError: It is not installed.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise ToolError('running ONNX files takes ONNX Runtime (pip install "conv2attn[onnx]")') from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is fatal
    return onnxruntime.InferenceSession(
        str(model) if isinstance(model, Path) else model, options, providers=["CPUExecutionProvider"]
    )


def random_feeds(model: Any, *, size: Size | None, count: int | None, seed: int) -> Feeds:
    """Normal numbers for inputs of floating point, zeros for others, where sizes are open in the usual ones.

    Args:
        model: A session.
        size: The last sizes of inputs that leave them open.
        count: The first, by default ``IMAGES``.
        seed: Of the numbers.

    Raises:
        OptionError: An input is of another kind.
    """
    generator, found = np.random.default_rng(seed), dict[str, NDArray[Any]]()
    for port in model.get_inputs():
        kind = port.type.removeprefix("tensor(").removesuffix(")")
        if kind not in _TYPES:
            raise OptionError(f"the input {port.name!r} is of {port.type}, which no random numbers are")
        shape = _shape(port.shape, size, count)
        drawn = generator.standard_normal(shape) if "float" in kind or kind == "double" else np.zeros(shape)
        found[port.name] = drawn.astype(_TYPES[kind])
    return found


def _shape(declared: Sequence[object], size: Size | None, count: int | None) -> list[int]:
    """A shape with numbers in the place of what is open: the batch, and then the size.

    The size is that of the last axes; of those before the last one where channels come last, as TensorFlow has them.
    """
    usual = USUAL_SIZES.get(len(declared) - 2, Size(*[1] * max(len(declared) - 1, 0)))
    sizes = [count or IMAGES, *[1] * (len(declared) - 1)]
    wanted = (usual if size is None else size)[-max(len(declared) - 1, 0) :] if len(declared) > 1 else ()
    are_known = [isinstance(known, int) and known > 0 for known in declared]
    channels_last = len(declared) > len(wanted) + 1 and are_known[-1] and not are_known[1]
    end = len(sizes) - channels_last
    sizes[end - len(wanted) : end] = wanted
    return [cast(int, known) if are_known[axis] else sizes[axis] for axis, known in enumerate(declared)]
