"""The page's view of layers: each before the input that it gets when the network sees the image, or an empty one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...convert.arguments import Size
from ...convert.errors import ConversionError, SelectionError
from ...convert.files.layers import Layers, attention_named
from ...convert.network.report import LayerReport
from ...convert.spec import ConvSpec
from ..pictures.limits import too_large
from ..pictures.scene import Scene, own_scene, query_pixel, scenes, undrawable

_UNSEEN = 32  # pixels of the side of an input that no network has computed


def look(
    model: nn.Module, entries: Sequence[LayerReport], image: Tensor, pixel: tuple[int, int] | None, limit: float
) -> tuple[dict[str, Scene], dict[str, str], dict[str, str]]:
    """Finds the view of each layer that is not too large; layers alone each see an image of their own.

    Returns:
        By the layers' names, each before its input, or an empty one; why an input is not known, "" being the whole
        network; and why a layer is not drawn.

    Raises:
        SelectionError: The pixel is outside the image.
    """
    # What each layer sees: its input in the network, or an image for each layer alone.
    if isinstance(model, Layers):
        seen, unseen = own_views(model, entries, image, pixel)
    else:
        try:
            seen, unseen = {scene.name: scene for scene in scenes(model, image, pixel=pixel, limit=limit)}, {}
        except SelectionError:
            raise
        except ConversionError as error:
            seen, unseen = {}, {"": str(error)}
    # Which of them can be drawn; a layer that is not run is drawn before zeros.
    found, left_out = dict[str, Scene](), dict[str, str]()
    for entry in entries:
        if (reason := undrawable(entry.spec)) is not None:
            left_out[entry.name] = reason
            continue
        scene = seen.get(entry.name)
        if scene is None and unseen.keys().isdisjoint(("", entry.name)):
            continue  # the network does not use it
        spec, size = (entry.spec, _unseen_size(entry.spec)) if scene is None else (scene.layer.spec, scene.size)
        try:
            if reason := too_large(spec, size):
                raise ConversionError(reason)
            if scene is None:
                layer, x = (
                    attention_named(model, entry.name),
                    torch.zeros(1, spec.in_channels, *size, dtype=torch.float32, device="cpu"),
                )
                scene = Scene.of(entry.name, layer, x, lambda output: (output.rows // 2, output.columns // 2))
            found[entry.name] = scene
        except ConversionError as error:
            left_out[entry.name] = str(error)
    return found, unseen, left_out


def own_views(
    model: nn.Module, entries: Sequence[LayerReport], image: Tensor, pixel: tuple[int, int] | None
) -> tuple[dict[str, Scene], dict[str, str]]:
    """The scenes of layers without their network, by name, and reasons for those without one, "" if all."""
    query, seen, unseen = query_pixel(image, pixel), {}, {}
    for entry in entries:
        try:
            seen[entry.name] = own_scene(entry.name, attention_named(model, entry.name), image, query)
        except ConversionError as error:
            unseen[entry.name] = str(error)
    if unseen and not seen:
        unseen[""] = next(iter(unseen.values()))
    return seen, unseen


def _unseen_size(spec: ConvSpec) -> Size:
    """The size of an input that is not known: large enough for the kernel and the padding."""
    span = (d * (k - 1) + 1 for d, k in zip(spec.dilation, spec.kernel_size, strict=True))
    wrapped = 0 if spec.padding_mode in ("zeros", "replicate") else max(map(max, spec.pads)) + 1
    return Size(*(max(_UNSEEN, n, wrapped) for n in span))
