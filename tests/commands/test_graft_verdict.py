"""Verdict and table of a comparison, from scores that were not trained."""

from __future__ import annotations

from dataclasses import replace

import pytest

from conv2attn.commands.graft_verdict import cautions_of, notes_of, scores_table, verdict_of
from conv2attn.learn.arms import ACCURACY, ArmResult, Measure, Outcomes
from conv2attn.learn.chance import Chance
from conv2attn.learn.comparison import beyond
from conv2attn.learn.grafting import TITLES, lead


@pytest.mark.parametrize(
    ("scores", "further"),
    [
        ({1e-3: (0.5, 0.0), 1e-2: (0.6, 0.0)}, [0.1]),
        ({1e-3: (0.6, 0.0), 1e-2: (0.5, 0.0)}, [1e-4]),
        ({1e-3: (0.5, 0.0), 1e-2: (0.6, 0.0), 1e-1: (0.4, 0.0)}, []),
        ({1e-3: (0.5, 0.0)}, []),
        ({0.1: (0.5, 0.0), 0.5: (0.6, 0.0)}, []),
    ],
)
def test_the_next_rate_lies_beyond_the_end_that_is_best(
    scores: dict[float, tuple[float, float]], further: list[float]
) -> None:
    assert beyond(scores) == further


def test_a_lead_is_clear_beyond_its_spread_and_two_standard_errors() -> None:
    assert lead([1.0, 1.2, 1.1], [0.1, 0.3, 0.2]).is_clear
    assert lead([0.1, 0.3, 0.2], [1.0, 1.2, 1.1]) == pytest.approx((-0.9, 0.0, True))
    assert not lead([1.0, 1.2, 0.1], [0.1, 0.3, 1.2]).is_clear
    assert not lead([1.0], [0.1]).is_clear
    assert not lead([0.0, 2.4], [0.0, 0.0]).is_clear  # the mean is 0.71 of the spread
    assert not lead([0.25, 2.15], [0.0, 0.0]).is_clear  # more than the spread, less than two standard errors
    many = [0.5, 2.5] * 20  # mean 1.5, spread 1.01, standard error 0.16
    assert lead(many, [0.0] * 40).is_clear
    assert not lead(many, [0.6] * 40).is_clear  # 5 standard errors, but within the spread


def outcomes(**scores: tuple[float, ...]) -> Outcomes:
    """Results of sides that have these scores, one for each seed."""
    results = {
        seed: {
            name: ArmResult({"psnr": each[seed]}, {}, 0.01, 1, 10, 2, 50, begun={"psnr": 0.5})
            for name, each in scores.items()
        }
        for seed in range(len(scores["cnn"]))
    }
    return Outcomes(results, {}, {name: 0.1 * place for place, name in enumerate(scores, 1)})


PSNR = Measure("psnr", "PSNR", "dB", digits=1)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (
            {"cnn": (1.0, 2.0), "time": (1.1, 2.1), "before": (2.0, 3.2), "beside": (1.0, 2.0), "block": (1.5, 2.5)},
            "Grafting pays here: the graft before the convolution is 1.0 dB better than the CNN trained for the same "
            "time (± 0.1, standard deviation over 2 seeds)",
        ),
        (
            {"cnn": (1.0, 2.0), "time": (0.9, 1.9), "before": (2.0, 3.2), "block": (3.0, 4.2)},
            "Grafting pays here: the graft before the convolution is 1.1 dB better than the CNN trained for the same "
            "number of steps (± 0.1, standard deviation over 2 seeds); the non-local block is 1.0 dB better still",
        ),
        (
            {"cnn": (1.0, 2.0), "time": (4.0, 5.3), "before": (2.0, 3.2), "beside": (2.5, 3.6)},
            "Grafting does not pay here: the CNN trained for the same time is 1.6 dB better than the graft beside the "
            "convolution (± 0.1, standard deviation over 2 seeds)",
        ),
        (
            {"cnn": (2.0, 3.0), "before": (1.0, 2.8)},
            "Undecided: the CNN trained for the same number of steps is 0.6 dB better than the graft before the "
            "convolution, too little for its spread (± 0.6, standard deviation over 2 seeds)",
        ),
        (
            {"cnn": (2.0,), "before": (3.0,)},
            "Undecided, as one seed has no spread: the graft before the convolution is 1.0 dB better than the CNN "
            "trained for the same number of steps",
        ),
    ],
)
def test_the_verdict_says_whether_the_graft_beats_the_cnn_and_by_how_much(
    scores: dict[str, tuple[float, ...]], said: str
) -> None:
    assert verdict_of(outcomes(**scores), PSNR) == said


