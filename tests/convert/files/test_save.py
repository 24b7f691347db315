"""What a converted model is written as: every value of config.json, which tensors, and what is refused."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from conv2attn.convert import attention_from_conv, save_converted
from conv2attn.convert.agreement.report import certify_report
from conv2attn.convert.arguments import Size
from conv2attn.convert.errors import OutputError
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.folder import FORMAT_VERSION, read_folder
from conv2attn.convert.files.layers import Layers
from conv2attn.convert.files.preprocessing import Normalization, Preprocessing
from conv2attn.convert.files.weights import Checkpoint
from conv2attn.convert.network.report import LayerRecord, Report


def attention(**given: Any) -> nn.Module:
    return attention_from_conv(nn.Conv2d(1, 2, 3, padding=1, **given))


def network() -> nn.Module:
    """An attention layer, another that is the network's last, and a layer that is none."""
    return nn.Sequential(attention(), nn.BatchNorm2d(2), attention_from_conv(nn.Conv2d(2, 1, 1, bias=False)))


def config(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return found


def shared_as(folder: Path) -> dict[str, str]:
    """The metadata of the weights."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        return dict(file.metadata())


def test_config_describes_the_network_its_layers_and_where_they_came_from(tmp_path: Path) -> None:
    model, out = network(), tmp_path / "out"
    architecture = Architecture("module:function", {"classes": 3})
    source = Checkpoint(tmp_path / "w.pt", {}, "0" * 64, {}, files=())
    preprocessing = Preprocessing(Normalization((0.5,), (0.25,)), channels=1, size=Size(8, 7))
    save_converted(model, out, architecture=architecture, preprocessing=preprocessing, source=source)
    assert read_folder(out)[0].preprocessing == preprocessing
    entries = [LayerRecord.of((name,), model.get_submodule(name)).to_json() for name in ("0", "2")]  # type: ignore[arg-type]
    assert config(out) == {
        "format": "conv2attn",
        "format_version": FORMAT_VERSION,
        "content": "network",
        "architecture": {"spec": "module:function", "arguments": {"classes": 3}},
        "preprocessing": preprocessing.to_json(),
        "layers": json.loads(json.dumps(entries)),
        "tensors": list(model.state_dict()),
        "class_versions": {},
        "source": {"file": "w.pt", "sha256": "0" * 64},
        "versions": {"conv2attn": metadata.version("conv2attn"), "torch": metadata.version("torch")},
    }
    assert shared_as(out) == {"format": "pt", "conv2attn": str(FORMAT_VERSION)}
    written = load_file(out / "model.safetensors")
    assert written.keys() == model.state_dict().keys()
    assert all(torch.equal(written[name], value) for name, value in model.state_dict().items())


def test_a_page_and_a_program_are_written_beside_it(tmp_path: Path) -> None:
    def program(path: Path) -> None:
        path.write_bytes(b"onnx")

    save_converted(network(), tmp_path / "out", page="<p>ä</p>", program=program)
    assert (tmp_path / "out/report.html").read_text(encoding="utf-8") == "<p>ä</p>"
    assert (tmp_path / "out/model.onnx").read_bytes() == b"onnx"


def test_a_layer_s_every_name_is_listed_and_its_parameters_are_written_once(tmp_path: Path) -> None:
    shared = attention()
    save_converted(nn.Sequential(shared, shared), tmp_path / "network")
    assert config(tmp_path / "network")["layers"][0]["names"] == ["0", "1"]
    tree = Layers()
    for name in "01":
        tree.add_module(name, shared)
    save_converted(tree, tmp_path / "layers")
    for name in ("network", "layers"):
        own = shared.state_dict().keys()
        assert config(tmp_path / name)["tensors"] == [f"{part}.{key}" for part in "01" for key in own]
        positions = {"1.alpha", "1.centers"}
        assert load_file(tmp_path / name / "model.safetensors").keys() == {f"0.{key}" for key in own} | positions
        assert shared_as(tmp_path / name) == {
            "format": "pt",
            "conv2attn": str(FORMAT_VERSION),
            **{f"1.{key}": f"0.{key}" for key in ("weight", "bias")},
        }


def test_the_report_is_the_one_given_and_has_bounds_where_that_has_bounds(tmp_path: Path) -> None:
    model = network()
    report = Report.of(model).noted({"0": "a note"})
    certified = certify_report(model, report, input_range=(-2.0, 3.0))
    for name, given, note, limits in (
        ("none", None, None, None),
        ("report", report, "a note", None),
        ("certified", certified, "a note", [-2.0, 3.0]),
    ):
        save_converted(model, tmp_path / name, report=given)
        text = (tmp_path / name / "report.json").read_text()
        found = json.loads(text)
        assert text.endswith("}\n")
        assert found["certified_range"] == limits
        assert [layer["note"] for layer in found["layers"]] == [note, None]
    assert len(found.pop("sha256")) == 64
    assert found == json.loads(json.dumps(certified.to_json()))


def test_a_folder_that_holds_the_source_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save_converted(network(), out)
    source = Checkpoint(out / "model.safetensors", {}, "0" * 64, files=(out / "model.safetensors",))
    with pytest.raises(OutputError, match="would be lost"):
        save_converted(network(), out, source=source, force=True)
    save_converted(network(), out, force=True)
