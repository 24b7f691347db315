"""``conv2attn same`` says whether two files hold the same network."""

from __future__ import annotations

import copy
import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from PIL import Image
from torch import Tensor, nn

from conv2attn.cli import main_same
from conv2attn.commands.inputs import folder_images
from conv2attn.commands.options import InputOptions
from conv2attn.commands.same import prepared
from conv2attn.convert.arguments import Size
from conv2attn.convert.files.preprocessing import Normalization, Owner, Preprocessing
from tests.command import Run
from tests.onnx_files import network as onnx_network
from tests.onnx_files import port, tensor


@pytest.fixture
def pair(tmp_path: Path) -> tuple[nn.Module, Path]:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
    torch.save(network, tmp_path / "a.pt")
    return network, tmp_path


def faulty(network: nn.Module, path: Path) -> Path:
    other = copy.deepcopy(network)
    other[1].eps = 1e-3  # type: ignore[index]
    torch.save(other, path)
    return path


def test_the_same_file_has_the_same_bits(pair: tuple[nn.Module, Path], run: Run) -> None:
    _, folder = pair
    ran = run("same", folder / "a.pt", folder / "a.pt", "--random", 2, "--size", "8x9")
    assert ran.code == 0
    assert "Same bits: all 336 elements of the outputs are equal." in ran.out


def test_a_fault_is_named_with_exit_code_1(pair: tuple[nn.Module, Path], run: Run) -> None:
    network, folder = pair
    np.save(folder / "x.npy", np.random.default_rng(0).standard_normal((2, 3, 7, 8), dtype=np.float32))
    other = faulty(network, folder / "b.pt")
    ran = run("same", folder / "a.pt", other, "--data", folder / "x.npy")
    assert ran.code == 1
    assert "It begins at `1` (batch norm): eps 1e-05 in A, 0.001 in B." in ran.out
    found = json.loads(run("same", folder / "a.pt", other, "--data", folder / "x.npy", "--json").out)
    assert (found["verdict"], found["exit_code"]) == ("not rounding", 1)
    assert found["where"][0]["name"] == "1"


def test_images_of_a_folder_are_taken(pair: tuple[nn.Module, Path], run: Run) -> None:
    network, folder = pair
    (folder / "images").mkdir()
    torch.save(torch.randn(3, 8, 8), folder / "images" / "x.pt")
    ran = run("same", folder / "a.pt", faulty(network, folder / "b.pt"), "--data", folder / "images")
    assert ran.code == 1
    assert "1x4x6x6" in ran.out


def test_pictures_of_a_folder_are_scaled_with_a_sentence_where_their_library_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    Image.new("RGB", (5, 4)).save(tmp_path / "a.png")
    known = Preprocessing(Normalization((0.5,), (0.5,)), size=Size(6, 7), owner=Owner("timm", {}))
    found = folder_images(tmp_path, nn.Conv2d(3, 1, 1), known, 3, InputOptions())
    assert found[0].shape == (1, 3, 6, 7)
    assert "timm is not installed" in capsys.readouterr().err


def test_inputs_are_chosen_in_one_way(pair: tuple[nn.Module, Path], run: Run) -> None:
    _, folder = pair
    ran = run("same", folder / "a.pt", folder / "a.pt", "--random", 2, "--data", folder)
    assert ran.code == 2
    assert "give one of the two" in ran.err
    (folder / "x.npy").write_bytes(b"no array")
    ran = run("same", folder / "a.pt", folder / "a.pt", "--data", folder / "x.npy")
    assert ran.code == 3
    assert "holds no arrays of numbers" in ran.err


# Bad inputs: one sentence each, with its exit code.

SEVERAL = """
import torch
from torch import nn

class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x, steps):
        scores = self.layer(x) + steps.view(-1, 1)
        return {"scores": scores, "found": [scores.argmax(1), "no tensor"]}
"""


WIDE = """
from torch import nn

def network():
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
"""
PLAIN = """
from torch import nn

def network():
    return nn.Sequential(nn.Conv2d(3, 2, 1, bias=False), nn.ReLU())
"""


