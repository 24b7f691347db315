"""Three pictures of the stamps: what is cleaned, where heads look, and what recurring is worth."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.patches import Rectangle
from torch import Tensor, nn

from ....convert.attention.layer import SelfAttention
from ....convert.certificate.sampled import inputs_of_layers
from ....learn.stamps.denoiser import LOOKS
from ....learn.stamps.experiment import RECURRING, Stamps, copies, gains
from ....learn.stamps.pages import COLUMNS, PITCH, ROWS, unseen_pages
from .style import ATTENTION, BLUE, FAINT, GREEN, GREY, INK, PURPLE, VERMILION, Sheet

_TOKEN = 4  # pixels of a token's side
_SHOWN = 3  # pages, or tokens that look


def draw_pages(stamps: Stamps) -> Sheet:
    """Noisy pages, what both networks make of them, and the clean ones."""
    noisy, clean = unseen_pages(_SHOWN)
    with torch.no_grad():
        rows = [noisy, *(stamps.networks[name].eval()(noisy) for name in ("cnn", "content")), clean]
    titles = "noisy", "the CNN, fine-tuned", "its attention, fine-tuned", "clean"
    width, height = 1.75, 1.75 * ROWS / COLUMNS
    sheet = Sheet(
        4 * (width + 0.1) + 0.2,
        _SHOWN * (height + 0.1) + 0.15,
        title="Pages on which two digits recur",
        caption="Twelve stamps of two digits under noise as strong as the ink. Both networks began as the same trained "
        "CNN and had the same further steps; attention averages over the copies of a digit.",
    )
    for column, (title, images) in enumerate(zip(titles, rows, strict=True)):
        sheet.write(0.15 + column * (width + 0.1), 0.0, title, size=8, va="top")
        for row, image in enumerate(images):
            axes = sheet.axes(0.15 + column * (width + 0.1), 0.17 + row * (height + 0.1), width, height)
            _gray(axes, image)
    return sheet


def draw_looks(stamps: Stamps) -> Sheet:
    """Where the heads of the content layer look on a page, from three tokens."""
    noisy, clean = unseen_pages(1)
    network = stamps.networks["content"].eval()
    tokens = [(1, 1), (4, 7), (7, 4)]  # in the middle of stamps
    maps = _attended(network, noisy, tokens)
    width, height = 2.3, 2.3 * ROWS / COLUMNS
    sheet = Sheet(
        _SHOWN * (width + 0.1) + 0.2,
        2 * (height + 0.1) + 0.05,
        title="Where heads look",
        caption="Above: the page, and the token that looks (red). Below: where it looks on the noisy page, the mean "
        "over heads; frames mark the stamps that show the same digit. Beyond their taps, heads look at tokens like the "
        "one that looks.",
    )
    for column, (token, seen) in enumerate(zip(tokens, maps, strict=True)):
        left = 0.15 + column * (width + 0.1)
        above, below = sheet.axes(left, 0, width, height), sheet.axes(left, height + 0.1, width, height)
        _gray(above, noisy[0])
        shape = clean.shape[-2:]
        below.imshow(seen.numpy(), cmap=ATTENTION, extent=(0, shape[1], shape[0], 0), interpolation="nearest")
        for row, other in _same(clean[0, 0], token):
            corner = other * PITCH + 0.5, row * PITCH + 0.5
            below.add_patch(Rectangle(corner, PITCH - 1, PITCH - 1, fill=False, color=PURPLE, linewidth=0.8))
        for axes in (above, below):
            axes.set(xticks=[], yticks=[])
            at = token[1] * _TOKEN, token[0] * _TOKEN
            axes.add_patch(Rectangle(at, _TOKEN, _TOKEN, fill=False, color=VERMILION, linewidth=1.2))
    return sheet


def draw_recurring(stamps: Stamps) -> Sheet:
    """The gain over the fine-tuned CNN against how often a stamp is on a page, a line for each arm."""
    sheet = Sheet(
        5.2,
        2.5,
        title="Attention is worth what recurs",
        caption="PSNR minus that of the fine-tuned CNN, in dB, on test pages with another number of different digits "
        "than were trained with (two, each six times): mean over seeds, and each seed as a dot.",
    )
    axes = sheet.axes(0.6, 0.05, 4.4, 2.05)
    arms = [name for name in next(iter(stamps.results.values())) if name not in ("start", "cnn")]
    for name, colour in zip(arms, (BLUE, VERMILION, GREY, PURPLE, INK, GREEN)[: len(arms)], strict=True):
        often = [copies(kinds) for kinds in RECURRING]
        each = [gains(stamps, name, kinds=kinds) for kinds in RECURRING]
        axes.plot(often, [statistics.fmean(found) for found in each], color=colour, label=name, linewidth=1.2)
        for x, found in zip(often, each, strict=True):
            axes.plot([x] * len(found), found, ".", color=colour, markersize=2.5)
    axes.axhline(0, color=FAINT, linewidth=0.8)
    axes.set(xscale="log", xlabel="how often each digit is on the page", ylabel="dB")
    axes.set_xticks([copies(kinds) for kinds in RECURRING], [str(copies(kinds)) for kinds in RECURRING], minor=False)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    if len(arms) > 1:
        axes.legend()
    return sheet


def _attended(network: nn.Module, noisy: Tensor, tokens: Sequence[tuple[int, int]]) -> Tensor:
    """The mean over heads of where each token looks, [tokens, rows, columns] of the page's tokens."""
    layer = network.get_submodule(LOOKS)
    if not isinstance(layer, SelfAttention):
        raise TypeError("content was added to the last layer that sees several tokens")
    x = inputs_of_layers(network, noisy)[LOOKS]
    with torch.no_grad():
        maps = layer.attention_probabilities(x.shape[2:], queries=tokens, x=x)[0].mean(0)
    (top, _), (left, _) = layer.spec.pads
    return maps[:, top : top + x.shape[2], left : left + x.shape[3]]


def _same(clean: Tensor, token: tuple[int, int]) -> list[tuple[int, int]]:
    """The cells whose stamp is that of the token's cell."""
    cells = {
        (row, column): clean[row * PITCH : (row + 1) * PITCH, column * PITCH : (column + 1) * PITCH]
        for row in range(ROWS)
        for column in range(COLUMNS)
    }
    own = cells[token[0] * _TOKEN // PITCH, token[1] * _TOKEN // PITCH]
    return [place for place, cell in cells.items() if torch.equal(cell, own)]


def _gray(axes: Any, image: Tensor) -> None:
    axes.imshow(image[0].numpy(), cmap="gray_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
