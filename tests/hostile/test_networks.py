"""Whatever a user's network raises, wherever it is run, is told in one sentence and is no bug of the program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from conv2attn.convert import convert_model
from conv2attn.convert.errors import ConversionError, first_line, refusing
from conv2attn.convert.files.architecture import build_architecture
from tests.command import exit_code

NETS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 10)
        )

class Asserts(Net):
    def forward(self, x):
        assert x is None

class Silent(Net):
    def forward(self, x):
        raise RuntimeError

class Wordless(Net):
    def forward(self, x):
        raise ValueError()

class Other(Net):
    def forward(self, x):
        raise Exception("odd\\nsecond line")

class Trained(Net):
    def forward(self, x):
        if self.training:
            raise LookupError
        return self.net(x)

class Dictionary(Net):
    def forward(self, x):
        return {"scores": self.net(x)}

class WithoutGradients(Net):
    def forward(self, x):
        return self.net(x).detach()

class Batches(Net):
    def forward(self, x):
        assert self.training or len(x) == 2
        return self.net(x)
"""
RUNS = {
    "verify": ("verify", "cnn.pt", "--random", "1", "--size", "8x8"),
    "onnx": ("export", "cnn.pt", "--to", "onnx", "--size", "8x8", "--out", "x.onnx"),
    "mha": ("export", "cnn.pt", "--to", "mha", "--size", "8x8", "--out", "x.safetensors"),
    "freeze": ("freeze", "converted.pt", "--tolerance", "0.1", "--size", "8x8", "--out", "x.pt2"),
    "show": ("show", "cnn.pt", "--out", "x.svg"),
    "melt": (
        "melt",
        "cnn.pt",
        "--data",
        "digits",
        "--epochs",
        "1",
        "--seeds",
        "1",
        "--accelerator",
        "cpu",
        "--out",
        "x",
    ),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NETS)


def told(arguments: Sequence[str], name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The last sentence of a run that is refused."""
    network = build_architecture(f"nets.py:{name}", {})
    torch.save(network.state_dict(), "cnn.pt")
    torch.save(convert_model(network).model.state_dict(), "converted.pt")
    capsys.readouterr()
    code, (out, err) = exit_code(*arguments, "--arch", f"nets.py:{name}"), capsys.readouterr()
    assert (code, out) == (3, ""), err
    lines = [line for line in err.splitlines() if not line.startswith("Seed ")]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    ("name", "said"), [("Asserts", "AssertionError"), ("Silent", "RuntimeError"), ("Wordless", "ValueError")]
)
@pytest.mark.parametrize("run", RUNS)
def test_an_error_without_words_is_told_by_its_name(
    run: str, name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = told(RUNS[run], name, capsys)
    assert line.startswith("conv2attn: ")
    assert line.endswith(said)


@pytest.mark.parametrize("run", RUNS)
def test_of_an_error_of_several_lines_the_first_is_told(run: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(RUNS[run], "Other", capsys).endswith("Exception: odd")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Trained", "the network cannot be trained: LookupError"),
        ("Dictionary", "the network gives a dict; digits has 10 classes"),
        ("WithoutGradients", "the network cannot be trained: RuntimeError: element 0 of tensors does not require"),
        ("Batches", "the network cannot be looked at: AssertionError"),
    ],
)
def test_a_network_that_fails_in_training_alone_is_refused(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in told(RUNS["melt"], name, capsys)


def test_errors_of_ours_and_a_lack_of_memory_are_told_as_they_are() -> None:
    for error in (ConversionError("a sentence"), MemoryError()):
        with pytest.raises(type(error)) as raised, refusing("it does not run"):
            raise error
        assert raised.value is error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError(), "ValueError"),
        (ValueError(" \n"), "ValueError"),
        (ValueError("\none\ntwo"), "ValueError: one"),
        (KeyError("k"), "KeyError: 'k'"),
    ],
)
def test_an_error_s_first_line_has_its_name(error: Exception, said: str) -> None:
    assert first_line(error) == said
