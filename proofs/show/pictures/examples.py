"""Pictures of the examples of melting: what is cleaned, where heads look, and what recurring is worth."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ....convert.attention.layer import SelfAttention
from ....convert.certificate.sampled import inputs_of_layers
from ....learn.examples.denoiser import LOOKS, TOKEN
from ....learn.examples.examples import STAMPS_OF_A_PAGE
from ....learn.examples.pages import COLUMNS, PITCH, ROWS, unseen_pages
from ....learn.examples.photographs import grid_crops
from ....learn.melting.comparison import Outcomes
from .style import ATTENTION, BLUE, FAINT, GREEN, GREY, INK, PURPLE, VERMILION, Sheet, outline

_SHOWN = 3  # pages, or tokens that look
_SIZE = 1.75  # inches of an image's longer side
_PHOTOGRAPHS = "brick", "page", "gravel", "chelsea"
_LOUDEST = 50

Box = tuple[int, int, int]
"""Row, column and side of a square on an image, in pixels."""


def draw_pages(outcomes: Outcomes) -> Sheet:
    """Noisy pages, what both networks make of them, and the clean ones."""
    return _cleaned(
        outcomes,
        unseen_pages(_SHOWN),
        title="Pages on which two digits recur",
        caption="Twelve stamps of two digits under noise as strong as the ink. Both networks began as the same trained "
        "CNN and had the same further steps; attention averages over the copies of a digit.",
        colours="gray_r",
    )


def draw_crops(outcomes: Outcomes) -> Sheet:
    """Noisy test crops of photographs, what both networks make of them, and the clean ones."""
    pairs = [grid_crops(name, "test", _LOUDEST) for name in _PHOTOGRAPHS]
    return _cleaned(
        outcomes,
        (torch.cat([noisy[2:3] for noisy, _ in pairs]), torch.cat([clean[2:3] for _, clean in pairs])),
        title="Photographs under noise",
        caption=f"Test crops of 64 x 64 pixels under noise of {_LOUDEST} grey levels. Both networks began as the same "
        "trained CNN and had the same further steps.",
    )


def draw_looks_on_pages(outcomes: Outcomes) -> Sheet:
    """Attention of the content layer on a page, from three tokens."""
    noisy, clean = unseen_pages(1)
    tokens = [(1, 1), (4, 7), (7, 4)]  # in the middle of stamps
    return _looks(
        outcomes,
        [(noisy, token, _same(clean[0, 0], token)) for token in tokens],
        caption="Above: the page, and the token that looks (red). Below: where it looks on the noisy page, the mean "
        "over heads; frames mark the stamps that show the same digit. Beyond their taps, heads look at tokens like the "
        "one that looks.",
        colours="gray_r",
    )


def draw_looks_on_crops(outcomes: Outcomes) -> Sheet:
    """Attention of the content layer on test crops of photographs."""
    tokens = [(6, 6), (8, 8), (7, 9), (8, 6)]
    seen = [
        (grid_crops(name, "test", _LOUDEST)[0][2:3], token, ())
        for name, token in zip(_PHOTOGRAPHS, tokens, strict=True)
    ]
    return _looks(
        outcomes,
        seen,
        caption=f"Above: test crops under noise of {_LOUDEST} grey levels, and the token that looks (red). Below: "
        "where it looks, the mean over heads.",
    )


def draw_recurring(outcomes: Outcomes) -> Sheet:
    """The gain over the fine-tuned CNN against how often a stamp is on a page, a line for each arm."""
    sheet = Sheet(
        5.2,
        2.5,
        title="Attention is worth what recurs",
        caption="PSNR minus that of the fine-tuned CNN, in dB, on test pages with another number of different digits "
        "than were trained with (two, each six times): mean over seeds, and each seed as a dot.",
    )
    axes = sheet.axes(0.6, 0.05, 4.4, 2.05)
    arms = [name for name in next(iter(outcomes.results.values())) if name not in ("start", "cnn")]
    often = [ROWS * COLUMNS // kinds for kinds in STAMPS_OF_A_PAGE]
    for name, colour in zip(arms, (BLUE, VERMILION, GREY, PURPLE, INK, GREEN)[: len(arms)], strict=True):
        each = [outcomes.gains(name, str(kinds)) for kinds in STAMPS_OF_A_PAGE]
        axes.plot(often, [statistics.fmean(found) for found in each], color=colour, label=name, linewidth=1.2)
        for x, found in zip(often, each, strict=True):
            axes.plot([x] * len(found), found, ".", color=colour, markersize=2.5)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.set(xscale="log", xlabel="how often each digit is on the page", ylabel="dB")
    axes.set_xticks(often, [str(count) for count in often], minor=False)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    if len(arms) > 1:
        axes.legend()
    return sheet


PICTURES: dict[str, dict[str, Callable[[Outcomes], Sheet]]] = {
    "stamps": {"pages.png": draw_pages, "looks.png": draw_looks_on_pages, "recurring.svg": draw_recurring},
    "photographs": {"crops.png": draw_crops, "looks.png": draw_looks_on_crops},
}
"""Files of each example, by its name."""


def _cleaned(
    outcomes: Outcomes, pairs: tuple[Tensor, Tensor], *, title: str, caption: str, colours: str = "gray"
) -> Sheet:
    noisy, clean = pairs
    with torch.no_grad():
        cleaned = [outcomes.networks[name].eval()(noisy) for name in ("cnn", "content")]
    titles = "noisy", "the CNN, fine-tuned", "its attention, fine-tuned", "clean"
    height = _SIZE * clean.shape[2] / clean.shape[3]
    sheet = Sheet(4 * (_SIZE + 0.1) + 0.2, len(clean) * (height + 0.1) + 0.15, title=title, caption=caption)
    for column, (name, images) in enumerate(zip(titles, (noisy, *cleaned, clean), strict=True)):
        sheet.write(0.15 + column * (_SIZE + 0.1), 0.0, name, size=8, va="top")
        for row, image in enumerate(images):
            axes = sheet.axes(0.15 + column * (_SIZE + 0.1), 0.17 + row * (height + 0.1), _SIZE, height)
            _gray(axes, image, colours)
    return sheet


def _looks(
    outcomes: Outcomes,
    seen: Sequence[tuple[Tensor, tuple[int, int], Sequence[Box]]],
    *,
    caption: str,
    colours: str = "gray",
) -> Sheet:
    """Images, tokens that look, and frames; below each where it looks."""
    network = outcomes.networks["content"].eval()
    rows, columns = seen[0][0].shape[2:]
    height = _SIZE * rows / columns
    width = len(seen) * (_SIZE + 0.1) + 0.2
    sheet = Sheet(width, 2 * (height + 0.1) + 0.05, title="Where heads look", caption=caption)
    for column, (noisy, token, boxes) in enumerate(seen):
        left = 0.15 + column * (_SIZE + 0.1)
        above, below = sheet.axes(left, 0, _SIZE, height), sheet.axes(left, height + 0.1, _SIZE, height)
        _gray(above, noisy[0], colours)
        map_ = _attended(network, noisy, token).numpy()
        below.imshow(map_, cmap=ATTENTION, extent=(0, columns, rows, 0), interpolation="nearest")
        for row, at, side in boxes:
            below.add_patch(outline(at + 0.5, row + 0.5, side - 1, side - 1, color=PURPLE, linewidth=0.8))
        for axes in (above, below):
            axes.set(xticks=[], yticks=[])
            left_edge, top_edge = token[1] * TOKEN, token[0] * TOKEN
            axes.add_patch(outline(left_edge, top_edge, TOKEN, TOKEN, color=VERMILION, linewidth=1.2))
    return sheet


def _attended(network: nn.Module, noisy: Tensor, token: tuple[int, int]) -> Tensor:
    """The mean over heads of where a token looks, [rows, columns] of the image's tokens."""
    layer = network.get_submodule(LOOKS)
    if not isinstance(layer, SelfAttention):
        raise TypeError("content was added to the last layer that sees several tokens")
    x = inputs_of_layers(network, noisy)[LOOKS]
    with torch.no_grad():
        found = layer.attention_probabilities(x.shape[2:], queries=[token], x=x)[0].mean(0)[0]
    (top, _), (left, _) = layer.spec.pads
    return found[top : top + x.shape[2], left : left + x.shape[3]]


def _same(clean: Tensor, token: tuple[int, int]) -> list[Box]:
    """The cells whose stamp is that of the token's cell."""
    cells = {
        (row, column): clean[row * PITCH : (row + 1) * PITCH, column * PITCH : (column + 1) * PITCH]
        for row in range(ROWS)
        for column in range(COLUMNS)
    }
    own = cells[token[0] * TOKEN // PITCH, token[1] * TOKEN // PITCH]
    return [(row * PITCH, column * PITCH, PITCH) for (row, column), cell in cells.items() if torch.equal(cell, own)]


def _gray(axes: Any, image: Tensor, colours: str) -> None:
    axes.imshow(image[0].numpy(), cmap=colours, vmin=-1, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