def onnx_file(path: Path, *, factor: float = 1.0, kind: str = "Relu", channels: int = 2) -> Path:
    """A convolution of one tap, and an operation."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node(kind, ["a"], ["y"])]
    weights = [tensor("w", torch.arange(3.0 * channels).sub(2).mul(factor).view(channels, 3, 1, 1))]
    ports = [port("x", ["n", 3, 4, 4])], [port("y", None)]
    onnx.save(onnx_network(nodes, weights, inputs=ports[0], outputs=ports[1]), path)
    return path


def torch_file(path: Path, *, kind: type[nn.Module] = nn.ReLU, channels: int = 2, factor: float = 1.0) -> Path:
    """The same network in PyTorch."""
    conv = nn.Conv2d(3, channels, 1, bias=False)
    conv.weight.data = torch.arange(3.0 * channels).sub(2).mul(factor).view(channels, 3, 1, 1)
    torch.save(nn.Sequential(conv, kind()).eval(), path)
    return path


def numbers(path: Path, *shape: int, first: float = 0.5) -> Path:
    values = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    values.reshape(-1)[:1] = first
    np.save(path, values)
    return path


PAIRS: dict[str, tuple[Callable[[], tuple[object, ...]], int, str]] = {
    "an honest pair": (lambda: (torch_file(Path("a.pt")), onnx_file(Path("b.onnx"))), 0, ""),
    "another operation": (
        lambda: (torch_file(Path("a.pt")), onnx_file(Path("b.onnx"), kind="Elu")),
        1,
        "It begins at `1` (relu): relu in A, elu in B (B: Elu).",
    ),
    "two ONNX files": (
        lambda: (onnx_file(Path("a.onnx")), onnx_file(Path("b.onnx"), factor=1.1)),
        1,
        "It begins at `a` (convolution): 5 of ",
    ),
    "shapes that differ": (
        lambda: (torch_file(Path("a.pt")), torch_file(Path("b.pt"), channels=3)),
        1,
        "Not rounding: the output is [2, 2, 4, 4] in A and [2, 3, 4, 4] in B.",
    ),
    "NaN on one side": (
        lambda: (torch_file(Path("a.pt")), onnx_file(Path("b.onnx"), kind="Sqrt")),
        1,
        "Not rounding: A gives NaN at 0 and B at ",
    ),
    "NaN on both sides": (
        lambda: (
            torch_file(Path("a.pt")),
            torch_file(Path("b.pt"), factor=2),
            *("--data", numbers(Path("x.npy"), 1, 3, 4, 4, first=np.nan)),
        ),
        5,
        "Cannot say: both sides give NaN at the same 2 of 32 places.",
    ),
    "infinity on one side": (
        lambda: (torch_file(Path("a.pt")), torch_file(Path("b.pt"), factor=1e38)),
        1,
        "Not rounding: A is infinite at 0 and B at ",
    ),
    "an empty batch": (
        lambda: (
            torch_file(Path("a.pt")),
            onnx_file(Path("b.onnx")),
            *("--data", numbers(Path("x.npy"), 0, 3, 4, 4)),
        ),
        5,
        "Cannot say: the outputs are empty, so there is nothing to compare.",
    ),
    "inputs that a file does not take": (
        lambda: (torch_file(Path("a.pt")), onnx_file(Path("b.onnx")), "--data", numbers(Path("x.npy"), 1, 3, 4, 5)),
        3,
        "B does not run on these inputs: ",
    ),
    "inputs that a network does not take": (
        lambda: (torch_file(Path("a.pt")), torch_file(Path("b.pt")), "--data", numbers(Path("x.npy"), 1, 2, 4, 4)),
        3,
        "A does not run on these inputs: RuntimeError",
    ),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_a_bad_pair_is_one_sentence_with_its_exit_code(kind: str, run: Run) -> None:
    make, code, sentence = PAIRS[kind]
    given = make()
    ran = run("same", *given, *(() if "--data" in given else ("--size", "4x4")))
    assert ran.code == code
    assert sentence in " ".join((ran.out + ran.err).split())


def test_an_architecture_is_for_the_other_file_and_onnx_runtime_runs_the_onnx_file(run: Run) -> None:
    Path("a.py").write_text(PLAIN)
    torch.save(torch.load(torch_file(Path("a.pt")), weights_only=False).state_dict(), "a.pth")
    options = ("--arch", "a.py:network", "--size", "4x4")
    assert run("same", "a.pth", onnx_file(Path("same.onnx")), *options).code == 0
    ran = run("same", "a.pth", onnx_file(Path("other.onnx"), kind="Elu"), *options)
    assert ran.code == 1
    assert "relu in A, elu in B" in ran.out


def test_several_inputs_and_a_dictionary_with_integers_are_compared(run: Run) -> None:
    Path("several.py").write_text(SEVERAL)
    layer = nn.Linear(3, 4)
    for name, factor in (("a.pt", 1.0), ("b.pt", 1.1)):
        torch.save({"layer.weight": layer.weight * factor, "layer.bias": layer.bias}, name)
    shapes = ("--arch", "several.py:Several", "--input", "x=5x3", "--input", "steps=5:int64")
    assert "Same bits: all 25 elements of the outputs are equal." in run("same", "a.pt", "a.pt", *shapes).out
    ran = run("same", "a.pt", "b.pt", *shapes)
    assert ran.code == 1
    assert "found.0" in ran.out
    assert "12 of 12 elements of weight differ" in ran.out


def test_recorded_values_are_a_side_and_hold_the_inputs(pair: tuple[nn.Module, Path], run: Run) -> None:
    network, folder = pair
    other, values = faulty(network, folder / "b.pt"), folder / "b.safetensors"
    ran = run("record", other, "--out", values, "--random", 3, "--size", "7x8")
    assert ran.code == 0
    assert "1 input, 1 output, 3 values" in ran.out
    for given, what in (((folder / "a.pt", values), "A"), ((values, folder / "a.pt"), "B")):
        ran = run("same", *given)
        assert ran.code == 1
        assert what in ran.out
        assert "`1` (batch norm)" in ran.out
    assert run("same", other, values).code == 0
    assert "3x4x5x6" in ran.out
    others = numbers(folder / "x.npy", 3, 3, 7, 8)
    assert run("same", other, values, "--data", others).code == 1  # those that are given go before


def test_what_record_cannot_do_is_refused_and_nothing_is_written(pair: tuple[nn.Module, Path], run: Run) -> None:
    _, folder = pair
    values = folder / "b.safetensors"
    assert run("record", folder / "a.pt", "--out", values, "--size", "7x8", "--values", "layers.*").code == 2
    assert not values.exists()
    assert run("record", folder / "a.pt", "--out", folder / "b.npz", "--size", "7x8").code == 2
    assert run("record", folder / "a.pt", "--out", values, "--size", "7x8", "--values", "1").code == 0
    assert "--force" in run("record", folder / "a.pt", "--out", values, "--size", "7x8").err
    assert run("record", values, "--out", folder / "c.safetensors").code == 2
    file = onnx_file(folder / "b.onnx")
    assert run("record", file, "--out", values, "--size", "4x4", "--force").code == 0
    assert run("record", file, "--out", values, "--size", "4x4", "--force", "--values", "a").code == 2


BLOCKS = """
from torch import nn

