"""Layers are converted by the geometry in the file, compute what the network computes, and find their way back."""

from __future__ import annotations

import copy
import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from hypothesis import given, settings
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from conv2attn.convert import (
    ConvSpec,
    SelfAttention2d,
    convert_model,
    load_converted,
    restore_model,
    save_converted,
)
from conv2attn.convert.errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    ConversionError,
    NotAConvolutionError,
)
from conv2attn.convert.files.architecture import Architecture, build_architecture
from conv2attn.convert.files.checkpoint import read_checkpoint
from conv2attn.convert.files.folder import read_folder
from conv2attn.convert.files.layers import Layers, layer_tree
from conv2attn.convert.files.open import LARGE, open_network
from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from conv2attn.convert.files.readers.onnx.folding import COMPUTED, FOLDED, OPEN
from conv2attn.convert.files.restore import restored_checkpoint, write_state_dict
from conv2attn.convert.spec import Convolution
from conv2attn.proofs.evidence.campaign.checks.bounds import engines_bound
from conv2attn.proofs.evidence.strategies import conv_specs, convolution_of
from tests.command import exit_code

FIXTURES = Path(__file__).parents[2] / "fixtures"
REWRITES = "pkg.onnxscript.rewriter.rule_name"  # where torch's exporter keeps what it did to a node


class Own(nn.Conv1d):
    """A convolution that might compute something else."""


class Net(nn.Module):
    """Convolutions of several geometries, one of them used twice, and of a class of its own, and a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0))
        self.blocks = nn.Sequential(nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding="same", dilation=2, groups=2))
        self.twice = nn.Conv2d(4, 4, 1, bias=False)
        self.head = Own(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 3, rows, columns] to [batch, 2, pixels]."""
        y: Tensor = self.head(self.twice(self.twice(self.blocks(self.stem(x)))).flatten(2))
        return y


def specs(model: nn.Module) -> dict[str, ConvSpec]:
    return {name: ConvSpec.from_conv(conv) for name, conv in model.named_modules() if isinstance(conv, nn.Conv2d)}


def export(model: nn.Module, path: Path, *, decompose: bool = False) -> None:
    with warnings.catch_warnings(action="ignore"):
        program = torch.export.export(model, (torch.rand(2, 3, 8, 9),))
        torch.export.save(program.run_decompositions() if decompose else program, path)


def assert_layers_compute_what_the_convolutions_compute(layers: nn.Module, model: nn.Module) -> None:
    for name, spec in specs(model).items():
        layer, conv = layers.get_submodule(name), model.get_submodule(name)
        assert isinstance(layer, SelfAttention2d)
        x = torch.rand(2, spec.in_channels, 9, 8)
        assert torch.equal(layer(x), conv(x))


# Exported programs


@pytest.mark.parametrize("decompose", [False, True])
def test_an_exported_program_s_convolutions_convert_without_its_code(decompose: bool, tmp_path: Path) -> None:
    model = Net().eval()
    export(model, tmp_path / "m.pt2", decompose=decompose)
    checkpoint = read_checkpoint(tmp_path / "m.pt2")
    assert checkpoint.state_dict.keys() == model.state_dict().keys()
    assert all(torch.equal(checkpoint.state_dict[key], value) for key, value in model.state_dict().items())
    network = open_network(tmp_path / "m.pt2")
    converted, report = convert_model(network.model, skip_unsupported=True)
    assert {layer.name for layer in report.layers} == {"stem", "blocks.1", "twice", "head"}
    assert report.skipped == ()
    save_converted(converted, tmp_path / "out", report=report, source=network.checkpoint)
    assert_layers_compute_what_the_convolutions_compute(load_converted(tmp_path / "out"), model)


# ONNX


