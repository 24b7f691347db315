"""What the page knows: the report, and for each layer its geometry, its input, and a few output channels to compute.

The numbers of all channels together stay within a budget, so that the page stays small: every layer gets as many
channels as fit, and the last layers none if not even one for each does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....convert.attention.layer import SelfAttention2d
from ....convert.errors import ConversionError, Problem, SelectionError
from ....convert.files.config import attention_named
from ....convert.model.report import LayerReport, Report
from ....convert.spec import ConvSpec, Size
from ...evidence.agreement import Agreement
from ...terminal.printable import CELL, printable
from ..pictures.curve import bounds_or_none, convolution, input_range
from ..pictures.scene import Scene, scenes
from .channels import channels_data, numbers_of
from .encode import finite, pixels
from .room import LAYERS, Room

BUDGET = 400_000  # numbers of four bytes in all channels: 2.1 MB of base64
MOST_CHANNELS = 3
_UNSEEN = 32  # pixels of the side of an input that no network has computed


def not_drawn(reason: str) -> str:
    """The note on a layer that the page has no room for."""
    return f"not drawn in the page: {reason}"


def page_data(
    model: nn.Module,
    report: Report,
    image: Tensor,
    *,
    pixel: tuple[int, int] | None = None,
    only: str | None = None,
    agreement: Agreement | None = None,
    limit: float = math.inf,
) -> dict[str, Any]:
    """Everything that the page shows, as plain data.

    Args:
        model: The converted network.
        report: What was converted.
        image: What the network looks at, [1, channels, rows, columns].
        pixel: The first query, as a pixel of the image; by default its middle.
        only: Name of the only layer to show.
        agreement: A comparison of the network with its CNN, if one was made.
        limit: Most multiply-adds that running the network may take.

    Raises:
        SelectionError: The pixel is outside the image.
    """
    chosen = [entry for entry in report.layers if only is None or only in entry.names]
    entries = chosen[:LAYERS]
    found, trouble, left_out = _look(model, entries, image, pixel, limit)
    left_out |= dict.fromkeys((entry.name for entry in chosen[LAYERS:]), f"the page lists {LAYERS:,} layers")
    counts = channel_counts([found[entry.name] for entry in entries if entry.name in found] if trouble is None else [])
    layers = []
    for entry in entries:
        scene = found.get(entry.name)
        data = _entry_data(entry, attention_named(model, entry.name), left_out.get(entry.name))
        if scene is not None:
            data |= _scene_data(scene, 0 if trouble else counts.get(entry.name, 0))
            data["seen"] = trouble is None
        layers.append(data)
    return {
        "image_size": list(image.shape[-2:]),
        "trouble": None if trouble is None else printable(trouble),
        "layers": layers,
        "layer_count": len(chosen),
        "head_count": sum(entry.heads for entry in chosen),
        "left_out": left_out,
        "skipped": [_printable_problem(problem) for problem in report.skipped[:LAYERS]],
        "skipped_count": len(report.skipped),
        "agreement": None if agreement is None else _agreement_data(agreement),
    }


def channel_counts(shown: Sequence[Scene], budget: int = BUDGET) -> dict[str, int]:
    """How many output channels of each layer the page holds, by the layer's name."""
    for most in range(MOST_CHANNELS, 0, -1):
        counts = {scene.name: min(most, scene.layer.out_channels) for scene in shown}
        if sum(numbers_of(scene, counts[scene.name]) for scene in shown) <= budget:
            return counts
    counts, left = {}, budget
    for scene in shown:
        counts[scene.name] = int(numbers_of(scene, 1) <= left)
        left -= counts[scene.name] * numbers_of(scene, 1)
    return counts


def _look(
    model: nn.Module, entries: Sequence[LayerReport], image: Tensor, pixel: tuple[int, int] | None, limit: float
) -> tuple[dict[str, Scene], str | None, dict[str, str]]:
    """What each layer sees, by its name; why the network does not run on the image; and which layers lack room."""
    trouble, seen = None, {}
    try:
        seen = {scene.name: scene for scene in scenes(model, image, pixel=pixel, limit=limit)}
    except SelectionError:
        raise
    except ConversionError as error:
        trouble = str(error)
    room, found, left_out = Room(), {}, {}
    for entry in entries:
        size = (
            _unseen_size(entry.spec) if trouble is not None else seen[entry.name].size if entry.name in seen else None
        )
        if size is None:
            continue
        reason = room.take(entry.spec, size)
        if reason is not None:
            left_out[entry.name] = reason
        else:
            found[entry.name] = (
                _unseen(entry.name, attention_named(model, entry.name), size)
                if trouble is not None
                else seen[entry.name]
            )
    return found, trouble, left_out


