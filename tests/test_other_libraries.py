"""Other libraries: what fails while it is imported is told as such, and what they log stays off stderr."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.commands.ending import explain
from conv2attn.convert import convert_model
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.export.to_onnx import export_onnx
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.names import offline
from conv2attn.convert.onnx import read_onnx
from conv2attn.convert.onnx.run import session
from conv2attn.learn.data.datasets import digits
from conv2attn.learn.data.pictures import read_picture
from conv2attn.learn.training.fit import check_machine
from conv2attn.learn.training.recipe import Machine
from tests.command import Run

BROKEN = {
    "an exception of its own": ("raise RuntimeError('it is broken\\nin many ways')", "RuntimeError: it is broken"),
    "a library that it lacks": ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
    "a part that cannot be loaded": (
        "raise ImportError('libparts.so is missing')",
        "ImportError: libparts.so",
    ),
    "an exit": ("raise SystemExit('not here')", "SystemExit: not here"),
}


def exported() -> object:
    return export_onnx(convert_model(nn.Sequential(nn.Conv2d(1, 2, 3))).model, "m.onnx", size=(4, 4))


def online() -> None:
    with offline():
        pass


def fresh(module: str) -> Callable[[], object]:
    """Imports a module that imports the library at its top, again."""

    def import_again() -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.delitem(sys.modules, module, raising=False)
            return importlib.import_module(module)

    return import_again


NETWORK = """
import logging, warnings, torch
from torch import nn

class Net(nn.Sequential):
    def forward(self, x):
        {call}
        return super().forward(x)

def net():
    return Net(nn.Conv2d(3, 4, 3))

log = logging.Logger("torch.export")
log.addHandler(logging.StreamHandler())
"""


@pytest.mark.parametrize("call", ["log.error('a graph of 1000 lines')", "warnings.warn('to go', FutureWarning)"])
def test_logs_and_warnings_for_developers_stay_off_stderr_but_in_debugging(
    call: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("net.py").write_text(NETWORK.format(call=call))
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)).state_dict(), "w.pth")
    command = ("convert", "w.pth", "--arch", "net.py:net", "--no-page", "--force", "--out", "out")
    verify = ("verify", "out", "--size", "8x9", "--random", "1", "--trust")
    assert run(*command).code == 0
    assert run(*verify)[::2] == (0, "")
    with monkeypatch.context() as patch:
        patch.setattr("conv2attn.cli.libraries_quiet", nullcontext)
        assert run(*verify)[::2] != (0, "")


def test_a_conversion_with_its_page_needs_no_optional_library(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("net.py").write_text(NETWORK.format(call="pass"))
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3)).state_dict(), "w.pth")
    loaded = [name for name in sys.modules if name.startswith(("conv2attn.show", "conv2attn.commands."))]
    for package, own in (name.rsplit(".", 1) for name in loaded):
        monkeypatch.setattr(sys.modules[package], own, sys.modules[f"{package}.{own}"])  # an import sets it, too
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    for library in ("matplotlib", "onnx", "onnxruntime", "PIL", "lightning", "sklearn", "huggingface_hub"):
        monkeypatch.setitem(sys.modules, library, None)
    for command in (("convert", "w.pth", "--arch", "net.py:net"), ("restore", "out")):
        out = "out" if command[0] == "convert" else "back.pth"
        assert run(*command, "--out", out)[::2] == (0, "")


NEEDED: dict[str, Callable[[], object]] = {
    "onnx": lambda: read_onnx(Path("m.onnx")),
    "onnxscript": exported,
    "onnxruntime": lambda: session(b""),
    "huggingface_hub": fresh("conv2attn.convert.export.hub"),
    "huggingface_hub.constants": online,
    "transformers": lambda: Architecture("transformers:ResNetModel").build(),
    "timm": lambda: Architecture("timm:resnet18").build(),
    "torchvision": lambda: Architecture("torchvision.models:resnet18").build(),
    "lightning": lambda: check_machine(Machine()),
    "tensorboard": lambda: check_machine(Machine()),
    "sklearn": digits,
    "PIL": lambda: read_picture(Path("p.png"), channels=3),
    "matplotlib": fresh("conv2attn.show.pictures.style"),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.parametrize("name", NEEDED)
def test_a_library_that_fails_while_it_is_imported_is_named_and_is_no_bug(
    name: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    code, told = BROKEN[how]
    library = name.partition(".")[0]
    for module in [module for module in sys.modules if module.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    (tmp_path / library).mkdir()
    (tmp_path / library / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConversionError, match=rf"^importing {library}[.\w]* failed: {told}") as caught:
        NEEDED[name]()
    assert explain(caught.value) == 3
    assert capsys.readouterr().err.startswith(f"conv2attn: importing {library}")