def network():
    block = lambda: nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.GELU())
    return nn.Sequential(nn.Sequential(block(), block()), nn.Conv2d(3, 2, 1))
"""


def test_blocks_are_compared_one_by_one(run: Run) -> None:
    Path("blocks.py").write_text(BLOCKS)
    names: dict[str, object] = {}
    exec(BLOCKS, names)
    network: nn.Module = names["network"]()  # type: ignore[operator]
    torch.save(network.state_dict(), "a.pth")
    network.state_dict()["0.1.0.weight"].mul_(1.01)
    torch.save(network.state_dict(), "b.pth")
    options = ("--arch", "blocks.py:network", "--size", "6x7", "--blocks")
    ran = run("same", "a.pth", "b.pth", *options)
    assert ran.code == 1
    assert ran.out.startswith("In `0.1`: Not rounding")
    found = json.loads(run("same", "a.pth", "b.pth", *options, "--json").out)
    assert [one["verdict"] for one in found["blocks"]] == ["same bits", "not rounding", "same bits"]
    assert run("same", "a.pth", "a.pth", *options).code == 0
    assert run("same", "a.pth", onnx_file(Path("b.onnx")), *options).code == 2
    assert run("same", "a.pth", "b.pth", *options, "--prove").code == 2


class Coarse(nn.Module):
    """A linear layer whose factors are rounded to bfloat16, as engines do, where no operation says so."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        rounded = [torch.from_numpy(one.detach().bfloat16().float().numpy()) for one in (x, self.layer.weight)]
        return rounded[0] @ rounded[1].T + self.layer.bias


