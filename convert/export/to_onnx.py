"""A network of PyTorch's as an ONNX file of attention.

1. A copy of the network gets a plain convolution in the place of each attention layer: a node that can be found again.
2. ``torch.onnx.export`` writes it, with batch and size left open where the network's code allows that.
3. Every such node becomes the layer's attention, with its own centres and alpha (``onnx/write.py``).
4. It runs beside the network at other sizes and batches; those that do not stay open are closed (``open_sizes.py``).
5. onnx's checker looks at the result.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim

from ..arguments import USUAL_SIZES
from ..context import without_stack_traces
from ..errors import (
    ConversionError,
    InputError,
    OptionError,
    OutputError,
    Problem,
    ToolError,
    UnsupportedLayerError,
    importing,
    refusing,
    untraceable,
)
from ..inputs import call_with, example_image, fitted, named_tensors
from ..layer.checked import checked_model
from ..layer.layer import SelfAttention
from ..network.modules import modules_of
from ..onnx import onnx_package
from ..onnx.write import DEFAULT_FORM, WholeModel, attention_model, flaw, form_named, refusal
from ..spec import ConvSpec
from ..subclasses.padded import convolution
from ..write import write_file
from .open_sizes import Place, not_open

_OPSET = 18  # what torch's exporter is made for


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Attributes:
        path: The file.
        form: Form of the attention.
        layers: Names of the attention layers in it.
        unused: Names of those that are not, because no output of the network depends on them.
        closed: Axes of inputs, other than channels, that have one length in the file, such as "axis 2 of x (224)".
        unchecked: Why the file was not compared with the network, or None if it was.
    """

    path: Path
    form: str
    layers: tuple[str, ...]
    unused: tuple[str, ...] = ()
    closed: tuple[str, ...] = ()
    unchecked: str | None = None


def export_onnx(
    model: nn.Module,
    path: str | Path,
    *,
    size: Sequence[int] | None = None,
    inputs: Any = None,
    form: str = DEFAULT_FORM,
    force: bool = False,
    sources: Iterable[Path] = (),
) -> Exported:
    """Writes a converted network as an ONNX file without a convolution.

    Args:
        model: A network with attention layers.
        path: The file to write.
        size: An image size that the network runs on. Batch and size stay open where the file computes the network at
            two others, too; ``closed`` names the rest. By default the usual one of its number of axes
            (``USUAL_SIZES``).
        inputs: The network's inputs, if not one image: tensors by place or by name (``inputs.as_inputs``).
        form: Form of the attention: "separable" or "literal".
        force: Replace a file that is there.
        sources: Files that the network was read from, none of which the file may be.

    Raises:
        UnsupportedLayerError: A layer cannot be written in this form, or the exporter left a layer out.
        InputError: The network does not run on the image or the inputs.
        ConversionError: torch cannot export the network, or onnx's checker refuses the file.
        OtherNetworkError: The file does not compute the network, even at the size that it was made with.
        OptionError: A size and inputs are given.
        ToolError: The packages onnx and onnxscript are not installed.
        OutputError: The file exists, or cannot be written.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
        >>> _ = c2a.export_onnx(c2a.convert_model(cnn).model, "attention.onnx", size=(16, 16))
    """
    # refuse layers that this form cannot write
    checked_model(model)
    form_named(form)
    plain, layers = with_convolutions(model)
    reasons = {name: refusal(layer.values()) for name, layer in layers.items()}
    problems = [Problem(name, reason) for name, reason in reasons.items() if reason is not None]
    if problems:
        what = "; ".join(map(str, problems))
        raise UnsupportedLayerError(f"the network cannot be written in the form {form}: {what}", problems)
    if not layers:
        raise UnsupportedLayerError(
            "the model has no attention layer to export: export_onnx(convert_model(model).model, FILE)"
        )
    if inputs is not None and size is not None:
        raise OptionError("size and inputs exclude each other: inputs have their own shapes")
    # run the network with convolutions once
    first = next(iter(layers.values()))
    example = example_image(plain, size or USUAL_SIZES[first.spec.axes], batch=2) if inputs is None else inputs
    what = "the inputs" if inputs is not None else f"images {list(example.shape[1:])}"
    with refusing(f"the network does not run on {what}", InputError):
        call_with(plain, example)
    # trace it, and put attention in; again with fewer open axes until the file follows the network
    with TemporaryDirectory() as folder:
        traced, closed = Path(folder) / "traced.onnx", set[Place]()
        network = copy.deepcopy(model).cpu().eval()
        while True:
            _trace(plain, example, closed).save(traced)
            whole = attention_model(traced, layers.get, form=form, run=False)
            unused = _check_complete(whole, layers, plain, example)
            made = Path(folder) / "made.onnx"
            whole.save(made)
            found = not_open(made, network, fitted(plain, example))
            if not found.places:
                break
            closed |= found.places
        write_file(Path(path), partial(_write, whole), force=force, sources=sources)
    return Exported(Path(path), form, whole.layers, unused, found.closed, found.unchecked)


