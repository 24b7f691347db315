"""Result of ``conv2attn graft --data``: the table of all rows, cautions, and the verdict, which is one sentence."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ..learn.arms import ACCURACY, ArmResult, Measure, Outcomes
from ..learn.chance import LEVEL, Chance
from ..learn.data.images import ImageData
from ..learn.grafting import TITLES, lead
from ..show.pictures.training import spread
from ..show.text import Table

GRAFTS, CNNS = ("before", "beside"), ("cnn", "time")
"""Rows of the table that are grafts, and rows that are the CNN alone."""
_TRAINED = {"cnn": "the CNN trained for the same number of steps", "time": "the CNN trained for the same time"}
_FEW = 3  # seeds, below which a standard deviation says little


def scores_table(outcomes: Outcomes, measures: Sequence[Measure], titles: Mapping[str, str] = TITLES) -> Table:
    """Scores of every side before and after, paired differences from the CNN, rate, steps and their time.

    Args:
        outcomes: The results.
        measures: The scores that are shown; of the first there are scores and differences, of others differences.
        titles: The rows, by the names of the sides.
    """
    runs = list(outcomes.results.values())
    rows = []
    for name, title in titles.items():
        if name in runs[0]:
            rows.append((title, *_cells(name, [found[name] for found in runs], outcomes, measures)))
    first, *others = measures
    differences = [f"{each.title}: difference" for each in others]
    ends = ("learning rate", "steps", "seconds", "step (CNN = 1)")
    return Table(("", f"{first.title}: before", "after", "difference", *differences, *ends), tuple(rows))


def _cells(name: str, found: Sequence[ArmResult], outcomes: Outcomes, measures: Sequence[Measure]) -> tuple[str, ...]:
    first = measures[0]
    scores = [first.factor * each.scores[first.name] for each in found]
    if name == "start":
        return (spread(scores, first.digits), *[""] * (len(measures) + 5))
    begun = [first.factor * each.begun[first.name] for each in found if each.begun]
    gains = [[each.factor * gain for gain in outcomes.gains(name, each.name)] for each in measures]
    step, count = outcomes.seconds.get(name), found[0].steps
    return (
        spread(begun, first.digits) if begun else "",
        spread(scores, first.digits),
        *(
            "" if name == "cnn" else spread(gain, each.digits, signed=True)
            for gain, each in zip(gains, measures, strict=True)
        ),
        f"{found[0].lr:g}",
        f"{count:,}" if count else "",
        _short(step * count) if step and count else "",
        f"{step / outcomes.seconds['cnn']:.2f}" if step else "",
    )


def _short(seconds: float) -> str:
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"


def notes_of(outcomes: Outcomes) -> list[str]:
    """Explanations of the table's signs and columns."""
    seeds = len(outcomes.results)
    return [
        *([f"\u00b1 is the standard deviation over {seeds} seeds."] if seeds > 1 else []),
        f'Difference: from the row "{TITLES["cnn"]}", seed by seed.',
        f'Seconds: steps times the time of a step\'s forward and backward pass. In the row "{TITLES["time"]}", as many '
        f"epochs as come nearest to the time of the {TITLES['before']}.",
    ]


def cautions_of(outcomes: Outcomes) -> list[str]:
    """Reasons why the result is uncertain, each with the option that helps."""
    runs = [found["cnn"] for found in outcomes.results.values()]
    count, epochs = len(runs), runs[0].epochs
    found = []
    if count < _FEW:
        found.append(f"{count} seed{'s are' if count > 1 else ' is'} few: --seeds 5")
    if late := sum(run.is_improving for run in runs):
        still = f"the CNN was still improving after {epochs} epoch{'s' * (epochs > 1)}"
        where = f"the last one was the best on the validation data for {late} of {count} seed{'s' * (count > 1)}"
        found.append(f"{still} ({where}): --epochs {max(10, 2 * epochs)}")
    return found


def chance_of(images: ImageData) -> Chance:
    """The test images, and the share of their largest class."""
    labels = images.test.labels
    return Chance(len(labels), int(labels.bincount().max()) / len(labels))


