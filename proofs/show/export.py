"""``conv2attn export``: a network's attention in other tools' formats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...convert.attention.layer import SelfAttention
from ...convert.certificate.sampled import inputs_of_layers
from ...convert.errors import ConversionError, OptionError, OutputError, Problem, UnsupportedLayerError
from ...convert.export.gpsa import GPSAConvolution, gpsa_from_attention
from ...convert.export.multihead import MultiheadConvolution, multihead_from_attention
from ...convert.export.network import export_onnx
from ...convert.export.onnx.forms import DEFAULT_FORM
from ...convert.files.checkpoint import Opening
from ...convert.files.open import open_network
from ...convert.files.tensors import write_safetensors
from ...convert.files.write import check_file, write_file
from ...convert.inputs import InputSpec, example_image, random_inputs
from ...convert.model.convert import convert_model
from ...convert.size import USUAL_SIZES, Size
from ..terminal.options import Target
from ..terminal.outcome import Done, wrote

_NAMES = {"mha": "multihead_attention", "gpsa": "gpsa"}  # names in the file's metadata
_Module = MultiheadConvolution | GPSAConvolution


def export_network(
    source: Path,
    out: Path,
    *,
    to: Target,
    opening: Opening,
    alpha: float | None,
    skip_unsupported: bool,
    size: Size | None,
    form: str | None,
    force: bool,
    inputs: Sequence[InputSpec] = (),
) -> Done:
    """Writes a network for another tool. The arguments are the command's options.

    Raises:
        OptionError: A form is given for a tool other than ONNX, or alpha for a converted network.
        ConversionError: The network cannot be opened, converted or expressed in the tool's terms.
    """
    ending = ".onnx" if to == "onnx" else ".safetensors"
    if out.suffix != ending:
        raise OutputError(f"{out} must end in {ending}, which is the kind of file that is written for {to}")
    if form is not None and to != "onnx":
        raise OptionError("a form is for ONNX files only")
    check_file(out, force=force, sources=[source])
    network = open_network(source, opening)
    sources = [source, *network.files]
    check_file(out, force=force, sources=sources)
    model = network.whole().as_saved()
    if not network.is_converted:
        model = convert_model(model, alpha=alpha, inplace=True, skip_unsupported=skip_unsupported).model
    elif alpha is not None or skip_unsupported:
        raise OptionError(f"{source} is converted already, so alpha and skipping layers have no meaning")
    layers = {name: module for name, module in model.named_modules() if isinstance(module, SelfAttention)}
    if inputs and (size is not None or to != "onnx"):
        raise OptionError("inputs are described for ONNX files, and have their own sizes")
    known = None if network.preprocessing is None else network.preprocessing.size
    axes = next(iter(layers.values())).spec.axes
    size = (size or known or USUAL_SIZES[axes]).along(axes)
    if to == "onnx":
        given: dict[str, Any] = {"inputs": random_inputs(inputs)} if inputs else {"size": size}
        made = export_onnx(model, out, **given, form=form or DEFAULT_FORM, force=force, sources=sources)
        told = f"without {', '.join(made.unused)}, which no output depends on" if made.unused else ""
        return wrote(out, told, form=made.form, layers=list(made.layers), unused=list(made.unused))
    seen = inputs_of_layers(model, example_image(model, size))
    if missing := layers.keys() - seen.keys():
        raise ConversionError(f"the network does not call {', '.join(sorted(missing))}")
    modules = _modules({name: (layers[name], Size(*x.shape[2:])) for name, x in seen.items()}, to)
    metadata = {_NAMES[to]: json.dumps({name: arguments(module) for name, module in modules.items()})}
    tensors = {
        f"{name}.{key}".removeprefix("."): value.contiguous()
        for name, module in modules.items()
        for key, value in module.state_dict().items()
    }
    write_file(out, partial(write_safetensors, tensors, metadata=metadata), force=force, sources=sources)
    return wrote(out, layers=list(modules))


def _modules(layers: dict[str, tuple[SelfAttention, Size]], to: Target) -> dict[str, _Module]:
    """Each layer, for inputs of a size, as the tool's attention.

    Raises:
        UnsupportedLayerError: Layers cannot be expressed in its terms; all of them are named.
    """
    make = gpsa_from_attention if to == "gpsa" else multihead_from_attention
    modules: dict[str, _Module] = {}
    problems = []
    for name, (layer, size) in layers.items():
        try:
            modules[name] = make(layer, size=size)
        except ConversionError as error:
            problems.append(Problem(name, str(error)))
    if problems:
        listed = "; ".join(f"{problem.name or 'the layer'}: {problem.reason}" for problem in problems)
        raise UnsupportedLayerError(f"the network cannot be written as {to}: {listed}", problems)
    return modules


def arguments(module: _Module) -> dict[str, object]:
    """Arguments that rebuild the module: those of its attention's class, and the geometry around it."""
    attention = module.attention
    if isinstance(module, GPSAConvolution):
        made: dict[str, object] = {"dim": attention.dim, "num_heads": attention.num_heads}
    else:
        names = ("embed_dim", "num_heads", "kdim", "vdim", "batch_first")
        made = {name: getattr(attention, name) for name in names}
    return made | {
        "size": list(module.size),
        "pads": [list(pair) for pair in module.spec.pads_at(module.size)],
        "output_size": list(module.spec.output_size(module.size)),
        "geometry": module.spec.to_json(),
    }
