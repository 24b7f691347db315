"""Data of the page: the report, and for each layer its geometry, its input, and a few output channels to compute.

The numbers of all channels together stay within a budget, so that the page stays small: every layer gets as many
channels as fit, and the last layers none if not even one for each does.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....convert.certificate.distance import told_distance
from ....convert.certificate.network.images import certify_images
from ....convert.certificate.sampled import sample_layer
from ....convert.errors import ConversionError
from ....convert.files.layers import Layers, attention_named
from ....convert.files.summary import Summary, is_the_cnn
from ....convert.layer.construction import not_a_convolution
from ....convert.layer.layer import SelfAttention
from ....convert.model.report import LayerReport, Report
from ...evidence.agreement import Agreement
from ...terminal.printable import CELL, printable
from ..pictures.scene import Scene
from .channels import channels_data, finite, numbers_of, pixels
from .views import look

BUDGET = 400_000  # numbers of four bytes in all channels: 2.1 MB of base64
MOST_CHANNELS = 3
_SAMPLED = "difference", "bound", "outputs"
MOST_NAMES = 10  # shown names of a shared layer


def not_drawn(reason: str) -> str:
    """A note on a layer that the page has no room for."""
    return f"not drawn in the page: {reason}"


def page_data(
    model: nn.Module,
    report: Report,
    image: Tensor,
    *,
    pixel: tuple[int, int] | None,
    only: str | None,
    agreement: Agreement | None,
    limit: float,
    summary: Summary | None,
) -> dict[str, Any]:
    """Everything that the page shows, as plain data. The arguments are those of ``make_page``.

    Raises:
        SelectionError: The pixel is outside the image.
    """
    entries = [entry for entry in report.layers if only is None or only in entry.names]
    found, unseen, left_out = look(model, entries, image, pixel, limit)
    trouble = unseen.get("")
    counts = _channel_counts([found[name] for name in found if trouble is None and name not in unseen])
    layers = []
    samples = {} if summary is None else dict(summary.samples)
    for entry in entries:
        scene = found.get(entry.name)
        unknown = unseen.get(entry.name) if trouble is None else None  # the page says what troubles all
        data = _entry_data(entry, attention_named(model, entry.name), left_out.get(entry.name), unknown)
        if scene is not None:
            data |= _scene_data(scene, counts.get(entry.name, 0))
            data["seen"] = trouble is None and unknown is None
            if data["seen"] and summary is None:
                with contextlib.suppress(ConversionError):
                    samples[entry.name] = sample_layer(scene.layer, scene.x)
        sample = samples.get(entry.name)
        data |= {name: None if sample is None else finite(getattr(sample, name)) for name in _SAMPLED}
        layers.append(data)
    heads = sum(entry.heads for entry in entries)
    if summary is None:
        summary = Summary(len(entries), heads, samples, trouble is None and is_the_cnn(model, image))
    return {
        "in_words": summary.in_words,
        "on_image": None if trouble is not None else _on_image(model, image),
        "image_size": list(image.shape[-2:]),
        "trouble": None if trouble is None else printable(trouble),
        "layers": layers,
        "layer_count": len(entries),
        "head_count": heads,
        "left_out": left_out,
        "skipped": [{name: printable(text, CELL) for name, text in vars(each).items()} for each in report.skipped],
        "skipped_count": len(report.skipped),
        "agreement": None if agreement is None else _agreement_data(agreement),
        "trained": _trained(model, entries),
    }


def _on_image(model: nn.Module, image: Tensor) -> str | None:
    """Estimate and proven bound for the image, by their names; None where the network has neither."""
    if isinstance(model, Layers):
        return None
    try:
        first = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
        return certify_images(model, image.to(first), margins=1).in_words
    except ConversionError:
        return None


def _trained(model: nn.Module, entries: Sequence[LayerReport]) -> list[str]:
    """Descriptions of what training has changed about where heads look; none for a network as it was converted."""
    layers = [attention_named(model, entry.name) for entry in entries]
    read = [layer for layer in layers if layer.regime.is_read]
    counts = {
        "positions of heads": sum(not layer.regime.at_taps or len(set(layer.regime.alpha)) > 1 for layer in read),
        "content attention": sum(layer.content is not None and not layer.content.is_off() for layer in read),
        "tables of positional scores": sum(layer.axis_scores is not None for layer in layers),
    }
    return [f"{what} in {count:,} layer{'' if count == 1 else 's'}" for what, count in counts.items() if count]


def _channel_counts(shown: Sequence[Scene]) -> dict[str, int]:
    """Number of output channels that the page holds of each layer, by name."""
    for most in range(MOST_CHANNELS, 0, -1):
        counts = {scene.name: min(most, scene.layer.out_channels) for scene in shown}
        if sum(numbers_of(scene, counts[scene.name]) for scene in shown) <= BUDGET:
            return counts
    counts, left = {}, BUDGET
    for scene in shown:
        counts[scene.name] = int(numbers_of(scene, 1) <= left)
        left -= counts[scene.name] * numbers_of(scene, 1)
    return counts


def _entry_data(entry: LayerReport, layer: SelfAttention, left_out: str | None, unknown: str | None) -> dict[str, Any]:
    """The page's data about a layer: its first names, and notes on why it is no convolution, not drawn or not run."""
    notes = [] if entry.note is None else [entry.note]
    if layer.regime.is_read and (reason := not_a_convolution(layer, tolerance=math.inf)) is not None:
        notes.append(f"no longer a convolution: {reason}{told_distance(layer)}")
    if left_out or unknown:
        notes.append(not_drawn(left_out) if left_out else f"not computed: {unknown}")
    alphas, more = list(layer.regime.alpha), len(entry.names) - MOST_NAMES
    names = [printable(name, CELL) for name in entry.names[:MOST_NAMES]]
    return {
        "names": [*names, f"and {more:,} more"] if more > 0 else names,
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
        "pads": [number for pair in spec.pads_at(scene.size) for number in pair],
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
        "drawn": scene.note,
        "alpha": finite(list(layer.regime.alpha)),
    }
    if channels and data["positional"]:
        data |= channels_data(scene, channels)
    return data


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
            printable(layer.name, CELL): finite([layer.own, layer.bound, layer.outputs]) for layer in first.layers
        },
    }