def test_a_unit_is_allowed_by_its_name(run: Run) -> None:
    torch.manual_seed(0)
    coarse = Coarse().eval()
    torch.save(nn.Sequential(OrderedDict(layer=coarse.layer)).eval(), "a.pt")
    torch.save(coarse, "b.pt")
    options = ("--data", numbers(Path("x.npy"), 16, 64), "--trust")
    ran = run("same", "a.pt", "b.pt", *options)
    assert ran.code == 1
    assert ran.out.startswith("Coarser rounding: of bfloat16 products")
    assert run("same", "a.pt", "b.pt", *options, "--unit", "bfloat16 products").code == 0
    assert run("same", "a.pt", "b.pt", *options, "--unit", "float16 products").code == 1
    ran = run("same", "a.pt", "b.pt", *options, "--unit", "bytes")
    assert ran.code == 2
    assert "unit must be one of" in ran.err


def test_two_converted_folders_are_compared(run: Run) -> None:
    torch_file(Path("a.pt"))
    assert run("convert", "a.pt", "--trust", "--no-page", "--out", "one").code == 0
    assert run("convert", "a.pt", "--trust", "--no-page", "--alpha", "3", "--out", "soft").code == 0
    options = ("--arch", "a.py:network", "--size", "4x4")
    Path("a.py").write_text(PLAIN)
    assert "Same bits" in run("same", "one", "one", *options).out
    ran = run("same", "one", "soft", *options)
    assert ran.code == 1
    assert "Not rounding: " in ran.out


def test_a_folder_that_names_its_network_is_that_one_whatever_the_other_side_needs(run: Run) -> None:
    weights_and_two_networks()
    assert run("convert", "a.pth", "--arch", "other.py:network", "--no-page", "--out", "folder").code == 0
    ran = run("same", "a.pth", "folder", "--trust", "--arch", "usual.py:network", "--size", "8x8")
    assert ran.code == 1
    assert "eps 1e-05 in A, 0.01 in B" in ran.out
    assert "Same bits" in run("same", "a.pth", "folder", "--arch", "other.py:network", "--size", "8x8").out


def test_two_architectures_are_a_s_and_b_s_and_the_report_names_them(run: Run) -> None:
    weights_and_two_networks()
    both = ("--arch", "usual.py:network", "--arch", "other.py:network", "--size", "8x8")
    ran = run("same", "a.pth", "a.pth", *both)
    assert ran.code == 1
    assert "eps 1e-05 in A, 0.01 in B" in ran.out
    assert "A is a.pth in usual.py:network; B is a.pth in other.py:network." in ran.out.splitlines()
    found = json.loads(run("same", "a.pth", "a.pth", *both, "--json").out)
    assert found["architectures"] == {"a": "usual.py:network", "b": "other.py:network"}
    third = run("same", "a.pth", "a.pth", *both, "--arch", "usual.py:network")
    assert (third.code, third.out) == (2, "")
    assert "two sides" in third.err