def _unseen_size(spec: ConvSpec) -> Size:
    """The size of an input that is not known: large enough for the kernel and the padding."""
    span = (d * (k - 1) + 1 for d, k in zip(spec.dilation, spec.kernel_size, strict=True))
    wrapped = 0 if spec.padding_mode in ("zeros", "replicate") else max(spec.pads) + 1
    return Size(*(max(_UNSEEN, n, wrapped) for n in span))


def _unseen(name: str, layer: SelfAttention2d, size: Size) -> Scene:
    """The scene of a layer whose input is unknown: zeros of this size."""
    output = layer.spec.output_size(size)
    return Scene(name, layer, torch.zeros(1, layer.spec.in_channels, *size), (output.rows // 2, output.columns // 2))


def _printable_problem(problem: Problem) -> dict[str, str]:
    return {"name": printable(problem.name, CELL), "reason": printable(problem.reason, CELL)}


def _entry_data(entry: LayerReport, layer: SelfAttention2d, left_out: str | None) -> dict[str, Any]:
    notes = [note for note in (entry.note, None if left_out is None else not_drawn(left_out)) if note is not None]
    alphas = list(layer.regime.alpha)
    return {
        "names": [printable(name, CELL) for name in entry.names],
        "geometry": str(entry.spec),
        "heads": entry.heads,
        "parameters_before": entry.parameters_before,
        "parameters_after": entry.parameters_after,
        "alpha": finite(alphas if left_out is None else [min(alphas), max(alphas)]),
        "note": printable("; ".join(notes), CELL) if notes else None,
        "seen": False,
    }


@torch.no_grad()
def _scene_data(scene: Scene, channels: int) -> dict[str, Any]:
    """A layer's geometry, its input as a picture, and its channels."""
    layer, spec = scene.layer, scene.layer.spec
    centres = [list(centre) for centre in layer.regime.centers]
    data = {
        "kernel_size": list(spec.kernel_size),
        "stride": list(spec.stride),
        "pads": list(spec.pads),
        "padding_mode": spec.padding_mode,
        "out_channels": spec.out_channels,
        "in_channels": spec.in_channels,
        "input_size": list(scene.size),
        "padded_size": list(spec.padded_size(scene.size)),
        "output_size": list(spec.output_size(scene.size)),
        "centers": finite(centres),
        "middle": list(spec.middle),
        "query": list(scene.query),
        "positional": layer.content is None and layer.axis_scores is None,
        "at_taps": layer.regime.at_taps,
        "picture": _picture(scene),
    }
    if channels:
        data |= _difference(scene)
    if channels and data["positional"]:
        data |= channels_data(scene, channels)
    return data


def _difference(scene: Scene) -> dict[str, float | None]:
    """How far the layer is from its convolution on this input, in an engine that calls none, its bound and outputs."""
    layer = scene.layer
    engine, layer.engine = layer.engine, "literal" if layer.content is not None else "separable"
    try:
        expected = convolution(layer, scene.x)
        difference = float((layer(scene.x) - expected).abs().max())
    finally:
        layer.engine = engine
    bounds = bounds_or_none(layer, input_range(scene.x))
    largest = {"outputs": finite(float(expected.abs().max()))}
    return {"difference": finite(difference), "bound": None if bounds is None else max(bounds), **largest}


def _picture(scene: Scene) -> dict[str, Any]:
    """The padded input as grey or coloured pixels: its three channels, or the mean over all."""
    x = scene.x if scene.x.shape[1] == 3 else scene.x.mean(1, keepdim=True, dtype=torch.float64)
    shown = scene.layer.spec.pad(x.double().cpu())[0]
    low, high = float(shown.min()), float(shown.max())
    planes = (shown - low) / ((high - low) or 1.0)
    return {"channels": len(planes), "data": pixels(planes)}


def _agreement_data(agreement: Agreement) -> dict[str, Any]:
    """The comparison of whole networks in the engine that shares no step with the convolution, and its layers."""
    first = agreement.engines[0]
    return {
        "images": agreement.images,
        "accuracy": finite(agreement.accuracy),
        "engine": first.engine,
        "attention_accuracy": finite(first.accuracy),
        "top1_agreement": first.top1_agreement,
        "logit_difference": finite(first.logit_difference),
        "layers": {
            printable(layer.name, CELL): finite([layer.difference, layer.bound, layer.outputs])
            for layer in first.layers
        },
    }
