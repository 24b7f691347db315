"""``conv2attn show`` on the folder of an experiment: one picture, or the film."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ....convert.errors import OptionError, SelectionError
from ....learn.experiment.folder import Experiment, is_experiment, read_experiment, read_results
from ....learn.experiment.history import History, read_accuracies, read_history
from ....learn.networks.resnet import BLOCKS

if TYPE_CHECKING:
    from ..pictures.style import Sheet

PICTURES = ("contours", "training", "curves", "maps", "table")
DRAFT_LAYER = 3  # of the draft's Figure 3


@dataclass(frozen=True)
class Runs:
    """The runs that a path names: all of an experiment's folder, or those of one encoding."""

    folder: Path
    encoding: str | None

    @property
    def experiment(self) -> Experiment:
        """The experiment."""
        return read_experiment(self.folder)

    @property
    def title(self) -> str:
        """Title for people."""
        return self.encoding or f"an experiment on {self.experiment.data.partition(':')[0]}"

    def history(self) -> History:
        """The first seed's heads of the encoding, or of the first one that has heads.

        Raises:
            SelectionError: There are no heads.
        """
        names = [name for name in self.experiment.encodings if name not in BLOCKS]
        if self.encoding is None and not names:
            raise SelectionError(f"{self.folder} holds no network of attention")
        return read_history(self.folder, self.encoding or names[0])


def runs_at(path: Path) -> Runs | None:
    """The runs of an experiment's folder, or of an encoding's folder in it; None if it is neither."""
    if is_experiment(path):
        return Runs(path, None)
    if is_experiment(path.parent) and path.name in read_experiment(path.parent).encodings:
        return Runs(path.parent, path.name)
    return None


def draw_runs(runs: Runs, picture: str, *, layer: int | None = None) -> Sheet:
    """Draws one picture.

    Args:
        runs: The runs to show.
        picture: One of ``PICTURES``.
        layer: For "training" the layer, from 1; by default 3, or the last of fewer.

    Raises:
        OptionError: There is no such picture of an experiment, or it has no layer.
        SelectionError: There is no such layer.
        CheckpointError: The folder cannot be read, or the experiment is not over.
    """
    if picture not in PICTURES:
        raise OptionError(f"a picture of an experiment is one of {', '.join(PICTURES)}; got {picture}")
    if layer is not None and picture != "training":
        raise OptionError("a layer of an experiment is chosen for the picture training")
    # Matplotlib, which the modules that draw need, may not be installed: they are imported only now.
    from .heads import draw_head_maps, draw_layers, draw_training
    from .results import draw_curves, draw_table

    experiment = runs.experiment
    data = experiment.data.partition(":")[0]
    if picture == "curves":
        names = experiment.encodings if runs.encoding is None else (runs.encoding,)
        return draw_curves({name: read_accuracies(runs.folder, name, experiment.seeds) for name in names}, data=data)
    if picture == "table":
        wanted = [result for result in read_results(runs.folder) if runs.encoding in (None, result.encoding)]
        return draw_table(wanted, data=data)
    history = runs.history()
    if picture != "training":
        return (draw_layers if picture == "contours" else draw_head_maps)(history)
    depth = len(history.layers[0])
    chosen = min(DRAFT_LAYER, depth) if layer is None else layer
    if not 1 <= chosen <= depth:
        raise SelectionError(f"layers are numbered 1 to {depth}; got {chosen}")
    return draw_training(history, chosen)
