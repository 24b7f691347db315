"""The data of the page: the report, and for each layer its geometry, its input, and a few output channels to compute.

The numbers of all channels together stay within a budget, so that the page stays small: every layer gets as many
channels as fit, and the last layers none if not even one for each does.

The page computes, for the query q and in double precision,

    output[q] = bias + sum_h sum_k p_h(q, k) v_h(k),        v_h(k) = sum_c W_{c,h} x_c(k)

It gets the values v_h of all heads, or the input's channels x_c and the weights W, whichever are fewer numbers: two of
the ways to split W_Delta = W_val W_out. Tensors are base64 of little-endian numbers, and JSON has no NaN.

Spare heads are vectors of queries and keys, whose dot products are their scores; the taps of a layer that has some read
what these add to its input. The page shows such taps without a bound once the heads are trained.

A network that does not run on the image shows the input of no layer. Of layers alone, each sees another image,
or none where that would be too large.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ...convert.agreement.networks import Agreement
from ...convert.agreement.report import Summary, is_the_cnn
from ...convert.bounds.rounding import OUTWARD
from ...convert.bounds.tail import absolute_products
from ...convert.certificate.data import convolve_padded
from ...convert.certificate.distance import describe_distance
from ...convert.certificate.layer import padded_range
from ...convert.certificate.literal import sample_layer
from ...convert.certificate.network.images import SHOWN, ImageCertificate, certify_shown, proof_in_words
from ...convert.errors import ConversionError
from ...convert.files.layers import Layers, attention_named
from ...convert.layer.construction import not_a_convolution
from ...convert.layer.layer import SelfAttention, SelfAttention2d
from ...convert.network.report import LayerReport, Report
from ..pictures.curve import bounds_or_none, input_range, with_alpha
from ..pictures.scene import Scene
from ..text import CELL, printable, scientific
from .bundle import packed
from .look import look

BUDGET = 400_000  # numbers of four bytes in all channels: 2.1 MB of base64
MOST_CHANNELS = 3
SPARE_BUDGET = 250_000  # numbers of four bytes in the vectors of all spare heads
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
    # The view of each layer, and the channels that there is room for.
    entries = [entry for entry in report.layers if only is None or only in entry.names]
    found, unseen, left_out = look(model, entries, image, pixel, limit)
    trouble = unseen.get("")
    counts = _channel_counts([found[name] for name in found if trouble is None and name not in unseen])
    # Each layer: its geometry, what it sees and computes, its spare heads, and its error on a sample of places.
    layers, spare_budget = [], SPARE_BUDGET
    samples = {} if summary is None else dict(summary.samples)
    for entry in entries:
        scene = found.get(entry.name)
        unknown = unseen.get(entry.name) if trouble is None else None  # the page says what troubles all
        data = _entry_data(entry, attention_named(model, entry.name), left_out.get(entry.name), unknown)
        if scene is not None:
            data |= _scene_data(scene, counts.get(entry.name, 0))
            data["seen"] = trouble is None and unknown is None
            if data["seen"] and scene.layer.spare is not None:
                data["spare"] = spare = spare_data(scene, spare_budget)
                spare_budget -= spare["numbers"]
            if data["seen"] and summary is None:
                with contextlib.suppress(ConversionError):
                    samples[entry.name] = sample_layer(scene.layer, scene.x)
        sample = samples.get(entry.name)
        data |= {name: None if sample is None else finite(getattr(sample, name)) for name in _SAMPLED}
        layers.append(data)
    # All layers together.
    heads = sum(entry.heads for entry in entries)
    if summary is None:
        summary = Summary(len(entries), heads, samples, trouble is None and is_the_cnn(model, image))
    return {
        "in_words": (summary if agreement is None else replace(summary, samples={})).in_words,
        "on_image": None if trouble is not None else _on_image(model, image, found.values(), is_quick=limit < math.inf),
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


def _on_image(model: nn.Module, image: Tensor, seen: Iterable[Scene], *, is_quick: bool) -> str | None:
    """The run's proved error, who may change the class, and the estimate; None where the network has none.

    A network whose layers have more outputs than pages prove in seconds is not walked through: nothing would be proved.
    Where the page must be quick, nothing is: the proof takes longer than all else.
    """
    if isinstance(model, Layers):
        return None
    if is_quick:
        return "This page says nothing about rounding on this image; one that conv2attn show writes does."
    units = sum(scene.layer.out_channels * math.prod(scene.layer.spec.output_size(scene.size)) for scene in seen)
    if units > max(SHOWN.values()):
        return (
            f"How far rounding moved the outputs is not proved here, as it would take minutes for {units:,} "
            "activations: c2a.certify_images does it."
        )
    try:
        first = next(parameter for parameter in model.parameters() if parameter.is_floating_point())
        return proved_in_words(certify_shown(model, image.to(first)).images[0])
    except ConversionError:
        return None


def proved_in_words(certificate: ImageCertificate) -> str:
    """Proofs about the network's run on the page's image, and about other programs' runs."""
    error, bound, opens = certificate.error, certificate.bound, certificate.opens
    proof = proof_in_words(certificate.p, None if certificate.is_drawn else certificate.seed).removeprefix("which is ")
    sentences = ["How far the outputs on the image shown here are from those of exact arithmetic is not proved."]
    if error is not None:
        sentences = [
            f"On the image shown here, the outputs are within {scientific(error)} of those of exact arithmetic."
        ]
    if bound is None:
        why = "" if opens is None else f" ({opens.layer}: {opens.reason})"
        estimate = f"the estimate is {scientific(certificate.estimate)}"
        sentences.append(f"How far another program can be from this one is not proved{why}; {estimate}.")
    else:
        class_ = "and predict the same class" if certificate.certified else "and could predict different classes"
        largest = f"differ by at most {scientific(bound)} in the largest output {class_}"
        sentences.append(f"Any two programs that round each operation once, on whatever processors, {largest}.")
    if error is not None or bound is not None:
        sentences.append(f"This is {proof}.")
    return " ".join(sentences)


