"""Whether attention pays: a trained CNN goes on with spare heads, with the field's usual blocks, and as it is.

Every side starts from the same trained CNN, sees the same data for as many steps, and gets its own rate, which runs
of a seed that no table reports choose on validation images:

    cnn        the CNN as it is
    time       the same for as much time as the graft takes
    random     a block in front of the layer whose last layer starts as PyTorch's do
    block      the non-local block of Wang et al. (2018) in front of it, whose last layer starts at 0
    before     graft, heads in front of the taps
    beside     graft, heads beside the taps
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from ..convert.arguments import as_integer
from ..convert.network.graft import GraftedLayer, graft
from ..convert.plain import read_json
from ..convert.write import FORMAT
from .comparison import ACCURACY, START, Arm, Comparison, Outcomes, run_comparison, small_cnn, step_seconds, unchanged
from .data.images import ImageData
from .training.fit import check_run
from .training.folders import begin_or_resume, write_json
from .training.recipe import ALONE, Recipe, Session, accuracy

GRAFTING = Recipe(epochs=10, lr=3e-4, batch_statistics=False)
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
TIMES = "times.json"
_LOOKED_AT = 4  # images that layers' maps are measured with


class NonLocalBlock(nn.Module):
    """x + W_z softmax(theta(x) phi(x)^T / sqrt(width)) g(x), the embedded Gaussian form (arXiv 1711.07971).

    Args:
        channels: Of its input.
        width: Of queries, keys and values.
        zero: Whether W_z starts at 0; else as PyTorch's layers do.
    """

    def __init__(self, channels: int, width: int, *, zero: bool) -> None:
        super().__init__()
        self.theta, self.phi, self.g = (nn.Conv2d(channels, width, 1) for _ in range(3))
        self.z = nn.Conv2d(width, channels, 1)
        if zero:
            nn.init.zeros_(self.z.weight)
            nn.init.zeros_(self.z.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, channels, rows, columns] to the same shape."""
        q, k, v = (layer(x).flatten(2).transpose(1, 2).unsqueeze(1) for layer in (self.theta, self.phi, self.g))
        read = F.scaled_dot_product_attention(q, k, v).squeeze(1)
        return x + self.z(read.transpose(1, 2).unflatten(2, x.shape[2:]))  # type: ignore[no-any-return]


def with_block(cnn: nn.Module, *, layers: Sequence[GraftedLayer], zero: bool) -> nn.Module:
    """The CNN with a block as wide as the graft in front of each layer that would be grafted."""
    for layer in layers:
        width = layer.spare.heads * layer.spare.key_dim
        block = NonLocalBlock(layer.spec.in_channels, width, zero=zero)
        both = nn.Sequential(block.to(next(cnn.parameters())), cnn.get_submodule(layer.name))
        for name in layer.names:
            cnn.set_submodule(name, both)
    return cnn


def with_heads(
    cnn: nn.Module, *, layers: Sequence[GraftedLayer], beside: bool, options: Mapping[str, Any]
) -> nn.Module:
    """The CNN with spare heads on these layers."""
    names = {name for layer in layers for name in layer.names}
    return graft(cnn, where="*", filter_fn=lambda _, name: name in names, beside=beside, inplace=True, **options).model


