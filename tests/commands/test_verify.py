"""The command ``conv2attn verify`` holds a network against its CNN and its bounds, and says what it found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from conv2attn.commands import verify_network as network_check
from conv2attn.commands.inputs import Pair
from conv2attn.commands.options import size_of
from conv2attn.convert import attention_from_conv, certify, certify_network, convert_model, save_converted
from conv2attn.convert.certificate.layer import number
from conv2attn.convert.certificate.network.certificate import NetworkCertificate
from conv2attn.convert.engines import AUTO, ENGINES
from conv2attn.convert.files.architecture import Architecture
from tests.command import Run, result_of
from tests.faults import drop_a_head


def write_network(layers: str) -> tuple[str, ...]:
    """Writes a network and a checkpoint of it into the folder; gives the command's arguments for it."""
    Path("net.py").write_text(f"from torch import nn\n\ndef net():\n    return {layers}\n")
    torch.save(eval(layers).state_dict(), "net.pt")
    return "net.pt", "--arch", "net.py:net"


SMALL = "nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, stride=2), nn.Flatten())"


def test_a_network_s_result_is_data(run: Run) -> None:
    options = ("--random", "2", "--size", "6x7", "--json", "--engine", "literal")
    code, out, _ = run("verify", *write_network(SMALL), *options)
    assert code == 0
    network = result_of("verify", out)["network"]
    (engine,) = network["engines"]
    assert (network["images"], engine["engine"], engine["top1_agreement"]) == (2, "literal", 1.0)
    assert all(layer["own"] <= layer["bound"] for layer in engine["layers"])
    assert engine["logit_difference"] <= network["certificate"]["bound"]


@pytest.mark.fault
def test_a_network_beyond_its_bound_end_to_end_is_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(*arguments: Any, **named: Any) -> NetworkCertificate:
        return replace(certify_network(*arguments, **named), bound=0.0)

    monkeypatch.setattr(network_check, "certify_network", too_small)
    code, out, _ = run("verify", *write_network(SMALL), "--random", "1", "--size", "6x7", "--engine", "literal")
    assert code == 1
    assert "Beyond the worst case, or not finite: end to end (literal).\n" in out


def test_a_network_is_certified_for_the_values_that_each_channel_of_the_images_has(run: Run) -> None:
    network = write_network("nn.Sequential(nn.Conv2d(2, 1, 1, bias=False), nn.Flatten())")
    torch.save({"0.weight": torch.ones(1, 2, 1, 1)}, "net.pt")
    Path("data").mkdir()
    np.save("data/a.npy", np.array([[[0.0, 8.0]], [[2.0, 2.0]]], dtype=np.float32))
    _, out, _ = run("verify", *network, "--data", "data", "--json")
    (layer,) = result_of("verify", out)["network"]["certificate"]["layers"]
    assert (layer["low"], layer["high"]) == (0.0, 8.0)
    conv = nn.Conv2d(2, 1, 1, bias=False)
    nn.init.ones_(conv.weight)
    certificate = certify(attention_from_conv(conv), input_range=([0.0, 2.0], [8.0, 2.0]))
    assert layer["own"] == certificate.bound


def test_a_converted_folder_is_compared_with_the_network_it_restores(run: Run) -> None:
    write_network(SMALL)
    attention, report = convert_model(Architecture("net.py:net").build().eval(), alpha=2.0)
    save_converted(attention, "folder", report=report, architecture=Architecture("net.py:net"))
    code, out, _ = run("verify", "folder", "--random", "2", "--size", "6x7", "--json", "--trust")
    assert code == 0
    assert all(engine["logit_difference"] > 0.01 for engine in result_of("verify", out)["network"]["engines"])


