"""``conv2attn export``: a network's attention as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..convert.arguments import USUAL_SIZES, Size
from ..convert.errors import OptionError
from ..convert.export.to_onnx import export_onnx
from ..convert.files.opening import Opening
from ..convert.input_specs import InputSpec
from ..convert.inputs import random_inputs
from ..convert.layer.layer import SelfAttention
from ..convert.network.convert import convert_model
from ..convert.onnx.write import DEFAULT_FORM
from ..convert.write import check_file
from .inputs import refuse_conversion
from .opening import opened
from .terminal import Done, wrote


def export_network(
    source: Path,
    out: Path,
    *,
    opening: Opening,
    alpha: float | None,
    skip_unsupported: bool,
    size: Size | None,
    form: str | None,
    force: bool,
    inputs: Sequence[InputSpec] = (),
) -> Done:
    """Writes a network as ONNX. The arguments are the command's options."""
    # open it, and convert a CNN first
    network = opened(source, opening)
    sources = [source, *network.files]
    check_file(out, force=force, sources=sources)
    model = network.whole().as_saved()
    if not network.is_converted:
        model = convert_model(model, alpha=alpha, inplace=True, skip_unsupported=skip_unsupported).model
    else:
        refuse_conversion(source, alpha=alpha, skip_unsupported=skip_unsupported)
    # choose inputs, and write
    if inputs and size is not None:
        raise OptionError("described inputs have their own sizes; leave the size out")
    known = None if network.preprocessing is None else network.preprocessing.size
    axes = next(module for module in model.modules() if isinstance(module, SelfAttention)).spec.axes
    given: dict[str, Any] = (
        {"inputs": random_inputs(inputs)} if inputs else {"size": (size or known or USUAL_SIZES[axes]).along(axes)}
    )
    made = export_onnx(model, out, **given, form=form or DEFAULT_FORM, force=force, sources=sources)
    content = f"{len(made.layers)} attention layers in the {made.form} form, in place of their convolutions"
    content += f"; without {', '.join(made.unused)}, which no output depends on" if made.unused else ""
    content += f"; of one length: {', '.join(made.closed)}" if made.closed else ""
    content += f"; not compared with the network: {made.unchecked}" if made.unchecked else ""
    checked: dict[str, Any] = {"unused": list(made.unused), "closed": list(made.closed), "unchecked": made.unchecked}
    return wrote(out, content, form=made.form, layers=list(made.layers), **checked)