def accuracies(**scores: tuple[float, ...]) -> Outcomes:
    """Results of sides that have these accuracies, one for each seed."""
    found = outcomes(**scores)
    results = {
        seed: {name: replace(each, scores={ACCURACY: each.scores["psnr"]}) for name, each in one.items()}
        for seed, one in found.results.items()
    }
    return replace(found, results=results)


POINTS = Measure(ACCURACY, "accuracy, %", "points", factor=100, digits=1)
TWELVE = Chance(12, 1 / 3)


def test_rows_that_chance_explains_are_not_compared() -> None:
    """Of 12 images in three classes a guess has 8 right with probability 0.019, 9 with 0.004; six guess."""
    lucky = accuracies(start=(4 / 12, 4 / 12), cnn=(3 / 12, 4 / 12), before=(8 / 12, 8 / 12))
    said = verdict_of(lucky, POINTS, chance=TWELVE)
    assert said.startswith("Nothing was learned: every row is at chance")
    assert "9 would be needed" in said
    assert "better" not in said
    learned = accuracies(start=(4 / 12, 4 / 12), cnn=(3 / 12, 4 / 12), before=(10 / 12, 11 / 12))
    assert verdict_of(learned, POINTS, chance=TWELVE).startswith("Grafting pays here")
    other = accuracies(start=(11 / 12, 11 / 12), cnn=(3 / 12, 4 / 12), before=(5 / 12, 6 / 12))
    assert verdict_of(other, POINTS, chance=TWELVE).endswith("are at chance")


def test_rows_that_are_all_perfect_or_equal_are_not_called_better() -> None:
    perfect = accuracies(start=(1.0, 1.0), cnn=(1.0, 1.0), before=(1.0, 1.0))
    assert verdict_of(perfect, POINTS, chance=TWELVE) == "Undecided: every row has all 12 test images right"
    equal = accuracies(start=(1.0, 1.0), cnn=(1.0, 0.75), before=(0.75, 1.0))
    assert "as good as each other" in verdict_of(equal, POINTS, chance=TWELVE)


def test_the_verdict_of_a_run_that_was_too_short_says_so() -> None:
    found = outcomes(cnn=(1.0, 2.0), time=(4.0, 5.3), before=(2.0, 3.2))
    results = {seed: one | {"cnn": replace(one["cnn"], is_improving=True)} for seed, one in found.results.items()}
    begins = "Grafting does not pay yet, after 2 epochs with which the CNN still improves: the CNN trained"
    assert verdict_of(replace(found, results=results), PSNR).startswith(begins)


def test_the_table_has_each_score_in_its_column_and_what_was_equal() -> None:
    found = outcomes(start=(0.5, 0.7), cnn=(1.0, 2.0), before=(2.0, 3.2))
    header, rows, *_ = scores_table(found, [PSNR])
    table = {title: dict(zip(header[1:], cells, strict=True)) for title, *cells in rows}
    start, cnn, graft = (table[TITLES[name]] for name in ("start", "cnn", "before"))
    assert {name: cell for name, cell in start.items() if cell} == {"PSNR: before": "0.6 ± 0.1"}
    assert cnn["difference"] == ""
    assert graft == {
        "PSNR: before": "0.5 ± 0.0",
        "after": "2.6 ± 0.8",
        "difference": "+1.1 ± 0.1",
        "learning rate": "0.01",
        "steps": "50",
        "seconds": "15",
        "step (CNN = 1)": "1.50",
    }
    assert notes_of(found)[0] == "± is the standard deviation over 2 seeds."
    assert not any("±" in note for note in notes_of(outcomes(cnn=(1.0,), before=(1.0,))))


@pytest.mark.parametrize(
    ("seeds", "late", "said"),
    [
        (2, False, ["2 seeds are few: --seeds 5"]),
        (1, False, ["1 seed is few: --seeds 5"]),
        (3, False, []),
        (
            3,
            True,
            [
                "the CNN was still improving after 2 epochs (the last one was the best on the validation data "
                "for 3 of 3 seeds): --epochs 10"
            ],
        ),
    ],
)
def test_few_seeds_and_a_cnn_that_still_improves_are_warned_of(seeds: int, late: bool, said: list[str]) -> None:
    found = outcomes(cnn=(1.0,) * seeds)
    results = {seed: {"cnn": replace(each["cnn"], is_improving=late)} for seed, each in found.results.items()}
    assert cautions_of(replace(found, results=results)) == said
