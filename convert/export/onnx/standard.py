"""Models that a form of attention can be put into, and onnx's checker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import CheckpointError, first_line
from ...files.readers.onnx import onnx_package
from .forms import form_named

if TYPE_CHECKING:
    from onnx import ModelProto


def fitted_model(path: Path, form: str) -> ModelProto:
    """Loads a model, and brings it to the form's version of the standard if it is older.

    Raises:
        ToolError: The package onnx is not installed.
        CheckpointError: The file is damaged, or onnx cannot convert it.
    """
    needed = form_named(form).opset
    onnx_package("writing ONNX files")
    from onnx import version_converter

    from ...files.readers.onnx.load import OWN_DOMAINS, load_model

    model, _ = load_model(path)
    if max((one.version for one in model.opset_import if one.domain in OWN_DOMAINS), default=1) >= needed:
        return model
    try:
        return version_converter.convert_version(model, needed)
    except Exception as error:  # whatever onnx's own code raises
        raise CheckpointError(f"onnx cannot bring {path} to opset {needed}: {first_line(error)}") from error


def flaw(path: Path) -> str | None:
    """The first thing that onnx's checker finds wrong with a file, with the shapes that it infers; None if nothing.

    Raises:
        ToolError: The package onnx is not installed.
    """
    onnx = onnx_package("checking ONNX files")
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except Exception as error:  # ValidationError, InferenceError, and protobuf's own
        return first_line(error)
    return None
