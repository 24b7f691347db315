"""Whether attention pays: a trained CNN goes on with spare heads, with the field's usual blocks, and as it is.

Every side starts from the same trained CNN, sees the same data for as many steps, and gets its own rate, which runs
of a seed that no table reports choose on validation data:

    cnn        the CNN as it is
    time       the same for the time that the graft before the convolution takes, in whole epochs
    random     a non-local block before the convolution whose last layer starts as PyTorch's do
    block      the non-local block of Wang et al. (2018) before it, whose last layer starts at 0
    before     graft, heads before the convolution
    beside     graft, heads beside the convolution
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from ..convert.arguments import as_integer
from ..convert.network.graft import GraftedLayer, graft
from .arms import ACCURACY, Arm, Comparison, Measure, Outcomes, unchanged
from .comparison import START, accuracy_on_test, run_comparison, same_data, small_cnn, small_cnn_for
from .data.images import ImageData
from .plan import RATES, plan_of
from .training.fit import check_run
from .training.recipe import ALONE, Recipe, Session

TITLES = {
    "start": "CNN at the start",
    "cnn": "CNN, same number of steps",
    "time": "CNN, same time",
    "random": "non-local block, random start",
    "block": "non-local block",
    "before": "graft before the convolution",
    "beside": "graft beside the convolution",
}
"""Titles of the sides, wherever people read of them."""
GRAFTING = Recipe(epochs=10, lr=3e-4, batch_statistics=False)
_LOOKED_AT = 4  # inputs that layers' maps are measured with


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


def of_images(
    data: ImageData, *, cnn: nn.Module | None = None, recipe: Recipe = GRAFTING, rates: Sequence[float] = RATES
) -> Comparison:
    """The comparison of classifiers on images with labels, before its sides are known.

    Args:
        data: The images, the same for all seeds.
        cnn: Where to start from; None trains a small CNN on the data for each seed, as ``plan_of`` plans it.
        recipe: Recipe of the fine-tuning; its seed is the first.
        rates: Learning rates to choose from.
    """
    plan = plan_of(len(data.train.labels), len(data.validation.labels))
    return Comparison(
        name="grafting",
        what=data.name,
        data=partial(same_data, data=data),
        score=partial(accuracy_on_test, data=data),
        arms={},
        start=replace(START, batch_size=plan.batch_size, epochs=plan.start_epochs),
        onward=recipe,
        new=partial(small_cnn, **small_cnn_for(data)),
        cnn=cnn,
        rates=tuple(rates),
        measures=(Measure(ACCURACY, "accuracy, %", "points", factor=100, digits=1),),
    )


def compare_grafts(
    comparison: Comparison,
    folder: Path,
    *,
    where: str | Sequence[str] = "auto",
    options: Mapping[str, Any] | None = None,
    seeds: int = 5,
    follows_ends: bool = True,
    session: Session = ALONE,
) -> Outcomes:
    """Trains a CNN further with spare heads and in the ways that they must beat, for several seeds.

    Args:
        comparison: Data, CNN, recipes, rates and scores, of any task; its arms come beside the sides above.
        folder: Where runs are kept; its parent must exist.
        where: As ``graft``'s; "auto" measures maps on the data.
        options: Further keyword arguments of ``graft``: heads, key_dim, value_dim, positions; with beside, layers that
            cannot carry heads beside them are refused.
        seeds: Number of seeds; with 0 only steps are timed.
        follows_ends: Whether a best rate at an end of the list is followed further.
        session: As for ``fit``.

    Returns:
        For each seed what came of "start" and of each side: scores on test data.

    Raises:
        ConversionError: As ``graft`` and ``fit``, or the network's scores are not those of the images' classes.
        RunExistsError: The folder exists, and is not to be resumed.
        OutputError: The folder holds something else, or cannot be made.
    """
    options, recipe = options or {}, comparison.onward
    last = recipe.seed + as_integer(seeds, "seeds", least=0) - 1
    replace(recipe, seed=max(last, recipe.seed))  # refused before anything is written
    data = comparison.data(recipe.seed)
    start = comparison.new() if comparison.cnn is None else comparison.cnn
    first = comparison.start if comparison.cnn is None else recipe
    check_run(start, data, first, machine=session.machine, loss=comparison.loss, exactly=True)
    if isinstance(data, ImageData):
        example = data.validation.taken(slice(_LOOKED_AT)).numbers()
    else:
        example = next(iter(data.validation))[0][:_LOOKED_AT]
    layers = graft(start, where=where, example=example, **options).report.layers
    shape = "x".join(map(str, example.shape[1:]))
    session.say(f"Grafted in this comparison, on inputs of {shape}: {'; '.join(map(str, layers))}")
    lr = next(iter(comparison.rates), recipe.lr)
    arms = _sides(layers, options, lr=lr) | dict(comparison.arms)
    for arm in arms.values():
        check_run(arm.build(copy.deepcopy(start)), data, recipe, machine=session.machine, loss=comparison.loss)
    return run_comparison(
        replace(comparison, arms=arms, follows_ends=follows_ends), folder, seeds=seeds, session=session
    )


def _sides(layers: Sequence[GraftedLayer], options: Mapping[str, Any], *, lr: float) -> dict[str, Arm]:
    """The sides; "beside" only where every layer can have heads there."""
    block = partial(with_block, layers=layers)
    heads = partial(with_heads, layers=layers, options={name: options[name] for name in options if name != "beside"})
    arms = {
        "cnn": Arm(TITLES["cnn"], unchanged, lr),
        "time": Arm(TITLES["time"], unchanged, lr, rate_of="cnn", as_long_as="before"),
        "random": Arm(TITLES["random"], partial(block, zero=False), lr),
        "block": Arm(TITLES["block"], partial(block, zero=True), lr),
        "before": Arm(TITLES["before"], partial(heads, beside=False), lr),
    }
    if not any(layer.spec.transposed for layer in layers):
        arms["beside"] = Arm(TITLES["beside"], partial(heads, beside=True), lr)
    return arms


class Lead(NamedTuple):
    """How far one side is ahead of another, seed by seed.

    Attributes:
        mean: Mean of the differences; negative if the other is better.
        spread: Their standard deviation; infinite with one seed.
        is_clear: Whether the mean is farther from 0 than the spread, and than two standard errors.
    """

    mean: float
    spread: float
    is_clear: bool


def lead(scores: Sequence[float], others: Sequence[float]) -> Lead:
    """Compares the scores of two sides, or their gains over a third, in the order of the seeds."""
    apart = [one - other for one, other in zip(scores, others, strict=True)]
    mean, spread = statistics.fmean(apart), statistics.stdev(apart) if len(apart) > 1 else math.inf
    return Lead(mean, spread, abs(mean) > max(1.0, 2 / math.sqrt(len(apart))) * spread)
