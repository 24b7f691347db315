"""A comparison is planned by numbers of images, and told from chance by an exact test."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from math import comb, sqrt

import pytest
from torch import nn, zeros

from conv2attn.learn.chance import LEVEL, Chance
from conv2attn.learn.comparison import small_cnn, small_cnn_for
from conv2attn.learn.data.images import ImageData, Split
from conv2attn.learn.plan import LEAST_STEPS, RATES, plan_of
from conv2attn.learn.training.recipe import Order, Recipe


@pytest.mark.parametrize("train", [3, 7, 42, 100, 500, 1078, 45_000])
def test_every_training_has_steps_enough_whatever_the_number_of_images(train: int) -> None:
    for batch in (None, 1, 20, 64):
        plan = plan_of(train, 6, batch_size=batch)
        assert plan.epoch_steps == len(Order(train, Recipe(batch_size=plan.batch_size)))
        assert min(plan.epochs, plan.start_epochs) * plan.epoch_steps >= LEAST_STEPS


def test_the_least_number_of_steps_can_change_a_weight_by_as_much_as_it_starts_with() -> None:
    layer = small_cnn().get_submodule("9")
    assert isinstance(layer, nn.Conv2d)
    deviation = 1 / sqrt(3 * layer.weight[0].numel())  # uniform up to 1 / sqrt(fan_in)
    (rate,) = plan_of(42, 6).rates
    assert LEAST_STEPS * rate / 2 >= deviation >= 0.9 * LEAST_STEPS * rate / 2
    assert float(layer.weight.detach().std()) == pytest.approx(deviation, rel=0.02)


def test_fewer_images_get_fewer_rates_and_more_epochs() -> None:
    plans = [plan_of(7 * count, count) for count in (1, 6, 20, 30, 49, 50, 1000)]
    assert [len(plan.rates) for plan in plans] == [1, 1, 2, 3, 4, 5, 5]
    assert [plan.epochs for plan in plans] == sorted((plan.epochs for plan in plans), reverse=True)
    assert all(set(plan.rates) <= set(RATES) and list(plan.rates) == sorted(plan.rates) for plan in plans)
    assert plans[-1] == (64, 109, 10, 15, RATES, True, 5)  # what all images had before


@pytest.mark.parametrize("size", [(8, 8), (16, 16), (32, 32), (48, 48), (64, 96), (224, 224), (384, 384), (500, 375)])
def test_the_small_cnn_ends_in_a_map_that_heads_can_use(size: tuple[int, int]) -> None:
    part = Split(zeros(1, 1, *size), zeros(1).long())
    arguments = small_cnn_for(ImageData("none", ("a", "b"), part, part, part))
    shapes = list[tuple[int, ...]]()
    network = small_cnn(**arguments)
    network.get_submodule("11").register_forward_hook(lambda _, __, output: shapes.append(tuple(output.shape)))
    assert network(part.images).shape == (1, 2)
    ((_, _, rows, columns),) = shapes
    pixels = rows * columns
    assert pixels <= 1_600
    assert pixels >= 100 or min(size) < 20


@pytest.mark.parametrize(("images", "tries"), list(product((1, 3, 12, 40, 450), (1, 21))))
def test_the_number_right_that_chance_explains_is_that_of_the_exact_test(images: int, tries: int) -> None:
    share = Fraction(3, 8)

    def tail(least: int) -> Fraction:
        ways = (
            comb(images, right) * share**right * (1 - share) ** (images - right) for right in range(least, images + 1)
        )
        return tries * sum(ways, Fraction(0))

    least = Chance(images, float(share)).least(tries)
    assert tail(least) <= LEVEL
    assert least == 0 or tail(least - 1) > LEVEL


def test_no_number_right_tells_from_chance_where_one_class_is_all() -> None:
    assert Chance(9, 1.0).least(1) == 10
    assert Chance(3, 0.5).least(6) == 4
