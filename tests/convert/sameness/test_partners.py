"""Operations are held against those that belong to them: of their kind and module, and on what these read."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import NamedTuple

import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conv2attn.convert import convert_model
from tests.convert.sameness.written import compared, spread


class Language(nn.Module):
    """Attention over tokens, with switches for what may be wrong: [batch, 9] ids to [batch, 9, 40]."""

    def __init__(self, **changed: object) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(40, 32), nn.LayerNorm(32)
        self.q, self.k, self.v, self.out = (nn.Linear(32, 32) for _ in range(4))
        self.up, self.down, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 40)
        self.changed = changed

    def forward(self, ids: Tensor) -> Tensor:
        """The logits."""
        x: Tensor = self.embed(ids)
        y = self.norm(x)
        order = self.changed.get("order", "qkv")
        given = {name: getattr(self, name)(y).unflatten(-1, (4, 8)).transpose(1, 2) for name in str(order)}
        scores = given["q"] @ given["k"].transpose(-1, -2) * 8**-0.5
        mask = torch.ones(9, 9, dtype=torch.bool).triu(1 + int(bool(self.changed.get("mask"))))
        scores = scores.masked_fill(mask, -torch.inf)
        x = x + self.out((scores.softmax(-1) @ given["v"]).transpose(1, 2).flatten(2))
        y = F.silu(self.up(x))
        if self.changed.get("through"):
            y = y.bfloat16().float()
        x = x + self.down(y) + self.changed.get("offset", 0)
        logits: Tensor = self.head(x) / self.changed.get("temperature", 1.0)
        if self.changed.get("cast"):
            logits = logits.bfloat16().float()
        return logits * float(str(self.changed["factor"])) if "factor" in self.changed else logits


def language(**changed: object) -> tuple[nn.Module, nn.Module, Tensor]:
    torch.manual_seed(1)
    a = spread(Language())
    b = Language(**changed).eval()
    b.load_state_dict(a.state_dict())
    return a, b, torch.randint(40, (2, 9))


class Wrong(NamedTuple):
    """What B has otherwise, the place, and words of the cause."""

    changed: dict[str, object]
    place: str
    says: str


WRONG = {
    "temperature": Wrong({"temperature": 0.9999}, "div", "other 1 in A, 0.9999 in B"),
    "offset": Wrong({"offset": 0.001}, "add", "other 0 in A, 0.001 in B"),
    "cast of the logits": Wrong({"cast": True}, "div", "B has a cast to bfloat16 behind it"),
    "factor behind the logits": Wrong({"factor": 0.999}, "div", "B has mul (0.999) behind it"),
    "activation through bfloat16": Wrong({"through": True}, "down", "B has a cast to bfloat16 before it"),
    "mask": Wrong({"mask": True}, "triu", "diagonal 1 in A, 2 in B"),
}


@pytest.mark.fault
@pytest.mark.parametrize("name", WRONG)
def test_what_only_one_side_does_is_named(name: str) -> None:
    wrong = WRONG[name]
    found = compared(*language(**wrong.changed)[:2], language()[2])
    assert found.verdict == ("coarser rounding" if "cast" in wrong.says else "not rounding")
    assert [wrong.place in place.name for place in found.where] == [True]
    assert wrong.says in found.where[0].why


@pytest.mark.fault
def test_of_projections_that_run_in_another_order_the_wrong_rows_are_counted() -> None:
    a, b, ids = language(order="vkq")
    assert compared(a, b, ids).verdict in ("same bits", "rounding")
    with torch.no_grad():
        b.get_submodule("v").weight[3] *= 1.5  # type: ignore[operator,index]
    (place,) = compared(a, b, ids).where
    assert (place.name, "32 of 1,024 elements of weight differ" in place.why) == ("v", True)


class Residual(nn.Module):
    """Two residual blocks behind a stem: [batch, 3, 16, 20] to [batch, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU()), nn.Linear(16, 5)
        sizes = ((8, 8, 1), (8, 16, 2))
        self.conv1 = nn.ModuleList(nn.Conv2d(i, o, 3, stride, 1, bias=False) for i, o, stride in sizes)
        self.conv2 = nn.ModuleList(nn.Conv2d(o, o, 3, padding=1, bias=False) for _, o, _ in sizes)
        self.side = nn.ModuleList(nn.Conv2d(i, o, 1, stride, bias=False) for i, o, stride in sizes)
        self.bn1, self.bn2 = (nn.ModuleList(nn.BatchNorm2d(o) for _, o, _ in sizes) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """The network."""
        x = self.stem(x)
        for conv1, bn1, conv2, bn2, side in zip(self.conv1, self.bn1, self.conv2, self.bn2, self.side, strict=True):
            x = F.relu(bn2(conv2(F.relu(bn1(conv1(x))))) + side(x))
        found: Tensor = self.head(x.mean((2, 3)))
        return found


def exported(network: nn.Module, x: Tensor, path: Path, how: str) -> Path:
    """A file of torch's new or old exporter, or of the new one and then ONNX Runtime's optimiser."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its internals
        torch.onnx.export(network, (x,), path, dynamo=how != "old", verbose=False, opset_version=18)
    if how != "optimised":
        return path
    options, found = onnxruntime.SessionOptions(), path.with_suffix(".optimised.onnx")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath, options.log_severity_level = str(found), 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return found


@pytest.mark.slow
@pytest.mark.fault
@pytest.mark.parametrize("how", ["new", "old", "optimised"])
def test_in_files_whose_operations_are_not_one_by_one_innocents_are_not_named(how: str, tmp_path: Path) -> None:
    torch.manual_seed(2)
    a, x = spread(Residual()), torch.randn(2, 3, 16, 20)
    assert compared(a, exported(a, x, tmp_path / "a.onnx", how), x).verdict == "rounding"
    b = copy.deepcopy(a)
    b.get_submodule("bn1.1").eps = 1e-2  # type: ignore[assignment]
    (place,) = compared(a, exported(b, x, tmp_path / "b.onnx", how), x).where
    assert place.name == "conv1.1"
    assert "`bn1.1`" in place.kind


def test_a_convolution_of_one_pixel_without_padding_is_named() -> None:
    torch.manual_seed(0)
    a = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 8, 1)).eval()
    b = copy.deepcopy(a)
    b.get_parameter("3.bias").data.copy_(a.get_parameter("3.bias").half().float())
    found = compared(a, b, torch.randn(2, 3, 32, 32))
    assert found.where[0].name == "3"


def many_norms() -> nn.Sequential:
    """Batch norms of small maps, whose channels share the errors of a factor and a shift."""
    torch.manual_seed(2)
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1)]
    for _ in range(12):
        depthwise, norms = nn.Conv2d(32, 32, 3, padding=1, groups=32), [nn.BatchNorm2d(32), nn.BatchNorm2d(32)]
        layers += [norms[0], depthwise, norms[1], nn.ReLU(), nn.Conv2d(32, 32, 1)]
        for norm in norms:
            assert norm.running_mean is not None
            assert norm.running_var is not None
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
            nn.init.normal_(norm.bias)
    return nn.Sequential(*layers).eval()


def test_norms_whose_channels_err_alike_are_not_named_beside_a_bug() -> None:
    a = many_norms()
    b = copy.deepcopy(a)
    b[59] = nn.Identity()
    found = compared(a, b, torch.randn(2, 3, 8, 8))
    assert [part.name for part in found.where] == ["59"]


def test_a_kernel_that_errs_as_much_in_a_is_not_named_beside_a_bug() -> None:
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Conv2d(32, 32, 1), nn.BatchNorm2d(32), nn.GELU())]
    a = nn.Sequential(*layers, nn.Tanh()).eval()
    with torch.no_grad():
        for layer in a:
            if isinstance(layer, nn.Conv2d):
                layer.weight.mul_(2)
    b = copy.deepcopy(a)
    b[24] = nn.Identity()
    found = compared(a, b, torch.randn(2, 32, 8, 8))
    assert [part.name for part in found.where] == ["24"]


def test_a_convolution_that_b_has_as_attention_in_other_operations_is_not_said_to_be_where_it_begins() -> None:
    torch.manual_seed(2)
    cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()).eval()
    attention, _ = convert_model(cnn, engine="literal")
    wrong = nn.Sequential(cnn[0], nn.BatchNorm2d(8, eps=0.1), nn.ReLU()).eval()
    found = compared(wrong, attention, torch.randn(2, 3, 8, 8))
    assert found.verdict == "not rounding"
    assert found.where[0].may_be_behind
    assert " or behind it: " in found.sentence
    assert "what follows it" in found.advice