def with_convolutions(model: nn.Module) -> tuple[nn.Module, dict[str, SelfAttention]]:
    """A copy with a convolution of the same weights for each attention layer, and the layers by all their names."""
    plain, layers = copy.deepcopy(model).cpu().eval(), dict[str, SelfAttention]()
    for names, layer in modules_of(model, SelfAttention).items():
        # With a bias in any case: torch's exporter would compute one of zeros.
        conv = convolution(
            replace(traced_geometry(layer.spec), bias=True), device="cpu", dtype=layer.weight.dtype
        ).eval()
        with torch.no_grad():
            conv.weight.copy_(layer.weight)
            if conv.bias is not None:
                conv.bias.copy_(torch.zeros_like(conv.bias) if layer.bias is None else layer.bias)
        layers |= dict.fromkeys(names, layer)
        if names == ("",):
            return conv, layers
        for name in names:
            plain.set_submodule(name, conv)
    return plain, layers


def traced_geometry(spec: ConvSpec) -> ConvSpec:
    """A geometry with as many outputs for every size of the input, whose padding does not depend on the size.

    Padding that makes ceil(L / s) outputs of L pixels depends on L, and torch takes minutes for sizes that follow from
    sizes so. Half the reach d (K - 1) at either side makes as many, floor((L - 1) / s) + 1; what the padding holds does
    not enter a trace, and attention has that of the layer (``onnx/write.py``).
    """
    if spec.is_dynamic and all(reach % 2 == 0 for reach in spec.reach):
        return replace(spec, padding=tuple(reach // 2 for reach in spec.reach))
    return spec


def _trace(plain: nn.Module, inputs: Any, closed: Collection[Place]) -> torch.onnx.ONNXProgram:
    """The network as ONNX: for any batch and size where its code allows that, else any batch, else these shapes.

    Places that are closed, which are inputs and their axes, have their own lengths in any case.
    """
    onnx_package("exporting")
    with importing("onnxscript", ToolError('exporting needs the package onnxscript: pip install "conv2attn[onnx]"')):
        importlib.import_module("onnxscript")
    placed, named = fitted(plain, inputs)
    names = [*inspect.signature(plain.forward).parameters][: len(placed)]
    given = (*placed, *named.values())
    axes = [[range(each.ndim) for each in given], [range(1 if each.ndim > 1 else 0) for each in given]]
    opened = [
        [{a: Dim.AUTO for a in own if a != 1 and (place, a) not in closed} for place, own in enumerate(each)]
        for each in axes
    ]
    shapes = [dict(zip((*names, *named), each, strict=False)) if named else tuple(each) for each in opened]
    try:
        # Without stack traces, which would put paths of this machine into the file.
        with torch.no_grad(), without_stack_traces(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about its internals
            for left_open in (*shapes, None):
                try:
                    program = torch.export.export(
                        plain, placed, named, dynamic_shapes=left_open, prefer_deferred_runtime_asserts_over_guards=True
                    )
                    made = torch.onnx.export(
                        program, args=(), dynamo=True, optimize=False, opset_version=_OPSET, verbose=False
                    )
                    break
                except Exception:  # whatever the network's code and the exporter raise where a size is left open
                    if left_open is None:
                        raise
    except Exception as error:  # whatever the network's code and torch's exporter raise
        raise ConversionError(f"torch cannot export the network: {untraceable(error)}") from error
    if made is None:
        raise ConversionError("torch gave no ONNX program")
    return made


def _check_complete(
    whole: WholeModel, layers: dict[str, SelfAttention], plain: nn.Module, inputs: Any
) -> tuple[str, ...]:
    """Refuses a file that has a convolution of a layer, or lacks one that an output depends on; names the others."""
    kept = {layers[name] for name in whole.layers}
    lost = {layer: name for name, layer in layers.items() if layer not in kept}
    unused = _unused(plain, inputs, tuple(lost.values())) if lost else ()
    missing = (Problem(name, "torch's exporter left it out") for name in lost.values() if name not in unused)
    problems = [*whole.refused, *missing]
    if problems:
        raise UnsupportedLayerError(f"the network is not exported whole: {'; '.join(map(str, problems))}", problems)
    return unused


def _unused(plain: nn.Module, inputs: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """The convolutions among these that no output of the network depends on: their weights have no gradient at all."""
    placed, named = fitted(plain, inputs)
    weights = [cast(Tensor, plain.get_submodule(name).weight).requires_grad_() for name in names]
    with torch.enable_grad():
        found = [each for each in named_tensors(plain(*placed, **named)).values() if each.requires_grad]
        if not found:
            return names
        gradients = torch.autograd.grad([each.sum() for each in found], weights, allow_unused=True)
    return tuple(name for name, gradient in zip(names, gradients, strict=True) if gradient is None)


def _write(whole: WholeModel, path: Path) -> None:
    whole.save(path)
    found = flaw(path)
    if found is not None:
        raise OutputError(f"onnx's checker refuses what would be written: {found}")