def above_chance(outcomes: Outcomes, chance: Chance) -> set[str]:
    """The rows that learned something: with at least one seed, more test images are right than chance explains."""
    least = chance.least(len(_accuracies(outcomes)))
    return {
        name
        for found in outcomes.results.values()
        for name, each in found.items()
        if round(each.scores[ACCURACY] * chance.images) >= least
    }


def _accuracies(outcomes: Outcomes) -> list[float]:
    """Those of all networks that were tested."""
    return [each.scores[ACCURACY] for found in outcomes.results.values() for each in found.values()]


def _nothing_learned(outcomes: Outcomes, chance: Chance) -> str:
    scores, count = _accuracies(outcomes), chance.images
    tries = len(scores)
    least = chance.least(tries)
    needed = f"{least:,} would be needed" if least <= count else "not even all would be enough"
    return (
        f"Nothing was learned: every row is at chance; the best of {tries} networks has {round(max(scores) * count):,} "
        f"of {count:,} test images right, and {needed} to tell one of them, at the level {LEVEL:g} for all together, "
        f"from a guess that is right for the share of the largest class, {100 * chance.share:.1f} %"
    )


def verdict_of(
    outcomes: Outcomes, measure: Measure, titles: Mapping[str, str] = TITLES, *, chance: Chance | None = None
) -> str:
    """One sentence: whether the better graft beats the better of the CNNs that went on, and what beats both.

    Args:
        outcomes: The results.
        measure: The score that decides.
        titles: The rows, by the names of the sides.
        chance: Of classifiers, the test images: rows that these do not tell from chance are not compared.
    """
    runs = next(iter(outcomes.results.values()))
    learned = set(runs) if chance is None else above_chance(outcomes, chance)
    if chance is not None and not learned:
        return _nothing_learned(outcomes, chance)
    gains = {
        name: [measure.factor * gain for gain in outcomes.gains(name, measure.name)] for name in titles if name in runs
    }
    graft, cnn = (
        max((each for each in names if each in gains), key=lambda name: statistics.fmean(gains[name]))
        for names in (GRAFTS, CNNS)
    )
    if chance is not None and min(_accuracies(outcomes)) == 1:
        return f"Undecided: every row has all {chance.images:,} test images right"
    if learned.isdisjoint({graft, cnn}):
        return f"Undecided: {_named(graft, titles)} and {_named(cnn, titles)} are at chance"
    found = lead(gains[graft], gains[cnn])
    first, second = (graft, cnn) if found.mean >= 0 else (cnn, graft)
    seeds, digits = len(outcomes.results), measure.digits
    by = f"{abs(found.mean):.{digits}f} {measure.unit} better"
    ahead = f"{_named(first, titles)} is {by} than {_named(second, titles)}"
    if not round(abs(found.mean), digits):
        ahead = f"{_named(first, titles)} and {_named(second, titles)} are as good as each other"
    if seeds == 1:
        return f"Undecided, as one seed has no spread: {ahead}"
    over = f"(\u00b1 {found.spread:.{digits}f}, standard deviation over {seeds} seeds)"
    if not found.is_clear:
        return f"Undecided: {ahead}{', too little for its spread' * bool(round(abs(found.mean), digits))} {over}"
    others = {name: lead(gains[name], gains[first]) for name in gains if name not in (*GRAFTS, *CNNS, "start")}
    better = [name for name, each in others.items() if each.is_clear and each.mean > 0]
    best = max(better, key=lambda name: others[name].mean, default=None)
    more = (
        ""
        if best is None
        else f"; {_named(best, titles)} is {others[best].mean:.{digits}f} {measure.unit} better still"
    )
    is_early = any(each["cnn"].is_improving for each in outcomes.results.values())
    when = f"yet, after {runs['cnn'].epochs} epochs with which the CNN still improves" if is_early else "here"
    return f"Grafting {'pays' if first == graft else 'does not pay'} {when}: {ahead} {over}{more}"


def _named(name: str, titles: Mapping[str, str]) -> str:
    """A side within a sentence."""
    title = titles[name]
    return _TRAINED.get(name) or (title if title.startswith(("a ", "the ")) else f"the {title}")