def onnx_of(conv: Convolution, **attributes: Any) -> onnx.ModelProto:
    """A model of one Conv node with the weights of a convolution."""
    tensors = [
        numpy_helper.from_array(value.detach().numpy(), f"a.b.{name}") for name, value in conv.named_parameters()
    ]
    node = helper.make_node("Conv", ["x", *(tensor.name for tensor in tensors)], ["y"], "/a/b/Conv", **attributes)
    shape = [None, conv.in_channels, None, None]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    ends += [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "graph", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def whole_numbers(shape: torch.Size) -> Tensor:
    """Small integers, whose products are summed without rounding in any order."""
    return torch.randint(-4, 5, shape).float()


@settings(max_examples=30)
@given(conv_specs())
def test_a_conv_node_is_the_convolution_that_onnx_itself_computes(spec: ConvSpec) -> None:
    spec = replace(spec, padding_mode="zeros")
    conv = convolution_of(spec)
    for parameter in conv.parameters():
        parameter.data = whole_numbers(parameter.shape)
    pads = [pair[end] for end in (0, 1) for pair in spec.pads]
    geometry = {"strides": spec.stride, "dilations": spec.dilation, "group": spec.groups, "pads": pads}
    model = onnx_of(conv, kernel_shape=spec.kernel_size, **geometry)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "m").write_bytes(model.SerializeToString())
        found = open_network(Path(folder, "m")).model.get_submodule("a.b")
        assert isinstance(found, nn.Conv2d)
        x = whole_numbers(torch.Size((1, spec.in_channels, 14, 13)))
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x.numpy()})
        assert torch.equal(found(x), torch.from_numpy(wanted))


@pytest.mark.parametrize(
    ("attributes", "padding"),
    [
        ({"auto_pad": "SAME_UPPER"}, "same"),
        ({"auto_pad": "SAME_LOWER", "dilations": [2, 2]}, "same"),
        ({"auto_pad": "VALID"}, (0, 0)),
        ({"pads": [0, 1, 1, 1]}, "same"),
        ({"auto_pad": "SAME_LOWER"}, "same_lower"),
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2]}, "same_upper"),
        ({"auto_pad": "SAME_LOWER", "strides": [3, 2], "dilations": [1, 2]}, "same_lower"),
        ({"pads": [1, 0, 0, 0]}, ((1, 0), (0, 0))),
        ({"pads": [1, 0, 3, 2], "strides": [1, 2]}, ((1, 3), (0, 2))),
    ],
)
def test_padding_is_what_onnx_says(attributes: dict[str, object], padding: object, tmp_path: Path) -> None:
    conv = nn.Conv2d(2, 3, (2, 3))
    for parameter in conv.parameters():
        parameter.data = whole_numbers(parameter.shape)
    model = onnx_of(conv, **attributes)
    (tmp_path / "m").write_bytes(model.SerializeToString())
    stored = read_checkpoint(tmp_path / "m").convolutions["a.b"]
    assert stored.spec is not None, stored.problem
    assert stored.spec.padding == padding
    layers = open_network(tmp_path / "m").model
    layer, back = layers.get_submodule("a.b"), restore_model(convert_model(layers).model).get_submodule("a.b")
    save_converted(convert_model(layers).model, tmp_path / "folder")
    kept = load_converted(tmp_path / "folder").get_submodule("a.b")
    for size in ((9, 8), (6, 7), (4, 11)):
        x = whole_numbers(torch.Size((1, 2, *size)))
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x.numpy()})
        for found in (layer, back, kept):
            assert torch.equal(found(x), torch.from_numpy(wanted))