def _trained(model: nn.Module, entries: Sequence[LayerReport]) -> list[str]:
    layers = [attention_named(model, entry.name) for entry in entries]
    read = [layer for layer in layers if layer.regime.is_read]
    counts = {
        "positions of heads": sum(not layer.regime.at_taps or len(set(layer.regime.alpha)) > 1 for layer in read),
        "content attention": sum(layer.content is not None and not layer.content.is_off() for layer in read),
        "spare heads": sum(not layer.spare_heads_are_off() for layer in layers),
        "tables of positional scores": sum(layer.axis_scores is not None for layer in layers),
    }
    return [f"{what} in {count:,} layer{'' if count == 1 else 's'}" for what, count in counts.items() if count]


def _channel_counts(shown: Sequence[Scene]) -> dict[str, int]:
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
        notes.append(f"no longer a convolution: {reason}{describe_distance(layer)}")
    if layer.spare is not None:
        notes.append(f"{layer.spare}, {'at 0' if layer.spare_heads_are_off() else 'trained'}")
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
    layer, spec, taps = scene.layer, scene.layer.spec, _taps_of(scene)
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
        "positional": taps.is_positional,
        "at_taps": layer.regime.at_taps,
        "picture": _picture(scene),
        "drawn": scene.note,
        "alpha": finite(list(layer.regime.alpha)),
    }
    if channels and data["positional"]:
        data |= channels_data(taps, channels)
        if taps is not scene:  # a bound would leave the trained heads out
            data["channels"] = [each | {"scale": None, "rounding": None} for each in data["channels"]]
    return data


def _taps_of(scene: Scene) -> Scene:
    """A layer with trained spare heads without them, before what its taps read; others as they are."""
    if scene.layer.spare_heads_are_off():
        return scene
    bare = copy.deepcopy(scene.layer)
    bare.remove_spare_heads()
    return replace(scene, layer=bare, x=scene.layer.read_by_taps(scene.x))