def compare_grafts(
    data: ImageData,
    folder: Path,
    *,
    cnn: nn.Module | None = None,
    where: str | Sequence[str] = "auto",
    options: Mapping[str, Any] | None = None,
    recipe: Recipe = GRAFTING,
    rates: Sequence[float] = RATES,
    seeds: int = 5,
    session: Session = ALONE,
) -> Outcomes:
    """Trains a CNN further with spare heads and in the ways that they must beat, for several seeds.

    Args:
        data: Images with labels.
        folder: Where runs are kept; its parent must exist.
        cnn: Where to start from; None trains a small CNN on the data for each seed.
        where: As ``graft``'s; "auto" measures maps on the data.
        options: Further keyword arguments of ``graft``: heads, key_dim, value_dim, positions.
        recipe: Recipe of the fine-tuning; its seed is the first.
        rates: Learning rates to choose from, for each side; a chosen end is followed further.
        seeds: Number of seeds.
        session: As for ``fit``.

    Returns:
        For each seed what came of "start" and of each side: accuracies on test images.

    Raises:
        ConversionError: As ``graft`` and ``fit``.
        RunExistsError: The folder exists, and is not to be resumed.
        OutputError: The folder holds something else, or cannot be made.
    """
    options = options or {}
    replace(recipe, seed=recipe.seed + as_integer(seeds, "seeds", least=1) - 1)  # refused before anything is written
    new = partial(small_cnn, channels=data.channels, classes=len(data.classes))
    start = new() if cnn is None else cnn
    if cnn is None:
        check_run(start, data, START, machine=session.machine)
    seen = data.validation.taken(slice(_LOOKED_AT)).numbers()
    layers = graft(start, where=where, example=seen, **options).report.layers
    session.say("Spare heads: " + "; ".join(map(str, layers)))
    arms = _arms(layers, options, lr=next(iter(rates), recipe.lr))
    for arm in arms.values():
        check_run(arm.build(copy.deepcopy(start)), data, recipe, machine=session.machine)
    begin_or_resume(
        folder / "grafting.json", {"format": FORMAT, "content": "grafting"}, resume=session.resume, what="comparison"
    )
    ratio = _time_ratio(folder / TIMES, start, arms["before"], data, recipe)
    comparison = Comparison(
        name="grafting",
        what=data.name,
        data=lambda _: data,
        score=lambda network: {ACCURACY: accuracy(network, data.test)},
        arms=arms | {"time": replace(arms["time"], longer=ratio)},
        start=START,
        onward=recipe,
        new=new,
        cnn=cnn,
        rates=tuple(rates),
        follows_ends=True,
    )
    resumed = replace(session, resume=True)  # the folder was begun above
    outcomes = run_comparison(comparison, folder, full=len(rates) > 1, seeds=seeds, session=resumed)
    return replace(outcomes, seconds=step_seconds(outcomes.networks, *_batch(data, recipe), loss=F.cross_entropy))


def _arms(layers: Sequence[GraftedLayer], options: Mapping[str, Any], *, lr: float) -> dict[str, Arm]:
    """The sides; beside the taps only where every layer can have heads there."""
    heads = partial(with_heads, layers=layers, options=options)
    arms = {
        "cnn": Arm("as the CNN", unchanged, lr),
        "time": Arm("as the CNN, for as much time", unchanged, lr, rate_of="cnn"),
        "random": Arm("with a block that starts at random", partial(with_block, layers=layers, zero=False), lr),
        "block": Arm("with the non-local block", partial(with_block, layers=layers, zero=True), lr),
        "before": Arm("with heads in front of the taps", partial(heads, beside=False), lr),
    }
    if not any(layer.spec.transposed for layer in layers):
        arms["beside"] = Arm("with heads beside the taps", partial(heads, beside=True), lr)
    return arms


def _batch(data: ImageData, recipe: Recipe) -> tuple[Tensor, Tensor]:
    batch = data.train.taken(slice(recipe.batch_size))
    return batch.numbers(), batch.labels


def _time_ratio(file: Path, start: nn.Module, arm: Arm, data: ImageData, recipe: Recipe) -> float:
    """Time of the graft's step, in the CNN's; measured once a folder, so that a resumed run has as many epochs."""
    if not file.exists():
        networks = {"cnn": start, "graft": arm.build(copy.deepcopy(start))}
        write_json(file, step_seconds(networks, *_batch(data, recipe), loss=F.cross_entropy))
    seconds: Any = read_json(file)
    return max(1.0, float(seconds["graft"]) / float(seconds["cnn"]))


def leader(gains: Mapping[str, Sequence[float]]) -> tuple[str, str, float, float, bool]:
    """The best side, the second, the mean of their paired differences, its spread, and whether that says who won.

    A side has won if the mean difference is more than two standard errors from 0; with one seed nobody has.

    Args:
        gains: For each side its scores minus the CNN's, seed by seed.
    """
    first, second = sorted(gains, key=lambda name: statistics.fmean(gains[name]), reverse=True)[:2]
    apart = [one - other for one, other in zip(gains[first], gains[second], strict=True)]
    mean, spread = statistics.fmean(apart), statistics.stdev(apart) if len(apart) > 1 else math.inf
    return first, second, mean, spread, mean > 2 * spread / math.sqrt(len(apart))
