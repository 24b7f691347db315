"""The command line does what it says, or says in one sentence why not, and leaves nothing half done."""

from __future__ import annotations

import json
import math
import re
import signal
import sys
import sysconfig
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import NoReturn

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from conv2attn.convert import SelfAttention2d, load_converted, save_converted
from conv2attn.convert.certificate.layer import number
from conv2attn.convert.examples.images import HELD_OUT_SEED, draw_images
from conv2attn.convert.examples.networks import NETWORKS, load_example
from conv2attn.convert.files.architecture import Architecture
from tests.command import Ran, Run, result_of
from tests.processes import PATIENCE, finished, started

PROGRAM = Path(sysconfig.get_path("scripts"), "conv2attn")
COLOUR_VARIABLES = ("COLUMNS", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")

NETS = """
import warnings
import torch
from torch import nn

def small(width=4):
    first = nn.Conv2d(3, width, (3, 2), stride=(2, 1), padding=1)
    return nn.Sequential(first, nn.ReLU(), nn.Conv2d(width, 6, 3, padding="same", padding_mode="circular", groups=2))

def large():
    return nn.Sequential(nn.Conv2d(64, 64, 3, padding=1))

class Other(nn.Conv1d):
    pass

class Up(nn.ConvTranspose2d):
    pass

def marked():
    return nn.ModuleDict({"[red]stem[/red]": nn.Conv2d(3, 4, 3), "[bold": Other(2, 2, 2)})

class Padded(nn.Conv2d):
    def forward(self, x):
        return super().forward(nn.functional.pad(x, (1, 1)))

def mixed():
    layers = {"fine": nn.Conv2d(3, 4, 3), "one": Other(2, 2, 2), "up": Up(2, 2, 2)}
    return nn.ModuleDict(layers | {"padded": Padded(2, 2, 2)})

def complexes():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3, dtype=torch.complex64))

def linear():
    return nn.Linear(2, 3)

def chatty():
    print("building")
    return small()
"""


def network(factory: str = "small", **arguments: object) -> nn.Module:
    return Architecture(f"nets.py:{factory}", arguments).build().eval()


def save(network: nn.Module, path: str = "weights.pt") -> None:
    torch.save(network.state_dict(), path)


def load(folder: str, factory: str = "small", **arguments: object) -> nn.Module:
    return load_converted(folder, architecture=Architecture(f"nets.py:{factory}", arguments))


def images(channels: int = 3) -> Tensor:
    return torch.rand(2, channels, 9, 12) * 2 - 1


def tree() -> dict[str, int]:
    """Every file and folder here, hidden ones too, and when it was last changed."""
    found = (path for path in Path().rglob("*") if "__pycache__" not in path.parts)
    return {str(path): path.stat().st_mtime_ns for path in found}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder to work in, with the file of architectures."""
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NETS)
    for name in COLOUR_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def done(outcome: Ran) -> str:
    """The output of a run that did its work and had nothing to remark."""
    assert outcome.code == 0, outcome.err
    assert "\x1b" not in outcome.out  # it is no terminal
    assert outcome.err == ""
    return outcome.out


def refused(run: Run, code: int, *arguments: str) -> str:
    """The sentence with which a run is refused, having written and printed nothing else."""
    before = tree()
    outcome = run(*arguments)
    assert (outcome.code, outcome.out) == (code, ""), outcome.err
    assert tree() == before
    assert "Traceback" not in outcome.err
    lines = outcome.err.splitlines()
    assert len(lines) == 1 or (code == 2 and lines[0].startswith("Usage: "))
    if lines[-1].startswith("Example: conv2attn "):
        lines.pop()
    assert lines[-1].startswith(("conv2attn: ", "Error: "))
    return lines[-1]


def convert(
    *options: str, factory: str = "small", checkpoint: str = "weights.pt", out: str = "out", page: bool = False
) -> tuple[str, ...]:
    """Arguments of a conversion, which makes no page if nothing else is said."""
    shown = () if page else ("--no-page",)
    return "convert", checkpoint, "--arch", f"nets.py:{factory}", "--out", out, *shown, *options


def plan(*options: str, factory: str = "small", checkpoint: str = "weights.pt") -> tuple[str, ...]:
    """Arguments of a plan."""
    return "plan", checkpoint, "--arch", f"nets.py:{factory}", *options


# What a conversion writes


def save_nested(state: dict[str, Tensor], path: Path) -> None:
    torch.save({"epoch": 3, "state_dict": {f"module.{key}": value for key, value in state.items()}}, path)


@pytest.mark.parametrize("save_as", [save_file, save_nested])
def test_the_written_folder_computes_the_same_bit_for_bit(
    save_as: Callable[[dict[str, Tensor], Path], None], run: Run
) -> None:
    cnn, x = network(), images()
    save_as(cnn.state_dict(), Path("weights"))
    has_page = save_as is save_nested
    out = done(run(*convert(checkpoint="weights", page=has_page)))
    *_, wrote, last = out.splitlines()
    assert wrote == ("Wrote out; open out/report.html to look at it" if has_page else "Wrote out")
    assert out.count("Same bits as the CNN") == 1
    assert last.startswith("Same bits as the CNN: ")
    assert run(*last.partition("Next: conv2attn ")[2].split()).code == 0
    written = ["config.json", "model.safetensors", *["report.html"] * has_page, "report.json"]
    assert sorted(path.name for path in Path("out").iterdir()) == written
    converted = load("out")
    assert sum(isinstance(module, SelfAttention2d) for module in converted.modules()) == 2
    assert torch.equal(converted(x), cnn(x))


def test_the_network_s_outputs_stay_within_the_bound_that_is_printed_and_kept(run: Run) -> None:
    cnn, x = network(), images()
    save(cnn)
    options = ("--alpha", "7.5", "--input-range", "-1,1", "--size", "9x12")
    out = done(run(*convert(*options)))
    report = json.loads(Path("out", "report.json").read_text())
    bound = report["network"]["bound"]
    assert f"Whole network: worst case for any 9x12 image on [-1, 1], in any order of sums: {number(bound)}.\n" in out
    assert 0 < (load("out")(x) - cnn(x)).abs().max().item() <= bound
    assert report["network"]["unbounded"] == []


@pytest.mark.slow
def test_the_installed_command_converts_from_end_to_end() -> None:
    cnn, x = network(), images()
    save(cnn)
    result = finished([PROGRAM, *convert("--json")])
    assert (result.returncode, result.stderr) == (0, "")
    assert result_of("convert", result.stdout)["folder"] == "out"
    assert torch.equal(load("out")(x), cnn(x))


@pytest.mark.parametrize(
    ("options", "converted"),
    [
        ((), ["0", "2"]),
        (("--include", "[01]"), ["0"]),
        (("--include", "re:[0-1]"), ["0"]),
        (("--include", "*", "--exclude", "re:.*2"), ["0"]),
    ],
)
def test_patterns_choose_what_is_planned_and_converted(
    options: tuple[str, ...], converted: list[str], run: Run
) -> None:
    cnn, x = network(), images()
    save(cnn)
    report = result_of("convert", done(run(*convert(*options, "--json"))))["report"]
    left = [name for name in ("0", "2") if name not in converted]
    assert [layer["names"] for layer in report["layers"]] == [[name] for name in converted]
    assert report["skipped"] == [{"name": name, "reason": "not selected"} for name in left]
    planned = result_of("plan", done(run(*plan(*options, "--json"))))
    assert [layer["name"] for layer in planned["layers"]] == converted
    assert planned["skipped"] == report["skipped"]
    assert torch.equal(load("out")(x), cnn(x))


def test_a_conversion_in_half_precision_is_the_half_precision_network(run: Run) -> None:
    cnn, x = network(), images().bfloat16()
    save(cnn)
    done(run(*convert("--dtype", "bfloat16")))
    converted = load("out")
    dtypes = {name.rpartition(".")[2]: value.dtype for name, value in converted.state_dict().items()}
    values, positions = torch.bfloat16, torch.float32
    assert dtypes == {"weight": values, "bias": values, "alpha": positions, "centers": positions}
    assert torch.equal(converted(x), cnn.bfloat16()(x))


def test_the_moving_average_is_taken_when_asked_for(run: Run) -> None:
    trained, averaged, x = network(), network(), images()
    torch.save({"state_dict": trained.state_dict(), "state_dict_ema": averaged.state_dict()}, "weights.pt")
    done(run(*convert(out="trained")))
    done(run(*convert("--ema", out="averaged")))
    assert torch.equal(load("trained")(x), trained(x))
    assert torch.equal(load("averaged")(x), averaged(x))


def test_the_factory_gets_its_arguments_and_the_folder_keeps_them(run: Run) -> None:
    cnn, x = network(width=8), images()
    save(cnn)
    done(run(*convert("--arch-arg", "width=8")))
    recorded = json.loads(Path("out", "config.json").read_text())["architecture"]
    assert recorded == {"spec": "nets.py:small", "arguments": {"width": 8}}
    assert torch.equal(load("out", width=8)(x), cnn(x))


def test_unsupported_layers_are_left_when_asked_for(run: Run) -> None:
    save(network("mixed"))
    out = done(run(*convert("--skip-unsupported", "--exclude", "up", factory="mixed")))
    assert re.search(r"^3 left alone:\n  up: not selected\n  one: it is a subclass of nn.Conv1d, ", out, re.MULTILINE)
    kinds = {name: type(layer).__name__ for name, layer in load("out", "mixed").named_children()}
    assert kinds == {"fine": "SelfAttention2d", "one": "Other", "up": "Up", "padded": "Padded"}


def test_force_replaces_what_an_earlier_run_wrote(run: Run) -> None:
    first, second, x = network(), network(), images()
    save(first)
    done(run(*convert()))
    save(second)
    assert "--force" in refused(run, 3, *convert())
    assert torch.equal(load("out")(x), first(x))
    done(run(*convert("--force")))
    assert torch.equal(load("out")(x), second(x))
    assert not [name for name in tree() if name.startswith(".")]


def test_weights_that_are_not_finite_are_converted_with_a_warning_and_without_a_certificate(run: Run) -> None:
    cnn = network()
    nn.init.constant_(cnn.get_parameter("2.weight"), math.nan)
    save(cnn)
    outcome = run(*convert("--json"))
    assert (outcome.code, outcome.err.count("\n")) == (0, 1)
    assert outcome.err.startswith("warning: NaN or infinity in 2.weight")
    fine, broken = result_of("convert", outcome.out)["report"]["layers"]
    assert (fine["uncertified"], broken["certificate"]) == (None, None)
    assert "NaN" in broken["uncertified"]
    assert load("out").get_parameter("2.weight").isnan().all()
    assert "NaN" in run(*convert("--force")).out


# What a plan shows


def test_a_plan_shows_heads_parameters_and_memory_and_writes_nothing(run: Run) -> None:
    save(network("large"))
    before = tree()
    out = done(run(*plan(factory="large")))
    (row,) = (line.split("   ") for line in out.splitlines() if line.startswith("0"))
    cells = [cell.strip() for cell in row if cell.strip()]
    memory = 4 * 9 * 224**2 * 226**2
    assert cells == ["0", "3x3, 64->64, padding 1", "9", "36,928", "36,955", "224x224", f"{memory / 2**30:.1f} GiB"]
    (layer,) = result_of("plan", done(run(*plan("--json", factory="large"))))["layers"]
    assert (layer["heads"], layer["literal_bytes"], layer["input_size"]) == (9, memory, [224, 224])
    assert tree() == before


def test_a_plan_says_what_cannot_be_converted_and_why(run: Run) -> None:
    save(network("mixed"))
    before = tree()
    out = done(run(*plan(factory="mixed")))
    assert "3 cannot be converted:\n  one: it is a subclass of nn.Conv1d, which may compute something else" in out
    assert re.search(r"^  padded: it is a subclass of nn.Conv2d", out, re.MULTILINE)
    unsupported = result_of("plan", done(run(*plan("--json", factory="mixed"))))["unsupported"]
    assert [problem["name"] for problem in unsupported] == ["one", "up", "padded"]
    assert tree() == before


def test_a_plan_of_a_network_without_convolutions_says_so(run: Run) -> None:
    save(network("linear"))
    assert done(run(*plan(factory="linear"))) == "Nothing would be converted.\n"
    assert result_of("plan", done(run(*plan("--json", factory="linear"))))["layers"] == []


def test_a_name_that_looks_like_markup_is_shown_as_it_is(run: Run) -> None:
    save(network("marked"))
    assert "[red]stem[/red]" in done(run(*plan(factory="marked")))
    out = done(run(*convert("--skip-unsupported", factory="marked")))
    assert "[red]stem[/red]" in out
    assert "[bold: it is a subclass of nn.Conv1d" in out


def test_json_is_one_versioned_object_even_if_the_factory_prints(run: Run) -> None:
    save(network())
    outcome = run(*convert("--json", factory="chatty"))
    assert (outcome.code, outcome.err) == (0, "building\n")
    assert outcome.out.startswith("{")
    assert outcome.out.endswith("}\n")
    result_of("convert", outcome.out)


# What is refused


ARCH = ("--arch", "nets.py:small")
REFUSED: list[tuple[int, tuple[str, ...], str]] = [
    (3, convert(checkpoint="nothing.pt"), "conv2attn: there is no file nothing.pt"),
    (3, convert(checkpoint="empty"), "conv2attn: empty is a folder without weights"),
    (3, convert(checkpoint="timm:resnet18"), "names an architecture"),
    (4, convert(factory="linear"), "the model has no convolution"),
    (4, convert(factory="mixed"), r"3 layers cannot be converted: one: .* up: .* padded: "),
    (4, convert(factory="complexes"), "1: its dtype torch.complex64"),  # not silently made real
    (3, convert("--dtype", "float32", factory="complexes"), "imaginary parts"),
    (3, convert("--device", "meta"), "'meta' cannot be used, 'cpu' can: "),
    (3, convert("--device", "cuda:99"), "cannot be used, 'cpu' can: "),
    (3, convert(factory="smal"), "nets.py has no smal; it has small, large, Other, Up, "),
    (3, plan("--arch-arg", "a=1", factory="linear"), "; it takes no argument"),
    (3, ("plan", "weights.pt", "--arch", "nets.py"), "one of small, large, Other, .*, as in nets.py:"),
    (3, ("plan", "weights.pt", "--arch", "nts.py:small"), "no Python file nts.py; close names: nets.py"),
    (3, ("verify", "weights.pt", *ARCH, "--data", "nowhere"), "there is no file or folder nowhere"),
    (3, ("verify", "weights.pt", *ARCH, "--data", "nets.py"), "is a file; its folder is ."),
    (3, ("demo", "--out", "weights.pt"), "weights.pt is a file; the output is a folder"),
    (2, convert("--include", "stem"), "matches no convolution; there are 0, 2"),
    (2, convert("--include", "re:("), "is not a regular expression"),
    (2, convert("--input-range", "1,0"), "got 1,0, whose LOW is above its HIGH"),
    (2, convert("--input-range", "0,inf"), "got 0,inf, which is not finite"),
    (2, convert("--alpha", "nan"), r"a number from 0.0001, .*, to 1e\+06"),
    (2, convert("--alpha", "1e30"), "from 104 on in float32, from 746 on in float64.; got 1e30"),
    (2, convert("--alpha", "0"), "got 0"),
    (2, convert("--alpha", "big"), "got big"),
    (2, convert("--dtype", "int8"), "int8"),
    (2, convert("--arch-arg", "width=abc"), "is not name=json"),
    (2, plan("--size", "0x10"), "got 0x10"),
    (2, ("plan", "weights.pt"), "--arch is missing: conv2attn plan weights.pt --arch FILE.py:NAME .timm:NAME"),
    (2, ("plan", "weights.pt", "--arch-arg", "width=3"), "Error: --arch-arg goes with --arch"),
    (2, ("convert", "weights.pt", "--out", "out"), r"4 dimensions: 0.weight \[4, 3, 3, 2\], 2.weight"),
    (2, ("restore", "weights.pt"), "Missing option"),
    *((2, (name, "weights.pt", "--out", "a.txt"), "a.txt must end in .") for name in ("restore", "export")),
    (2, ("freeze", "weights.pt", "--tolerance", "0.1", "--out", "a.txt"), "a.txt must end in ."),
    (2, ("freeze", "weights.pt", *ARCH, "--out", "f.pt", "--tolerance", "1", "--data", "mnist"), "must be digits"),
    (2, ("show",), "Error: FOLDER.CHECKPOINT is missing: conv2attn show attention draws"),
    (2, ("show", "--article", "--layer", "0"), "Error: --layer has no meaning for the article"),
    (2, ("show", "weights.pt", "--alpha", "-3"), "got -3"),
    (2, ("show", "weights.pt", "--out", "x.svg", "--query", "1,x"), "must be ROW,COLUMN"),
    (2, ("show", "weights.pt", *ARCH, "--out", "s.jpg"), "the name must end in .png"),
    (2, ("graft", "weights.pt", "--heads", "x"), "must be a valid integer; got x"),
    (2, ("graft", "weights.pt", "--heads", "0"), "greater than or equal to 1; got 0"),
    (2, ("graft", "--out", "out"), "Error: CHECKPOINT is missing: conv2attn graft weights.pth"),
    (2, ("graft", "--data", "digits"), "Error: --out is missing, the folder of the runs"),
    (2, ("graft", "--data", "digits", "--heads", "2"), ": conv2attn graft --data digits --heads 2 --out compared"),
    (2, ("graft", "--data", "mnist"), "data must be digits, digits:SIDE"),
    (2, ("graft", "--data", "drawn", "--size", "32x32"), "--size 32x32 is for a folder .*; --data drawn:32 has images"),
    (2, ("graft", "--data", "cifar10:x", "--size", "8x9"), "leave --size out"),
    (2, ("graft", "weights.pt", "--out", "out", "--data", "digits", "--force"), "Error: --force has no meaning with"),
    (2, ("verify",), "Error: CHECKPOINT is missing: conv2attn verify attention"),
    (2, ("verify", "--random", "3", "--size", "4x4"), "Error: --size has no meaning for random layers"),
    (2, ("verify", "weights.pt"), "--arch is missing"),
    (2, ("verify", "weights.pt", *ARCH, "--engine", "fast"), "one of literal, .*; got fast"),
    (2, ("verify", "weights.pt", *ARCH, "--input", "x=1x3x9x9", "--size", "7x6"), ""),
    (2, ("verify", "weights.pt", *ARCH, "--input", "x=2xx6"), "NAME=SHAPE"),
    (2, ("verify", "weights.pt", "--mean", "1,1,1"), "Error: --mean needs --std"),
    (2, ("soak", "--engine", "foo"), "got foo"),
    (2, ("soak", "--max-size", "65"), "got 65"),
    (2, ("help", "grafd"), "is no command and no topic; close names: graft"),
    (2, ("view",), "Error: No such command 'view'; conv2attn --help lists all."),
    (2, ("grft",), "Error: No such command 'grft'. Did you mean 'graft'?"),
]


@pytest.mark.parametrize(("code", "arguments", "reason"), REFUSED)
def test_what_cannot_be_done_is_refused(code: int, arguments: tuple[str, ...], reason: str, run: Run) -> None:
    factory = "".join(arguments).partition("nets.py:")[2].partition("--")[0]
    save(network(factory if factory in ("linear", "mixed", "complexes") else "small"))
    Path("empty").mkdir()
    assert re.search(reason, refused(run, code, *arguments))


def test_a_missing_architecture_is_shown_by_the_networks_in_files_beside_the_checkpoint(run: Run) -> None:
    Path("models").mkdir()
    save(nn.Sequential(nn.Conv2d(3, 2, 3)), "models/w.pt")
    begins = "conv2attn: --arch is missing: conv2attn convert models/w.pt --arch"
    assert refused(run, 2, "convert", "models/w.pt").startswith(f"{begins} torchvision.models:resnet18 (timm")
    Path("models/a.py").write_text("class (")
    assert refused(run, 2, "convert", "models/w.pt").startswith(f"{begins} FILE.py:NAME (timm")
    Path("models/net.py").write_text("from torch import nn\nclass Block(nn.Module): 0\nclass Net(nn.Sequential): 0\n")
    told = refused(run, 2, "convert", "models/w.pt")
    assert told.startswith(f"{begins} models/net.py:Net (timm")  # the last of its classes
    assert "--trust" not in told
    code = "raise SystemExit\nimport torch\nclass Base(torch.nn.Module): 0\nclass Own(Base): 0\nclass Data: 0\n"
    Path("models/b.py").write_text(code)  # which is read, and not run
    names = ["models/b.py:Own", "models/net.py:Net"]
    assert refused(run, 2, "convert", "models/w.pt").startswith(f"{begins} {' or '.join(names)} (timm")
    for name in "cd":
        Path(f"models/{name}.py").write_text(code)
    names = ["models/b.py:Own", "models/c.py:Own", "models/d.py:Own", "FILE.py:NAME"]
    assert refused(run, 2, "convert", "models/w.pt").startswith(f"{begins} {' or '.join(names)} (timm")


def test_what_is_missing_or_no_checkpoint_is_said_before_that_the_output_exists(run: Run) -> None:
    save(network())
    Path("text.pt").write_text("weights")
    for kind in (".html", ".onnx", ".pt"):
        Path(f"out{kind}").touch()
    done(run(*convert()))
    places = {
        "convert": ("--out", "out"),
        "graft": ("--out", "out"),
        "show": ("--out", "out.html"),
        "export": ("--out", "out.onnx"),
        "restore": ("--out", "out.pt"),
        "freeze": ("--out", "out.pt", "--tolerance", "1"),
    }
    for command, out in places.items():
        told = refused(run, 3, command, "weight.pt", *ARCH, *out)
        assert told == "conv2attn: there is no file weight.pt; close names: weights.pt"
        told = refused(run, 3, command, "text.pt", *ARCH, *out)
        assert told == "conv2attn: text.pt is no checkpoint of a supported kind: it is a text file"
        told = refused(run, 3, command, "weights.pt", *ARCH, *out)
        assert told == f"conv2attn: {out[1]} exists already (--force replaces it)"


def test_show_asks_for_trust_as_verify_does_and_takes_layers_only_where_no_architecture_is_named(run: Run) -> None:
    save(network())
    done(run(*convert()))
    Path("a.png").write_bytes(b"")
    for options in ((), ("--size", "9x9"), ("--image", "a.png")):
        told = refused(run, 3, "show", "out", *options)
        assert "out names the architecture nets.py:small, which would run code that a file chose (--trust" in told
        assert told.endswith(f"(--trust runs it: {' '.join(('conv2attn', 'show', 'out', *options, '--trust'))})")
    for trust in ((), ("--trust",)):
        told = refused(run, 3, "show", "out", "--image", "none.png", *trust)
        assert told == "conv2attn: there is no file none.png"
    save_converted(load("out"), "layers")
    Path("nets.py").unlink()
    assert "there is no Python file nets.py" in refused(run, 3, "show", "out", "--image", "a.png", "--trust")
    told = run("show", "out", "--trust", "--out", "a.html").err
    assert told.startswith("warning: layers are shown without their network: there is no Python file nets.py")
    assert run("show", "layers", "--out", "b.html") == (0, "Wrote b.html\n", "")
    told = run("show", "layers", "--out", "c.html", "--size", "9x12", "--query", "1,2").err
    assert told == "Without the network, size and query are those of each layer's own drawn input\n"
    told = refused(run, 2, "show", "layers", "--image", "a.png")
    assert told.startswith(
        "conv2attn: --arch is missing: conv2attn show layers --image a.png --arch torchvision.models:"
    )


def test_weights_of_other_classes_are_refused_with_the_argument_that_fits(run: Run) -> None:
    save(nn.Sequential(nn.Conv2d(64, 7, 3, padding=1)))
    told = refused(run, 3, *convert(factory="large"))
    assert "weights.pt has 7 classes, the architecture 64: '0' has as many outputs" in told
    assert "--arch-arg num_classes=7" in told
    Path("own.py").write_text(OWN_NAME)
    assert "--arch-arg labels=7" in refused(run, 3, "convert", "weights.pt", "--arch", "own.py:Net")


OWN_NAME = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self, labels=64):
        super().__init__(nn.Conv2d(64, labels, 3, padding=1))
"""


COMMANDS = "plan convert verify show restore export same record demo graft freeze learn prove claims formal check soak"


@pytest.mark.parametrize("name", COMMANDS.split())
def test_help_on_a_command_fits_a_screen(name: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    outcome = run("help", name)
    assert outcome.out == run(name, "--help").out
    assert len(outcome.out.splitlines()) <= 45


def test_help_lists_every_command_and_tells_of_topics(run: Run) -> None:
    told = run("help").out
    assert told == run("--help").out
    listed = told.partition("Convert:")[2].splitlines()
    assert [word for line in listed for word in line.split()[:1] if word in COMMANDS.split()] == COMMANDS.split()
    assert "--arch-arg num_classes=10" in run("help", "arch").out


def test_what_is_written_has_a_natural_name(run: Run) -> None:
    save(network())
    assert run("convert", "weights.pt", *ARCH, "--no-page").code == 0
    assert Path("weights-attention/config.json").is_file()
    assert run("graft", "weights.pt", *ARCH, "--size", "9x12").code == 0
    assert Path("weights-grafted/config.json").is_file()
    assert run("show", "weights-attention", "--trust").code == 0
    assert Path("weights-attention.html").is_file()


# Errors


def test_a_bug_says_so_and_asks_for_a_report(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conv2attn.commands.convert.convert_model", None)
    save(network())
    outcome = run(*convert())
    assert (outcome.code, outcome.out) == (70, "")
    assert outcome.err.startswith("conv2attn: internal error: TypeError: 'NoneType' object is not callable\n")
    assert "Traceback" not in outcome.err
    assert "Traceback" in run("--debug", *convert()).err


def test_with_json_an_error_is_one_object_too(run: Run) -> None:
    for arguments, code in ((("plan", "nothing", "--json"), 3), (("plan", "--json"), 2)):
        outcome = run(*arguments)
        assert (outcome.code, outcome.err) == (code, "")
        assert json.loads(outcome.out)["exit_code"] == code


LARGE = [
    "plan",
    "convert",
    "verify",
    "show",
    "export",
    "graft",
    "freeze --tolerance 1 --out frozen.pth",
    "same weights.pt",
]


@pytest.mark.parametrize("command", LARGE)
def test_an_image_larger_than_the_memory_is_refused_before_anything_is_computed(command: str, run: Run) -> None:
    save(network())
    before = tree()
    outcome = run(*command.split(), "weights.pt", *ARCH, "--size", "99999999x99999999")
    assert (outcome.code, outcome.out, tree()) == (3, "", before)
    assert "an image of 99999999x99999999" in outcome.err
    assert "this machine has" in outcome.err


def test_more_heads_than_the_memory_holds_are_refused_and_nothing_is_written(run: Run) -> None:
    save(network())
    outcome = run("graft", "weights.pt", *ARCH, "--heads", "2147483647", "--size", "9x12")
    assert (outcome.code, outcome.out) == (3, "")
    assert "spare heads" in outcome.err
    assert not Path("weights-grafted").exists()


def test_a_place_that_takes_no_byte_is_refused_before_the_checkpoint_is_read(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(network())

    def full(*_: object, **__: object) -> NoReturn:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("conv2attn.convert.write.tempfile.TemporaryFile", full)
    monkeypatch.setattr("conv2attn.commands.convert.opened", None)
    outcome = run("convert", "weights.pt", *ARCH)
    assert (outcome.code, outcome.err) == (
        3,
        "conv2attn: weights-attention cannot be written: No space left on device\n",
    )


# Processes and terminals


def wait_for(path: Path, process: Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.002)


@pytest.mark.slow
def test_an_interrupt_ends_a_run_at_once_and_leaves_only_whole_folders() -> None:
    with started([PROGRAM, "demo", "--out", "demo", "--images", "400"]) as process:
        wait_for(Path("demo/plain/config.json"), process)
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=2)
        except TimeoutExpired:  # torch swallows an interrupt at times
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert out == ""
    for folder in filter(Path.is_dir, Path("demo").glob("*")):  # beside them, a lock's empty file may be left
        assert folder.name in NETWORKS
        load_converted(folder)


MODULES = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); import conv2attn.cli as c; c.main()"


@pytest.mark.slow
def test_help_imports_nothing_heavy() -> None:
    heavy = {"torch", "sympy", "hypothesis", "rich", "numpy", "safetensors", "matplotlib"}
    public = "import conv2attn; dir(conv2attn); conv2attn.__version__; "
    loaded = finished([sys.executable, "-c", public + MODULES, "--help"]).stdout.splitlines()[-1].split()
    assert "typer" in loaded
    assert heavy.isdisjoint(loaded)


@pytest.mark.slow
def test_a_path_that_is_not_there_is_refused_before_torch_is_imported() -> None:
    save(network())
    ended = finished([sys.executable, "-c", MODULES, "convert", "weight.pt"])
    assert "there is no file weight.pt; close names: weights.pt" in ended.stderr
    assert "torch" not in ended.stdout.split()


@pytest.mark.slow
def test_commands_but_those_that_train_need_no_package_of_an_extra() -> None:
    extras = "onnx", "onnxruntime", "onnxscript", "transformers", "huggingface_hub", "lightning", "sklearn"
    names = {path.stem for path in (Path(__file__).parents[1] / "commands").glob("*.py")}
    wanted = sorted(names - {"__init__", "graft", "graft_verdict", "learn"})
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({extras})); from conv2attn.commands import {', '.join(wanted)}"
    )
    ended = finished([sys.executable, "-c", code])
    assert (ended.returncode, ended.stderr) == (0, "")