def test_an_architecture_that_no_side_takes_is_refused(run: Run) -> None:
    weights_and_two_networks()
    assert run("convert", "a.pth", "--arch", "other.py:network", "--no-page", "--out", "folder").code == 0
    usual = ("--arch", "usual.py:network", "--size", "8x8")
    ran = run("same", "folder", "folder", "--trust", *usual)
    assert (ran.code, ran.out) == (2, "")
    assert "both sides" in ran.err
    twice = run("same", "folder", "folder", *usual, "--arch", "other.py:network")  # said for each side, it is taken
    assert twice.code == 1
    assert "A is folder in usual.py:network, though it names other.py:network; B is" in twice.out
    needless = run("same", onnx_file(Path("b.onnx")), "a.pth", *usual, "--arch", "other.py:network")
    assert (needless.code, needless.out) == (2, "")
    assert "b.onnx is compared as it is" in needless.err


def test_a_folder_that_was_converted_from_onnx_is_its_onnx_file(run: Run) -> None:
    onnx_file(Path("a.onnx"))
    assert run("convert", "a.onnx", "--no-page", "--out", "folder").code == 0
    ran = run("same", "a.onnx", "folder", "--size", "4x4")
    assert ran.code == 0
    assert "B is folder/model.onnx." in ran.out.splitlines()
    assert run("record", "folder", "--size", "4x4", "--out", "values.safetensors").code == 0
    assert run("same", "folder", "values.safetensors").code == 0


def test_a_difference_without_effect_is_named_beside_the_same_bits(run: Run) -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Sequential(nn.ReLU(), nn.Conv2d(2, 2, 1), nn.Hardtanh(-1e6, 1e6)))
    other = copy.deepcopy(network)
    torch.save(network, "a.pt")
    torch.nn.init.zeros_(network[1][1].weight)  # type: ignore[index]
    torch.save(network, "b.pt")
    network[0].weight.data[0, 0, 0, 0] += 1  # type: ignore[index, operator]
    network[1][2].max_val = 2e6  # type: ignore[index]
    torch.save(network, "c.pt")
    ran = run("same", "b.pt", "c.pt", "--size", "4x4")
    assert ran.code == 0
    assert "`0`, `1.2` differ, without effect" in ran.out
    torch.save(other, "d.pt")
    assert "without effect" not in run("same", "a.pt", "d.pt", "--size", "4x4").out


def test_the_one_input_of_onnx_files_is_given_by_place_and_several_by_their_names(run: Run) -> None:
    for name, inputs in (("a.onnx", "x"), ("b.onnx", "image"), ("c.onnx", "xz"), ("d.onnx", "uv")):
        names = [inputs] if inputs == "image" else list(inputs)
        nodes = [helper.make_node("Add", [names[0], names[-1]], ["y"])]
        ports = [port(each, ["n", 3]) for each in names]
        onnx.save(onnx_network(nodes, [], inputs=ports, outputs=[port("y", None)]), name)
    ran = run("same", "a.onnx", "b.onnx", "--input", "image=2x3")
    assert (ran.code, ran.out.startswith("Same bits")) == (0, True)
    ran = run("same", "c.onnx", "d.onnx", "--input", "x=2x3", "--input", "z=2x3")
    assert ran.code == 3
    assert "d.onnx calls its inputs u, v; got x, z" in ran.err


def test_nothing_that_an_onnx_file_lacks_is_advised(run: Run) -> None:
    onnx_file(Path("a.onnx"))
    ran = run("convert", "a.onnx", "--no-page", "--out", "folder")
    assert ran.code == 0
    assert "--arch" not in ran.out  # model.onnx is the whole network
    for source, place in (("folder", "folder/model.onnx"), ("a.onnx", "conv2attn convert a.onnx")):
        ran = run("export", source, "--out", "b.onnx")
        assert (ran.code, ran.out, "--arch is missing" in ran.err) == (2, "", False)
        assert place in ran.err


@pytest.mark.parametrize("is_folded", [True, False])
def test_weights_without_an_architecture_s_batch_norms_are_refused_as_folded(is_folded: bool, run: Run) -> None:
    weights_and_two_networks()
    state = torch.load("a.pth")
    torch.save({key: state[key] for key in state if key.startswith("0." if is_folded else "1.")}, "b.pth")
    ran = run("convert", "b.pth", "--arch", "usual.py:network", "--no-page")
    assert (ran.code, "folded" in ran.err) == (3, is_folded)


