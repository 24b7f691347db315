"""The pictures of docs/theory.md, drawn from an example network: ``make pictures`` writes them.

They are computed in double precision, of which they show few digits: the files are the same on every machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from ...convert.arguments import Size
from ...convert.examples.images import drawn_image
from ...convert.examples.networks import load_example
from ...convert.network.convert import convert_model
from ...convert.write import write_file
from .kernel import draw_kernel
from .maps import draw_maps
from .scene import Scene, scenes, set_alpha
from .style import Sheet, drawn_in_style

_SIZE = Size(32, 32)
_SOFT = 1.0


def theory_pictures() -> dict[str, bytes]:
    """The content of each picture's SVG file, by its name."""
    drawings: dict[str, Callable[[], Sheet]] = {
        "kernel.svg": lambda: draw_kernel(_seen("plain")[:1]),
        "layers.svg": lambda: draw_maps(_seen("plain", alpha=_SOFT)),
    }
    with drawn_in_style():
        return {name: drawing().save("svg") for name, drawing in drawings.items()}


def _seen(network: str, *, alpha: float | None = None) -> list[Scene]:
    model, _ = convert_model(load_example(network).double())
    if alpha is not None:
        set_alpha(model, alpha)
    return scenes(model, drawn_image(3, _SIZE).to(torch.float64))


def main() -> None:
    """Writes the pictures into the folder that is the only argument."""
    folder = Path(sys.argv[1])
    for name, content in theory_pictures().items():
        write_file(folder / name, partial(Path.write_bytes, data=content), force=True)
        print(f"Wrote {folder / name}")


if __name__ == "__main__":
    main()