# The demo


def test_the_demo_s_networks_agree_in_every_engine_and_every_layer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Proofs about the pages' images take most of the time; tests/show/page has them.
    monkeypatch.setattr("conv2attn.show.page.data._on_image", lambda *_, **__: None)
    # Nothing is on stderr: no progress bar, since that is no terminal.
    found = result_of("demo", done(run("demo", "--images", "3", "--out", "demo", "--json")))
    assert found["seed"] == HELD_OUT_SEED
    assert [network["network"] for network in found["networks"]] == list(NETWORKS)
    x, _ = draw_images(3, seed=found["seed"])
    for network in found["networks"]:
        assert network["images"] == 3
        assert [engine["top1_agreement"] for engine in network["engines"]] == [1.0] * len(network["engines"])
        assert {engine["engine"] for engine in network["engines"]} >= {"literal", "factored"}
        layers = [layer for engine in network["engines"] for layer in engine["layers"]]
        assert all(layer["own"] <= layer["bound"] for layer in layers)
        assert torch.equal(load_converted(network["folder"])(x), load_example(network["network"])(x))
    monkeypatch.setattr("conv2attn.commands.demo.NETWORKS", {"plain": NETWORKS["plain"]})  # one network again
    before = {name: changed for name, changed in tree().items() if name.startswith("demo/plain/")}
    again = result_of("demo", done(run("demo", "--images", "1", "--out", "demo", "--json")))
    assert [(network["network"], network["images"]) for network in again["networks"]] == [("plain", 1)]
    after = {name: changed for name, changed in tree().items() if name.startswith("demo/plain/")}
    assert after.keys() == before.keys() != set()
    assert all(after[name] > before[name] for name in before)


