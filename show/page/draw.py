"""Draws a layer or a network, as ``conv2attn show`` does: a picture, or the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ...convert.agreement.report import run_on_drawn
from ...convert.arguments import USUAL_SIZES, Size, as_tensor
from ...convert.errors import ConversionError, OptionError
from ...convert.examples.images import DRAWN_SIZE, drawn_input
from ...convert.layer.checked import checked_model
from ...convert.layer.layer import SelfAttention
from ...convert.network.modules import modules_of
from ...convert.network.report import Report
from ...convert.write import check_file, write_file
from ..pictures.limits import too_large
from ..pictures.scene import Scene, find_layer, scenes
from .write import DRAWN, make_page

if TYPE_CHECKING:
    from ..pictures.style import Sheet

PAGE = "html"
FORMS = ("png", "svg", "pdf", PAGE)
PICTURES = ("maps", "contours", "error", "kernel")
DEFAULT_PICTURE = PICTURES[0]


def draw(
    model: nn.Module,
    out: str | PathLike[str],
    image: Tensor | None = None,
    *,
    layer: str | None = None,
    query: tuple[int, int] | None = None,
    picture: str | None = None,
    force: bool = False,
) -> None:
    """Draws where the heads of attention layers look: a picture, which needs matplotlib, or the interactive page.

    Args:
        model: A ``SelfAttention`` layer over images, or a network that holds some.
        out: File to write: .png, .svg or .pdf for a picture, .html for the page.
        image: Input of the model, [1, channels, rows, columns]; None draws one, of 64x64 pixels where the model takes
            that size.
        layer: Name of the only layer to draw, as ``named_modules`` has it; None draws all.
        query: Row and column of the query pixel in the image; None means its middle.
        picture: Kind of picture: "maps" (each head's attention; the default), "contours", "error" (the difference from
            the convolution over alpha) or "kernel". The page holds all of them.
        force: Replace an existing file.

    Raises:
        SelectionError: There is no such layer, or the query is outside the image.
        OptionError: There is no such picture or form of file.
        OutputError: The file exists or cannot be written.
        ConversionError: The model has no attention layer or does not run on the image, or a layer is too large to draw.

    Examples:
        >>> attention = c2a.attention_from_conv(torch.nn.Conv2d(3, 8, kernel_size=3))
        >>> c2a.draw(attention, "layer.png")
    """
    path = Path(out)
    form = form_of(path)
    check_picture(picture, form)
    if not modules_of(checked_model(model), SelfAttention):
        raise ConversionError("the model has no attention layer to draw: draw(convert_model(model).model, FILE)")
    check_file(path, force=force)
    # the image, given or drawn
    chosen = None if layer is None else find_layer(model, layer)
    seen = DRAWN if image is None else "the given image"
    if image is not None:
        image = as_tensor(image, "image")
    elif isinstance(model, SelfAttention):
        image = drawn_input(model)
    else:
        image = run_on_drawn(model, [DRAWN_SIZE, Size(*USUAL_SIZES[2])])[0]
    # the page, or one picture
    if form == PAGE:
        content = make_page(
            model, Report.of(model), title=type(model).__name__, image=image, seen=seen, pixel=query, only=layer
        ).text.encode()
    else:
        shown = scenes(model, image, pixel=query)
        wanted = [scene for scene in shown if chosen is None or model.get_submodule(scene.name) is chosen]
        content = drawn(wanted, picture or DEFAULT_PICTURE, form)
    write_file(path, lambda new: new.write_bytes(content), force=force)


def form_of(path: Path) -> str:
    """The kind of a file to draw, one of ``FORMS``, by the end of its name.

    Raises:
        OptionError: It is none of them.
    """
    form = path.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise OptionError(f"{path} cannot be written: the name must end in {', '.join(f'.{known}' for known in FORMS)}")
    return form


def check_picture(picture: str | None, form: str, *, is_of_network: bool = True) -> None:
    """Refuses a kind of picture that does not go with the kind of file or, of a network, that there is not.

    Raises:
        OptionError: It is so.
    """
    if picture is not None and form == PAGE:
        raise OptionError("a page holds every picture; a single one can be chosen for png, svg and pdf only")
    if picture is not None and is_of_network and picture not in PICTURES:
        raise OptionError(f"a picture of a network is one of {', '.join(PICTURES)}; got {picture}")


def drawn(shown: Sequence[Scene], picture: str, form: str) -> bytes:
    """The picture of some layers as the content of a png, svg or pdf file.

    Raises:
        ConversionError: A layer, or the picture of all, is too large.
    """
    for scene in shown:
        if (reason := too_large(scene.layer.spec, scene.size)) is not None:
            raise ConversionError(f"layer {scene.title} cannot be drawn: {reason}")
    # Imported only now: they need matplotlib.
    from ..pictures.contours import draw_contours
    from ..pictures.error import draw_error
    from ..pictures.kernel import draw_kernel
    from ..pictures.maps import draw_maps
    from ..pictures.style import drawn_in_style

    drawings: dict[str, Callable[[Sequence[Scene]], Sheet]]
    drawings = dict(zip(PICTURES, (draw_maps, draw_contours, draw_error, draw_kernel), strict=True))
    with drawn_in_style():
        return drawings[picture](shown).save(form)