@torch.no_grad()
def spare_data(scene: Scene, budget: int) -> dict[str, Any]:
    """A layer's spare heads as plain data: vectors of queries (the layer's outputs) and of keys (pixels of its input).

    Args:
        scene: The layer before its input.
        budget: Most numbers of these vectors; of heads as many are held as fit.

    Returns:
        ``now`` are the heads' vectors, ``first`` those of the weights that trained heads started with, or None.
    """
    layer, spare = scene.layer, scene.layer.spare
    if spare is None:
        raise ConversionError("the layer has no spare heads")
    is_trained = not layer.spare_heads_are_off()
    first = layer.with_first_spare_weights() if is_trained else None
    places = torch.tensor(list(product(*layer.spec.query_positions(scene.size))), device=scene.x.device)
    pairs = [None if each is None else each.spare_products(scene.x, places) for each in (layer, first)]
    each = sum(part[0, 0].numel() for pair in pairs if pair is not None for part in pair)
    count = min(spare.heads, budget // each)
    now, before = (
        None if pair is None else [[encoded(part[0, head]) for part in pair] for head in range(count)] for pair in pairs
    )
    about = {"in_words": str(spare), "heads": spare.heads, "beside": spare.beside, "trained": is_trained}
    return about | {"now": now, "first": before, "numbers": count * each}


def _picture(scene: Scene) -> dict[str, Any]:
    """The padded input as grey or coloured pixels: its three channels, or the mean over all."""
    x = scene.x if scene.x.shape[1] == 3 else scene.x.mean(1, keepdim=True, dtype=torch.float64)
    shown = scene.layer.spec.pad(x.double().cpu())[0]
    low, high = float(shown.min()), float(shown.max())
    planes = (shown - low) / ((high - low) or 1.0)
    return {"channels": len(planes), "data": pixels(planes)}


def _agreement_data(agreement: Agreement) -> dict[str, Any]:
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


def finite(value: Any) -> Any:
    """A number, or a nested list of numbers, with None for what JSON cannot hold."""
    if isinstance(value, list):
        return [finite(item) for item in value]
    return value if value is None or math.isfinite(value) else None


def encoded(tensor: Tensor) -> dict[str, str]:
    """A tensor's numbers, row by row: in double precision if it has it, else in single, which holds the narrower."""
    if tensor.dtype == torch.float64:
        return {"type": "f8", "data": packed(tensor)}
    return {"type": "f4", "data": packed(tensor.float())}


def pixels(planes: Tensor) -> str:
    """Planes [channels, rows, columns] with values 0 to 1 as base64 of bytes, pixel by pixel."""
    values = (planes.double().nan_to_num().clamp(0, 1) * 255).round().to(torch.uint8)
    return packed(values.permute(1, 2, 0))


def first_channels(layer: SelfAttention2d, x: Tensor, count: int) -> tuple[SelfAttention2d, Tensor]:
    """The first output channels as a layer, on the CPU, and the input channels that they read.

    Args:
        layer: The layer.
        x: Its input, [1, in_channels, rows, columns].
        count: Channels wanted; of a layer with groups, fewer if they would end within a later group.

    Returns:
        The layer, which shares no parameter with the first, and [1, its in_channels, rows, columns].
    """
    spec = layer.spec
    width, per_group = spec.in_channels // spec.groups, spec.out_channels // spec.groups
    groups = max(1, min(count, spec.out_channels) // per_group)
    count = min(count, groups * per_group)
    weight = nn.Parameter(layer.weight[:count].detach().cpu())
    bias = None if layer.bias is None else nn.Parameter(layer.bias[:count].detach().cpu())
    part = replace(spec, in_channels=groups * width, out_channels=count, groups=groups)
    return SelfAttention2d(part, weight=weight, bias=bias), x[:, : groups * width].to(weight)


def numbers_of(scene: Scene, count: int) -> int:
    """Amount of numbers that the page stores for the first ``count`` output channels of a layer."""
    spec = scene.layer.spec
    padded, output = spec.padded_size(scene.size), spec.output_size(scene.size)
    per_group = spec.out_channels // spec.groups
    planes = spec.in_channels // spec.groups * max(1, count // per_group)
    if not _reads_input(spec.in_channels // spec.groups, spec.num_heads):
        planes = spec.num_heads * count
    return planes * padded.rows * padded.columns + count * output.rows * output.columns


@torch.no_grad()
def channels_data(scene: Scene, count: int) -> dict[str, Any]:
    """The first channels as plain data: what heads mix, the convolution's result, and the two parts of their bounds."""
    layer, x = first_channels(scene.layer, scene.x, count)
    spec = layer.spec
    expected = convolve_padded(spec, spec.pad(x), layer.kernel, layer.bias)
    width, per_group = spec.in_channels // spec.groups, spec.out_channels // spec.groups
    reads_input = _reads_input(width, spec.num_heads)
    padded = spec.pad(x)[0]
    scales, roundings = _limits(layer, x)
    channels = [
        {
            "channel": number,
            "planes": number // per_group if reads_input else number,
            "projection": finite(layer.weight[number].flatten(1).T.double().tolist()) if reads_input else None,
            "bias": 0.0 if layer.bias is None else finite(float(layer.bias[number])),
            "convolution": encoded(expected[0, number]),
            "scale": scales and finite(scales[number]),
            "rounding": roundings and finite(roundings[number]),
        }
        for number in range(spec.out_channels)
    ]
    planes = torch.unflatten(padded, 0, (spec.groups, width)) if reads_input else _values(layer, padded)
    return {"planes": [encoded(group) for group in planes], "channels": channels}


def _reads_input(width: int, heads: int) -> bool:
    """Whether the input's channels are fewer than the values of all heads."""
    return width <= heads


def _values(layer: SelfAttention2d, padded: Tensor) -> Tensor:
    """v_h(k) of every output channel, [out_channels, heads, padded rows, padded columns]."""
    spec = layer.spec
    weight = torch.unflatten(layer.weight.flatten(2).double(), 0, (spec.groups, -1))
    pixels = torch.unflatten(padded.double(), 0, (spec.groups, -1))
    return torch.einsum("goch,gcrs->gohrs", weight, pixels).flatten(0, 1).to(layer.regime.dtype)


def _limits(layer: SelfAttention2d, x: Tensor) -> tuple[list[float] | None, Sequence[float] | None]:
    """Two parts of every channel's bound for this input's range: tau's factor and the rounding; None if unknown."""
    limits = input_range(x)
    try:
        low, high = padded_range(layer.spec, limits)
    except ConversionError:
        return None, None
    (scale,) = absolute_products(layer.values(), layer.weight, high - low)
    return (scale * OUTWARD).tolist(), bounds_or_none(with_alpha(layer, None), limits)