@pytest.mark.parametrize("in_the_way", ["demo/residual/notes.txt", "demo"])
def test_the_demo_refuses_what_is_in_its_way_before_any_work(
    in_the_way: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise AssertionError("the work has begun")

    monkeypatch.setattr("conv2attn.commands.demo.draw_images", fail)
    Path(in_the_way).parent.mkdir(parents=True, exist_ok=True)
    Path(in_the_way).write_text("mine")
    message = refused(run, 3, "demo", "--out", "demo", "--images", "40")
    assert str(Path(in_the_way).parent if "notes" in in_the_way else in_the_way) in message


NEXT = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3)

    def forward(self, x):
        return self.conv(x)
"""


def test_the_next_command_has_the_options_that_it_needs(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("nets.py").write_text(NEXT)
    monkeypatch.syspath_prepend(Path.cwd())
    net = import_module("nets").Net()
    torch.save(net, "whole.pth")
    torch.save(net.state_dict(), "state.pth")
    wanted = {
        ("state.pth", "--arch", "nets.py:Net"): "conv2attn verify out --trust",
        ("whole.pth", "--trust"): "conv2attn verify out --arch nets.py:Net",
    }
    for arguments, told in wanted.items():
        out = done(run("convert", *arguments, "--out", "out", "--force", "--no-page", "--size", "8"))
        said = "Same bits as the CNN: each layer is computed by the convolution call itself."
        assert out.splitlines()[-1] == f"{said} Next: {told}"
        assert done(run(*told.split()[1:], "--size", "8")).splitlines()[-1].startswith("Verified: ")


@pytest.mark.parametrize("command", ["convert --out out --force --no-page --size 8", "plan", "verify --size 8"])
def test_a_class_that_takes_a_part_of_a_checkpoint_says_so_first_with_counts(command: str, run: Run) -> None:
    Path("nets.py").write_text(NEXT)
    state = {"conv.weight": torch.ones(2, 3, 3, 3), "conv.bias": torch.zeros(2)}
    torch.save(state | {"neck.weight": torch.ones(1), "conv.total_ops": torch.ones(1)}, "part.pth")
    name, *options = command.split()
    found = run(name, "part.pth", "--arch", "nets.py:Net", *options)
    counts = "2 of 3 keys are loaded, missing 0, left over 1: neck.weight\n"
    assert (found.code, found.err) == (0, f"warning: the network is a part of part.pth: {counts}")
    torch.save({"conv.weight": state["conv.weight"], "neck.weight": torch.ones(1)}, "less.pth")
    told = "1 of 2 keys fit, missing 1, left over 1: 'conv.bias' is missing; it holds 'neck.weight'"
    assert told in refused(run, 3, name, "less.pth", "--arch", "nets.py:Net", *options)