def weights_and_two_networks() -> None:
    torch.save(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)).state_dict(), "a.pth")
    layers = "nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4, eps={})"
    text = f"from torch import nn\n\ndef network():\n    return nn.Sequential({layers})\n"
    for name, eps in (("usual.py", 1e-5), ("other.py", 1e-2)):
        Path(name).write_text(text.format(eps))


def test_a_network_that_was_saved_while_it_trained_is_compared_in_eval_mode(run: Run) -> None:
    network = nn.Sequential(nn.Conv2d(3, 2, 1), nn.Dropout()).train()
    torch.save(network, "a.pt")
    assert "Same bits" in run("same", "a.pt", "a.pt", "--size", "4x4").out
    program = torch.export.export(network, (torch.randn(8, 3, 4, 4),))
    torch.export.save(program, "a.pt2")
    ran = run("same", "a.pt2", "a.pt", "--trust", "--size", "4x4")
    assert ran.code == 5
    assert "Cannot say: A is not deterministic: two runs on the same inputs differ by " in ran.out


@pytest.mark.parametrize("alpha", [(), ("--alpha", "3")], ids=["one-hot", "soft"])
def test_a_folder_is_compared_with_the_onnx_file_that_export_wrote_of_it(alpha: tuple[str, ...], run: Run) -> None:
    Path("a.py").write_text(WIDE)
    conv = nn.Conv2d(3, 4, 3, padding=1)
    torch.save({f"0.{name}": value for name, value in conv.state_dict().items()}, "a.pth")
    arch = ("--arch", "a.py:network")
    assert run("convert", "a.pth", *arch, *alpha, "--no-page", "--out", "folder").code == 0
    assert run("export", "folder", *arch, "--size", "8x9", "--out", "attention.onnx").code == 0
    ran = run("same", "folder", "attention.onnx", *arch, "--size", "8x9", "--random", 2)
    assert ran.code == 0
    assert ran.out.startswith(("Rounding: ", "Same bits: "))
    if alpha:  # another function than the CNN's
        assert run("same", "a.pth", "attention.onnx", *arch, "--size", "8x9", "--random", 2).code == 1


def test_random_images_are_prepared_as_the_network_s_owner_prepares_pictures() -> None:
    known = Preprocessing(Normalization((0.2, 0.4, 0.6), (0.1, 0.2, 0.3)))
    drawn = prepared(torch.randn(2, 3, 8, 9), known, 0)
    back = drawn * torch.tensor([0.1, 0.2, 0.3]).view(3, 1, 1) + torch.tensor([0.2, 0.4, 0.6]).view(3, 1, 1)
    assert 0 <= float(back.min()) < 0.1 < 0.9 < float(back.max()) <= 1 + 1e-6
    for other in (torch.randn(2, 3), torch.randn(2, 4, 8, 9), torch.zeros(2, 3, 8, 9, dtype=torch.int64)):
        assert prepared(other, known, 0) is other
    assert prepared(drawn, None, 0) is drawn


def test_c2a_same_is_same_under_a_name_of_its_own(
    run: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    torch.save(nn.Sequential(nn.Conv2d(1, 2, 3)).state_dict(), "a.pt")
    Path("own.py").write_text("from torch import nn\n\ndef net():\n    return nn.Sequential(nn.Conv2d(1, 2, 3))\n")
    given = ["a.pt", "a.pt", "--arch", "own.py:net", "--size", "9"]
    expected = run("same", *given)
    found = []
    for arguments in (given, ["-h"]):
        monkeypatch.setattr(sys, "argv", ["c2a-same", *arguments])
        with pytest.raises(SystemExit) as ended:
            main_same()
        found.append(capfd.readouterr().out)
        assert ended.value.code == 0
    same, told = found
    assert same.splitlines()[0] == expected.out.splitlines()[0]
    assert ("Usage: c2a-same" in told, "conv2attn same" in told) == (True, False)