@pytest.mark.parametrize("pads", [[1, 0, -1, 0], [1, 0, 0], 1])
def test_pads_that_are_none_are_refused(pads: object, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(onnx_of(nn.Conv2d(2, 3, (2, 3)), pads=pads).SerializeToString())
    stored = read_checkpoint(tmp_path / "m").convolutions["a.b"]
    assert stored.spec is None
    assert "padding" in str(stored.problem)


def test_external_data_of_an_onnx_model_are_read_from_its_folder(tmp_path: Path) -> None:
    conv = nn.Conv2d(8, 16, 3)
    onnx.save(onnx_of(conv), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    found = open_network(tmp_path / "m.onnx").model.get_submodule("a.b")
    assert torch.equal(found.get_parameter("weight"), conv.weight)
    assert (tmp_path / "m.data").stat().st_size >= conv.weight.nbytes


class Normed(nn.Module):
    """A convolution with a batch normalisation behind it, and two without."""

    def __init__(self) -> None:
        super().__init__()
        self.folded, self.norm = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.plain, self.first = nn.Conv2d(4, 2, 3), nn.BatchNorm2d(2)
        self.last = nn.Conv2d(2, 2, 1)
        for value in self.norm.buffers():
            value.add_(2)

    def forward(self, x: Tensor) -> Tensor:
        """Maps [batch, 3, rows, columns] to [batch, 2, rows - 4, columns - 4]."""
        y: Tensor = self.last(self.first(self.plain(self.norm(self.folded(x)).relu()).relu()))
        return y


@pytest.fixture
def normed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """A network whose ONNX file, as PyTorch's own exporter writes it, is in the folder that commands run in."""
    model = Normed().eval()
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(model, (torch.rand(1, 3, 8, 9),), tmp_path / "m.onnx", dynamo=False)
    monkeypatch.chdir(tmp_path)
    return model


def test_a_batch_normalisation_that_an_exporter_folded_in_is_told(normed: nn.Module) -> None:
    network = open_network("m.onnx")
    assert network.notes == {"folded": COMPUTED}
    layer, x = network.model.get_submodule("folded"), torch.rand(2, 3, 8, 9)
    both = nn.Sequential(normed.get_submodule("folded"), normed.get_submodule("norm"))
    assert (layer(x) - both(x)).abs().max() < 1e-5 < (layer(x) - both[0](x)).abs().max()


def test_what_an_exporter_folded_in_is_told_by_plan_convert_the_report_and_the_page(
    normed: nn.Module, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = f"note: folded: {COMPUTED}"
    assert exit_code("plan", "m.onnx") == 0
    assert told in capsys.readouterr().out.splitlines()
    assert exit_code("plan", "m.onnx", "--json") == 0
    assert [layer["note"] for layer in json.loads(capsys.readouterr().out)["layers"]] == [COMPUTED, None, None]
    assert exit_code("convert", "m.onnx", "--out", "o") == 0
    assert told in capsys.readouterr().out.splitlines()
    report = json.loads(Path("o", "report.json").read_text())
    assert [layer["note"] for layer in report["layers"]] == [COMPUTED, None, None]
    assert [layer["original"] for layer in report["layers"]] == ["/folded/Conv", None, None]
    assert exit_code("show", "o", "--out", "page.html") == 0
    for page in (Path("o", "report.html"), Path("page.html")):
        assert f"<dt>folded</dt><dd>{COMPUTED}</dd>" in page.read_text()


@pytest.mark.parametrize(
    ("metadata", "bias", "norm", "note"),
    [
        ({REWRITES: "RemoveOptionalBiasFromConv, FuseBatchNormIntoConv"}, False, True, FOLDED),
        ({REWRITES: "FuseBatchNormIntoConv", "pkg.torch.onnx.fx_node": "%conv"}, True, False, FOLDED),
        ({"pkg.torch.onnx.fx_node": "%conv"}, True, False, None),
        ({"another": "FuseBatchNormIntoConv"}, True, False, OPEN),
        ({}, True, False, OPEN),
        ({}, True, True, None),
        ({}, False, False, None),
    ],
)
def test_a_note_tells_what_a_node_s_metadata_tell(
    metadata: dict[str, str], bias: bool, norm: bool, note: str | None, tmp_path: Path
) -> None:
    model = onnx_of(nn.Conv2d(2, 3, 3, bias=bias))
    for key, value in metadata.items():
        model.graph.node[0].metadata_props.add(key=key, value=value)
    if norm:
        model.graph.node.append(helper.make_node("BatchNormalization", ["y"], ["z"]))
    (tmp_path / "m").write_bytes(model.SerializeToString())
    assert read_checkpoint(tmp_path / "m").convolutions["a.b"].note == note


# Folders of layers


def test_plan_and_convert_need_no_architecture_where_the_file_has_the_geometry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Net().eval()
    torch.save(model, tmp_path / "m.pt")
    assert exit_code("plan", tmp_path / "m.pt", "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert [layer["name"] for layer in planned["layers"]] == ["stem", "blocks.1", "twice"]
    assert planned["unsupported"] == [{"name": "head", "reason": "Own is not a convolution of torch.nn"}]
    assert exit_code("convert", tmp_path / "m.pt", "--out", tmp_path / "o") == 4
    chosen = ("--include", "stem", "--include", "blocks.*")
    assert exit_code("convert", tmp_path / "m.pt", "--out", tmp_path / "o", *chosen) == 0
    layers = load_converted(tmp_path / "o")
    assert sorted({key.rpartition(".")[0] for key in layers.state_dict()}) == ["blocks.1", "stem"]
    assert json.loads((tmp_path / "o" / "config.json").read_text())["content"] == "layers"


@given(conv_specs())
def test_a_layer_alone_comes_back_from_its_folder_without_an_architecture(spec: ConvSpec) -> None:
    layer = convert_model(convolution_of(spec)).model
    with tempfile.TemporaryDirectory() as folder:
        save_converted(layer, Path(folder, "out"))
        loaded = load_converted(Path(folder, "out"))
        assert repr(loaded) == repr(layer.eval())
        assert all(torch.equal(value, layer.state_dict()[key]) for key, value in loaded.state_dict().items())


@pytest.mark.parametrize(
    "names", [["a", "a.b"], ["a.b", "a"], ["", "a"], ["a..b"], ["forward"], [".".join("a" * 70)], ["a.training"]]
)
def test_names_that_no_module_can_have_are_refused(names: list[str]) -> None:
    tensors = {f"{name}.weight": torch.ones(2, 3, 1, 1) for name in names}
    spec = ConvSpec(3, 2, (1, 1), bias=False)
    convolutions = {name: StoredConvolution(f"{name}.weight", None, spec) for name in names}
    with pytest.raises(CheckpointError):
        layer_tree(convolutions, tensors)


def test_weights_without_geometry_are_listed_and_the_architecture_asked_for(tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "w.pt")
    with pytest.raises(ArchitectureNeededError, match=r"stem.weight \[4, 3, 3, 2\], .*twice.weight \[4, 4, 1, 1\]\)"):
        open_network(tmp_path / "w.pt")


# Hugging Face folders


def write_shards(folder: Path, model: nn.Module, *, pickled: bool = False) -> None:
    """The model's state dict in two files with an index."""
    suffix, stem = (".bin", "pytorch_model") if pickled else (".safetensors", "model")
    keys, state = list(model.state_dict()), model.state_dict()
    names = {key: f"{stem}-0000{1 + number % 2}-of-00002{suffix}" for number, key in enumerate(keys)}
    for name in set(names.values()):
        part = {key: state[key] for key in keys if names[key] == name}
        torch.save(part, folder / name) if pickled else save_file(part, folder / name)
    (folder / f"{stem}{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


@pytest.mark.parametrize("pickled", [False, True])
def test_a_checkpoint_in_several_files_is_read_as_one(pickled: bool, tmp_path: Path) -> None:
    model = Net()
    write_shards(tmp_path, model, pickled=pickled)
    (tmp_path / "config.json").write_text('{"architectures": ["Net"]}')
    (index,) = tmp_path.glob("*.index.json")
    for path in (tmp_path, index):
        checkpoint = read_checkpoint(path)
        assert checkpoint.state_dict.keys() == model.state_dict().keys()
        assert all(torch.equal(checkpoint.state_dict[key], value) for key, value in model.state_dict().items())
        sums = [f"{file.name} {sha256(file.read_bytes()).hexdigest()}\n" for file in sorted(tmp_path.iterdir())]
        assert checkpoint.sha256 == sha256("".join(sums[1:]).encode()).hexdigest()  # all but config.json


def test_a_hugging_face_cache_is_read_through_its_links(tmp_path: Path) -> None:
    snapshot = tmp_path / "models--x" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--x" / "blobs").mkdir()
    save_file(Net().state_dict(), tmp_path / "models--x" / "blobs" / "123")
    (snapshot / "model.safetensors").symlink_to("../../blobs/123")
    assert read_checkpoint(snapshot).state_dict.keys() == Net().state_dict().keys()


def test_a_distributed_checkpoint_is_pointed_to_pytorch_s_own_converter(tmp_path: Path) -> None:
    (tmp_path / ".metadata").touch()
    with pytest.raises(CheckpointError, match="dcp_to_torch"):
        read_checkpoint(tmp_path)


# Back to a state dict


@pytest.fixture
def converted(tmp_path: Path) -> tuple[Path, nn.Module]:
    model = Net().eval()
    save_converted(convert_model(model, skip_unsupported=True).model, tmp_path / "out")
    return tmp_path / "out", model


@pytest.mark.parametrize("name", ["w.safetensors", "w.pth", "w.pt"])
def test_restore_writes_the_state_dict_of_the_cnn_bit_for_bit(
    name: str, converted: tuple[Path, nn.Module], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, model = converted
    out = folder.parent / name
    assert exit_code("restore", folder, "--out", out) == 0
    assert capsys.readouterr().out == f"Wrote {out}\n"
    state = read_checkpoint(out).state_dict
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert exit_code("restore", folder, "--out", out) == 3
    assert exit_code("restore", folder, "--out", out, "--force", "--json") == 0
    if name != "w.safetensors":
        assert torch.load(out, weights_only=True).keys() == state.keys()


def test_a_converted_folder_is_a_checkpoint_wherever_one_is_taken(converted: tuple[Path, nn.Module]) -> None:
    folder, model = converted
    assert specs(open_network(folder).cnn()) == specs(model)
    assert restored_checkpoint(folder).sha256 == sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    cnn = open_network(folder, architecture=Architecture(f"{__name__}:Net")).cnn()
    assert all(torch.equal(cnn.state_dict()[key], value) for key, value in model.state_dict().items())


def test_layers_that_are_no_convolutions_are_not_restored(tmp_path: Path) -> None:
    model = convert_model(nn.Sequential(nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 1)), alpha=2.0).model
    save_converted(model, tmp_path / "out")
    with pytest.raises(NotAConvolutionError, match=r"2 of 2 attention layers.*0: its attention is soft.*; 1: "):
        restored_checkpoint(tmp_path / "out")


def test_a_state_dict_is_written_as_its_name_says_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end in .safetensors, .pth, .pt"):
        write_state_dict({"w": torch.ones(1)}, tmp_path / "w.onnx")
    (tmp_path / "d.pt").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        write_state_dict({"w": torch.ones(1)}, tmp_path / "d.pt", force=True)


# Versions of the folder


@pytest.mark.parametrize("version", [1, 2])
def test_a_folder_of_every_version_is_read(version: int, tmp_path: Path) -> None:
    """The fixtures hold weights that count up: number k of parameter i is k - i - 3."""
    folder = FIXTURES / f"folder-v{version}"
    assert json.loads((folder / "config.json").read_text())["format_version"] == version
    first = nn.Conv2d(2, 3, (2, 3), stride=(2, 1), padding=(1, 0))
    network = nn.Sequential(first, nn.ReLU(), nn.Conv2d(3, 2, 1, bias=False)).eval()
    for number, parameter in enumerate(network.parameters()):
        counted = torch.arange(parameter.numel(), dtype=torch.float32) - number - 3
        parameter.data = counted.view_as(parameter)
    loaded = load_converted(folder, architecture=copy.deepcopy(network))
    x = whole_numbers(torch.Size((2, 2, 7, 6)))
    assert torch.equal(loaded(x), network(x))
    assert restored_checkpoint(folder).state_dict.keys() == network.state_dict().keys()


def test_heads_of_a_folder_of_version_2_attend_to_what_they_attended_to() -> None:
    """The fixture holds outputs of the version that wrote it; of layer 2, whose centres it had rounded, the CNN's."""
    folder = FIXTURES / "folder-v2-positions"
    network = nn.Sequential(
        nn.Conv2d(2, 3, (3, 2), padding=1, stride=(2, 1), dilation=(1, 2)),
        nn.Conv2d(2, 2, (2, 3), padding=(1, 0), padding_mode="circular"),
        nn.Conv2d(1, 1, (1, 2), dilation=257, bias=False),
        nn.Conv2d(2, 2, 3, padding=1),
    )
    loaded, seen = load_converted(folder, architecture=network), load_file(folder / "outputs.safetensors")
    for number in range(4):
        layer = loaded.get_submodule(str(number))
        assert isinstance(layer, SelfAttention2d)
        x, y = seen[f"{number}.x"], seen[f"{number}.y"]
        layer.engine = "literal"
        assert (layer(x) - y).abs().max() <= (0 if number == 2 else engines_bound(layer, x))
    assert loaded.get_parameter("2.centers").tolist() == [[0, 0], [0, 257]]


def test_content_terms_that_read_another_pixel_are_refused(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "folder-v2-positions", tmp_path / "trained")
    path = tmp_path / "trained" / "model.safetensors"
    tensors = load_file(path)
    tensors["3.content.query_weight"][1] = 1
    save_file(tensors, path, metadata={"conv2attn": "2"})
    with pytest.raises(CheckpointError, match="layer '3' was trained with content terms by an earlier version"):
        read_folder(tmp_path / "trained")


def test_weights_of_one_version_and_a_description_of_another_are_refused(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "folder-v2", tmp_path / "mixed")
    shutil.copy(FIXTURES / "folder-v1" / "model.safetensors", tmp_path / "mixed")
    with pytest.raises(CheckpointError, match="are not of one version"):
        read_folder(tmp_path / "mixed")


# Architectures and large files

TIMM = """
from torch import nn

def create_model(model_name, pretrained=False, **arguments):
    if model_name != "tiny.v1" or pretrained:
        raise RuntimeError(f"Unknown model ({model_name})")
    return nn.Sequential(nn.Conv2d(3, arguments.get("width", 2), 1))
"""


@pytest.fixture
def _timm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "timm.py").write_text(TIMM)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    yield
    sys.modules.pop("timm", None)


@pytest.mark.usefixtures("_timm")
def test_a_network_of_timm_is_built_by_its_name_in_timm() -> None:
    built = build_architecture("timm:tiny.v1", {"width": 5})
    assert built.get_submodule("0").out_channels == 5
    assert isinstance(build_architecture("timm:create_model", {"model_name": "tiny.v1"}), nn.Sequential)
    with pytest.raises(ArchitectureError, match=r"Unknown model \(other\)"):
        build_architecture("timm:other", {})


def test_timm_is_asked_for_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ArchitectureError, match="timm"):
        build_architecture("timm:resnet18", {})


class ReadsValues(Net):
    """Decides by a value that it draws."""

    def __init__(self) -> None:
        super().__init__()
        assert float(torch.ones(1)) == 1.0


@pytest.mark.parametrize("factory", ["Net", "ReadsValues"])
def test_large_weights_are_used_where_they_lie_and_the_result_is_the_same(
    factory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LARGE > 0
    model = Net().eval()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    monkeypatch.setattr("conv2attn.convert.files.open.LARGE", 0)
    network = open_network(tmp_path / "w.pt", architecture=Architecture(f"{__name__}:{factory}"))
    mapped = network.model.get_parameter("stem.weight").data_ptr()
    assert (mapped == network.checkpoint.state_dict["stem.weight"].data_ptr()) == (factory == "Net")
    converted, report = convert_model(network.model, inplace=True, skip_unsupported=True)
    save_converted(converted, tmp_path / "out", report=report)
    x = torch.rand(2, 3, 8, 9)
    assert torch.equal(load_converted(tmp_path / "out", architecture=Net())(x), model(x))


def test_layers_without_their_network_say_so_when_they_are_called_as_one() -> None:
    with pytest.raises(ConversionError, match="each is called by itself"):
        Layers()(torch.zeros(1, 3, 8, 8))
