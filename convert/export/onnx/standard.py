"""What the package ``onnx`` does for a file: its checker, newer versions of the standard, functions put into the graph.

Reading and writing files here needs no package. A user's file is changed by it only where a form of
attention needs that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, ToolError
from ...files.readers.common.beside import Beside
from ...files.readers.common.stored import Source, StoredTensor
from ...files.readers.onnx.model import read_nodes, read_onnx
from ...files.writing.json_text import as_unicode
from ...files.writing.scratch import scratch_folder
from .forms import form_named
from .splice import check_moved, opset_of


@contextmanager
def fitted(path: Path, form: str) -> Iterator[Path]:
    """A file that a form of attention can be put into: the one that is given, or a copy that is changed for it.

    The copy is of the form's version of the standard, as onnx's converter makes it, and its functions lie in the graph,
    where one of them holds a convolution. It is gone when the context ends.

    Raises:
        ToolError: It needs a change, and the package onnx is not installed.
        CheckpointError: The file is damaged, or cannot be changed so.
    """
    source = Source(path)
    open_beside = Beside(source).open
    needed, opset = form_named(form).opset, opset_of(source)
    calls = any(found.is_called for found in read_nodes(source, open_beside))
    if opset >= needed and not calls:
        yield path
        return
    outside = [
        found
        for found in read_onnx(source, open_beside)[0].values()
        if isinstance(found, StoredTensor) and found.storage.source is not source
    ]
    if outside:  # onnx's own code reads them all
        check_moved(sum(found.numel * found.dtype.itemsize for found in outside), source)
    with scratch_folder() as folder:
        copy = folder / "model.onnx"
        _change(path, copy, opset=max(needed, opset), inline=calls)
        yield copy


def _change(path: Path, copy: Path, *, opset: int, inline: bool) -> None:
    onnx = _package(f"{path} needs another version of the standard (opset {opset}), or its functions in its graph")
    from onnx import inliner, version_converter

    try:
        model = onnx.load(path)
        model = inliner.inline_local_functions(model) if inline else model
        if opset_of(Source(path)) < opset:
            model = version_converter.convert_version(model, opset)
        onnx.save(model, copy)
    except Exception as error:  # whatever onnx's own code raises
        raise CheckpointError(f"onnx cannot bring {path} to opset {opset}: {_first_line(error)}") from error


def flaw(path: Path) -> str | None:
    """What onnx's checker finds wrong with a file, with the shapes that it infers; None if nothing.

    Raises:
        ToolError: The package onnx is not installed.
    """
    onnx = _package(f"{path} is to be checked")
    if (name := str(path)) != as_unicode(name):
        return "its path is not UTF-8, which onnx needs"
    try:
        onnx.checker.check_model(name, full_check=True)
    except Exception as error:  # ValidationError, InferenceError, and protobuf's own
        return _first_line(error)
    return None


def _package(why: str) -> Any:
    try:
        import onnx
    except ImportError as error:
        raise ToolError(f'{why}, which takes the package onnx (pip install "conv2attn[onnx]")') from error
    return onnx


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
