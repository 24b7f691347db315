"""What is said first: layers and heads, literal attention beside its bound, and whether the program is the CNN's."""

from __future__ import annotations

import torch
from torch import nn

from conv2attn.convert import convert_model
from conv2attn.convert.files import summary
from conv2attn.convert.files.layers import Layers
from conv2attn.convert.files.summary import Summary
from conv2attn.convert.model.report import Report
from conv2attn.convert.size import Size

SIZE = Size(70, 80)


def cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, (3, 2), stride=2)).eval()


def summarised(model: nn.Module, size: Size = SIZE) -> Summary:
    return Summary.of(model, Report.of(model).layers, size=size)


def test_attention_is_said_first_with_its_literal_difference_and_bound() -> None:
    for alpha in (None, 6.0):
        model, _ = convert_model(cnn(), alpha=alpha)
        found = summarised(model)
        assert (found.layers, found.heads, list(found.samples)) == (2, 15, ["0", "2"])
        assert all(one.difference <= one.bound and one.queries == 64 for one in found.samples.values())
        samples = found.samples.values()
        difference, bound = max(one.difference for one in samples), max(one.bound for one in samples)
        told = f"Literal attention at 64 queries a layer: at most {difference:.1e} apart, bound {bound:.1e}."
        assert found.in_words.startswith(f"2 layers, 15 heads. {told}")
        assert found.to_json()["in_words"] == found.in_words
        assert found.is_same_program is (alpha is None)
        assert found.in_words.endswith("same bits as the CNN.") is (alpha is None)


def test_where_no_image_goes_through_it_says_how_many_layers_and_heads_there_are() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.conv(x) + other
            return found

    model, _ = convert_model(Odd())
    assert summarised(model).in_words == "1 layer, 1 head."


def test_a_network_of_one_size_sees_an_image_of_that_size() -> None:
    torch.manual_seed(0)
    fixed = nn.Sequential(nn.Conv2d(3, 4, 2, stride=10), nn.Flatten(), nn.Linear(4 * 7 * 8, 2))
    model, _ = convert_model(fixed)
    assert list(summarised(model).samples) == ["0"]


def test_layers_without_their_network_each_see_an_image_and_are_no_program() -> None:
    root = Layers()
    root.add_module("one", nn.Conv2d(5, 2, 3))
    root.add_module("two", nn.Conv1d(70, 2, 3))
    model, _ = convert_model(root)
    found = summarised(model)
    assert (list(found.samples), found.is_same_program) == (["one", "two"], False)


def test_only_exact_layers_are_tried_as_the_cnn_s_program() -> None:
    model, _ = convert_model(cnn(), alpha=6.0)
    assert not summary.is_the_cnn(model, torch.zeros(1, 3, 8, 9))
