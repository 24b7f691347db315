"""Patterns choose the layers that they name, and a pattern that chooses none is refused."""

from __future__ import annotations

import pytest
from torch import nn

from conv2attn.convert.errors import SelectionError
from conv2attn.convert.network.convert import name_filter


def network() -> nn.Sequential:
    block = nn.ModuleDict({"conv1": nn.Conv2d(2, 2, 1), "conv10": nn.Conv2d(2, 2, 1), "relu": nn.ReLU()})
    return nn.Sequential(nn.Conv2d(3, 2, 1), block, nn.ConvTranspose2d(2, 2, 1))


NAMES = ["0", "1.conv1", "1.conv10", "2"]


def chosen(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> list[str]:
    model = network()
    selected = name_filter(model, include=include, exclude=exclude)
    return [name for name in NAMES if selected(model.get_submodule(name), name)]


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        ((), (), NAMES),
        (("1.*",), (), ["1.conv1", "1.conv10"]),
        (("1.conv?",), (), ["1.conv1"]),
        (("re:1[.]conv.",), (), ["1.conv1"]),
        (("re:[02]", "1.conv10"), (), ["0", "1.conv10", "2"]),
        (("1.*",), ("re:.*0",), ["1.conv1"]),
        (("1.*",), ("*",), []),
    ],
)
def test_a_layer_is_chosen_if_it_matches_an_include_and_no_exclude(
    include: tuple[str, ...], exclude: tuple[str, ...], expected: list[str]
) -> None:
    assert chosen(include=include, exclude=exclude) == expected


@pytest.mark.parametrize(("option", "pattern"), [("include", "1.relu"), ("exclude", "re:conv1")])
def test_a_pattern_that_matches_no_convolution_is_refused_with_the_names_there_are(option: str, pattern: str) -> None:
    with pytest.raises(SelectionError, match=r"matches no convolution; there are 0, 1\.conv1, 1\.conv10, 2$") as caught:
        chosen(**{option: ("0", pattern)})
    assert repr(pattern) in str(caught.value)