@pytest.mark.fault
def test_a_network_that_differs_gives_exit_code_1(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    drop_a_head(monkeypatch)
    code, out, _ = run("verify", *write_network(SMALL), "--random", "1", "--size", "6x7", "--engine", "literal")
    assert code == 1
    assert "Beyond the worst case, or not finite: 0 (literal), 2 (literal)" in out


def test_images_of_a_folder_have_a_proved_error_a_bound_and_a_first_order_estimate_each_by_its_name(run: Run) -> None:
    network = write_network("nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten())")
    Path("data").mkdir()
    np.save("data/a.npy", np.random.default_rng(0).random((3, 5, 6)))
    code, out, _ = run("verify", *network, "--data", "data", "--all", "--json")
    found = result_of("verify", out)["network"]["on_images"]
    assert (code, len(found["images"])) == (0, 1)
    assert 0 < found["error"] < 1e-4  # some processors round more often than once an operation
    assert 0 < found["estimate"] <= found["bound"] < 1e-4
    assert found["in_words"] in run("verify", *network, "--data", "data", "--all")[1]
    odd = write_network("nn.Sequential(nn.Conv2d(3, 2, 3), nn.Softplus(), nn.Flatten())")
    code, out, _ = run("verify", *odd, "--data", "data", "--all")
    assert (code, "There is no estimate for single images: nothing can be said of the network" in out) == (0, True)


def test_images_of_a_folder_are_tensors_or_pictures(run: Run) -> None:
    network = write_network(SMALL)
    Path("data").mkdir()
    Image.new("RGB", (20, 18), (255, 0, 51)).save("data/a.png")
    Image.new("L", (9, 7), 7).save("data/b.jpg")
    torch.save(torch.rand(2, 3, 16, 16), "data/c.pt")
    np.save("data/d.npy", np.random.default_rng(0).random((3, 16, 16)))
    code, out, _ = run("verify", *network, "--data", "data", "--size", "16x16", "--json")
    assert code == 0
    assert result_of("verify", out)["network"]["images"] == 5
    code, _, err = run("verify", *network, "--data", "data")
    assert code == 3
    assert "data/b.jpg and data/a.png are of different sizes (--size makes pictures one size)" in err


def test_a_network_that_does_not_run_is_refused(run: Run) -> None:
    network = write_network("nn.Sequential(nn.Conv2d(3, 1, 1), nn.Flatten(), nn.Linear(9, 2))")
    code, _, err = run("verify", *network, "--size", "4x4")
    assert code == 3
    assert "the network does not run on images [3, 4, 4]" in err


SEVERAL = """
from torch import nn

class Net(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.stem, self.head, self.kind = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 4, 3, stride=2), kind
    def forward(self, x):
        a = self.stem(x)
        b = self.head(a.relu())
        return (b, (a, 3)) if self.kind == "scores" else {"boxes": b, "n": a}

class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 3, (3, 2), groups=1)
    def forward(self, sample, timestep, *, scale):
        return self.conv(sample) * (timestep.view(-1, 1, 1, 1) + scale)
"""


def write_several(factory: str, **arguments: object) -> tuple[str, ...]:
    Path("nets.py").write_text(SEVERAL)
    built = Architecture(f"nets.py:{factory}", arguments).build()
    torch.save(built.state_dict(), "net.pt")
    given = [part for name, value in arguments.items() for part in ("--arch-arg", f'{name}="{value}"')]
    return "net.pt", "--arch", f"nets.py:{factory}", *given


@pytest.mark.parametrize(("kind", "names"), [("scores", ["0", "1.0"]), ("boxes", ["boxes", "n"])])
def test_every_tensor_that_a_network_gives_is_compared(kind: str, names: list[str], run: Run) -> None:
    code, out, _ = run("verify", *write_several("Net", kind=kind), "--size", "9x12", "--random", "2", "--json")
    assert code == 0
    for engine in result_of("verify", out)["network"]["engines"]:
        assert list(engine["outputs"]) == names
        assert engine["logit_difference"] == max(engine["outputs"].values())
        assert (engine["top1_agreement"] is not None) == (kind == "scores")


def test_inputs_are_described_by_name_shape_and_dtype(run: Run) -> None:
    network = write_several("Denoiser")
    inputs = ("--input", "sample=2x2x7x6", "--input", "timestep=2:int64", "--input", "scale=1")
    code, out, _ = run("verify", *network, *inputs, "--json")
    assert code == 0
    found = result_of("verify", out)["network"]
    assert found["images"] == 2
    assert "this one takes other inputs" in found["certificate"]["unbounded"][0]["reason"]


@pytest.mark.parametrize("what", ["weights", "images"])
def test_numbers_that_are_not_finite_leave_agreement_undefined(what: str, run: Run) -> None:
    network = write_network("nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten())")
    options = ["--random", "2", "--size", "3x3"]
    if what == "weights":
        torch.save({"0.weight": torch.full((3, 1, 3, 3), torch.nan), "0.bias": torch.zeros(3)}, "net.pt")
    else:
        Path("data").mkdir()
        np.save("data/inf.npy", np.full((1, 3, 3), np.inf, dtype=np.float32))
        options = ["--data", "data"]
    code, out, _ = run("verify", *network, *options, "--all")
    *_, reason, verdict = out.splitlines()
    assert code == 1
    assert "undefined" in verdict
    assert reason == "Beyond the worst case, or not finite: 0 (separable), 0 (auto)."
    assert "ame bits" not in out
    assert "100.0%" not in out


def test_soft_attention_is_said_to_be_another_function_in_the_outcome(run: Run) -> None:
    network = write_network("nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten())")
    code, shown, _ = run("verify", *network, "--random", "2", "--size", "8x8", "--alpha", "1")
    assert code == 0
    *_, same, last = shown.splitlines()
    assert last.startswith("Soft: outputs differ from the CNN's by 0.")
    assert last.endswith("Verified: 1 layer within its worst case.")
    assert same.startswith("CNN and attention (auto): Not rounding: ")


def test_one_outcome_and_one_table_are_printed_and_all_else_if_it_is_asked_for(run: Run) -> None:
    network = write_network("nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten())")
    shown = run("verify", *network, "--random", "2", "--size", "8x8").out
    assert shown.splitlines()[-2:] == [
        "CNN and attention (auto): Same bits: all 6 elements of the outputs are equal.",
        "Verified: 1 layer within its worst case.",
    ]
    assert shown.count("Verified") == 1
    assert shown.count("\u2500\n") == 1  # the line below a table's header
    whole = run("verify", *network, "--random", "2", "--size", "8x8", "--all").out
    assert whole.startswith(shown[: shown.index("--all")])
    assert whole.count("\u2500\n") == 2
    assert "seed 0" in whole


def test_an_engine_of_other_bits_is_held_against_rounding(run: Run) -> None:
    options = ("--random", "1", "--size", "9x8", "--engine", "separable")
    code, out, _ = run("verify", *write_network(SMALL), *options, "--json")
    found = result_of("verify", out)["same"]
    assert (code, found["verdict"]) == (0, "rounding")
    assert 0 < found["ratio"] < 3
    assert found["sentence"].startswith("Rounding: ")


@pytest.mark.fault
def test_a_difference_outside_of_the_layers_is_not_rounding(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    network = write_network("nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten())")
    convert = convert_model

    def with_another_norm(*arguments: Any, **named: Any) -> Any:
        made = convert(*arguments, **named)
        made.model[1].eps = 1e-3  # type: ignore[index]
        return made

    monkeypatch.setattr(network_check, "convert_model", with_another_norm)
    code, out, _ = run("verify", *network, "--size", "5x6")
    assert code == 1
    assert "Beyond the worst case, or not finite: end to end (separable), end to end (auto).\n" in out
    assert "It begins at `1` (batch norm): eps 1e-05 in A, 0.001 in B." in out


@pytest.mark.parametrize("layers", [2, 9])
def test_the_bound_of_many_layers_is_left_out_unless_all_is_wanted(layers: int, run: Run) -> None:
    network = write_network(f"nn.Sequential(*[nn.Conv2d(1, 1, 1) for _ in range({layers})], nn.Flatten())")
    found = result_of("verify", run("verify", *network, "--size", "70x80", "--json").out)["network"]["certificate"]
    assert (found["bound"] is None) == (layers == 9)
    whole = result_of("verify", run("verify", *network, "--size", "70x80", "--all", "--json").out)
    assert whole["network"]["certificate"]["bound"] > 0


def test_an_input_of_open_length_is_one_that_fits_into_memory(run: Run) -> None:
    network = write_network("nn.Sequential(nn.Conv1d(1, 1, 9), nn.AdaptiveAvgPool1d(1), nn.Flatten())")
    code, _, err = run("verify", *network)
    assert code == 0
    assert "inputs are of 4000: those of 16000 do not fit into memory_limit\n" in err
    code, _, err = run("verify", *network, "--size", "16000")
    assert code != 0
    assert "memory_limit allows" in err


def test_measured_and_worst_case_are_two_numbers_with_the_range_that_they_are_for(run: Run) -> None:
    network = write_network("nn.Sequential(nn.Conv2d(1, 3, 3), nn.Flatten())")
    Path("data").mkdir()
    np.save("data/a.npy", np.linspace(-2, 3, 20).reshape(1, 4, 5))
    options = ("--data", "data", "--engine", "literal")
    found = run("verify", *network, *options, "--all")
    data = result_of("verify", run("verify", *network, *options, "--json").out)["network"]
    (engine,), bound = data["engines"], data["certificate"]["bound"]
    (layer,) = engine["layers"]
    assert f" {number(layer['own'])} ({number(layer['bound'])})\n" in found.out
    measured = f"Whole network: measured {number(engine['logit_difference'])}; "
    assert f"{measured}worst case for any 4x5 image on [-2, 3], in any order of sums: {number(bound)}.\n" in found.out
    assert "literal: every query scores every key. (conv2attn help engines)" in found.out


def test_help_names_every_engine(run: Run) -> None:
    assert {*ENGINES, AUTO} <= set(run("help", "engines").out.split())


def test_an_engine_that_takes_minutes_is_warned_of_with_a_size_that_does_not() -> None:
    cnn = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, stride=2)).eval()
    pair = Pair(cnn, convert_model(cnn).model)
    (line,) = network_check.cost_lines(pair, torch.zeros(1, 3, 224, 224), ["literal", "separable", AUTO], count=2)
    assert line.startswith("warning: literal takes about ")
    assert " minutes of the processor for 2 images of 224x224; --size " in line
    smaller = size_of(line.partition("--size ")[2].partition(" ")[0])
    assert smaller is not None
    assert network_check.cost_lines(pair, torch.zeros(1, 3, *smaller), ["literal"], count=2) == []
    assert network_check.cost_lines(pair, {"x": torch.zeros(1)}, ["literal"], count=1) == []
