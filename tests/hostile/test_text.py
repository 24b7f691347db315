"""Text from outside is seen, and does nothing: on the terminal, in pages, pictures and documents."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from conv2attn.cli import main
from conv2attn.convert import convert_model, save_converted
from conv2attn.convert.errors import Problem
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.report import CertifiedReport
from conv2attn.convert.files.plain import json_text
from conv2attn.convert.files.tensors import write_safetensors
from conv2attn.proofs.terminal.names import note_lines, problem_lines
from conv2attn.proofs.terminal.printable import LINE, printable, printable_lines
from tests.command import exit_code

SIGNS = "\x1b[2J\x1b]0;title\x07\x00\x9b31m\u202etxt.\u2066\u200f\u2028\u2029\x85\n\rconv2attn: forged\ue000</script>"
EVIL = SIGNS + "y" * 3000  # a name of a pickle that is read
LONG = EVIL * 40
LARGEST = 200_000  # characters that a command may print


@given(st.text(st.characters(), max_size=50), st.integers(2, 60))
def test_what_is_printable_is_one_short_line(text: str, limit: int) -> None:
    shown = printable(text, limit)
    assert shown.replace("\xa0", " ").isprintable()
    assert len(shown) <= 10 * limit + 3
    if text.isprintable() and len(text) <= limit:
        assert shown == text


@pytest.mark.parametrize(
    "sign", [chr(number) for number in (*range(32), *range(0x7F, 0xA0), 0xAD, 0x202E, 0xD800, 0xFFFF)]
)
def test_every_control_character_is_escaped(sign: str) -> None:
    assert printable(f"a{sign}b") == "a" + sign.encode("unicode_escape").decode() + "b"


@pytest.mark.parametrize(
    "sign", "\u034f\u115f\u1160\u17b4\u180b\u180f\u2800\u3164\ufe00\ufe0f\uffa0\U000e0100\U000e01ef"
)
def test_letters_that_leave_no_trace_are_escaped(sign: str) -> None:
    assert sign.isprintable()
    assert printable(f"a{sign}b") == "a" + sign.encode("unicode_escape").decode() + "b"


@pytest.mark.parametrize("count", [1000, 1001, 50_000])
def test_of_many_problems_and_notes_a_thousand_are_printed_and_the_rest_counted(count: int) -> None:
    problems = problem_lines("left alone", [Problem(str(number), "odd") for number in range(count)])
    notes = note_lines((str(number), f"note {number}") for number in range(count))
    assert problems[0] == f"{count} left alone:"
    for lines in (problems[1:], notes):
        assert len(lines) == min(count, 1001)
        assert lines[-1].startswith(f"and {count - 1000:,} more such lines") == (count > 1000)


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    shown = printable("begin" + "x" * 10**7 + "end")
    assert len(shown) <= LINE + 3
    assert shown.startswith("begin")
    assert shown.endswith("end")


def test_lines_of_ours_stay_lines() -> None:
    assert printable_lines("a\x1b\nb") == "a\\x1b\nb"


@given(st.recursive(st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_holds_every_number_and_text_exactly(data: Any) -> None:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    text = json_text(data)
    assert text.isascii()
    assert repr(json.loads(text, parse_constant=refuse)) == repr(worded(data))


def worded(value: Any) -> Any:
    """The data with NaN and infinities as their words."""
    if isinstance(value, dict):
        return {key: worded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [worded(item) for item in value]
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return words.get(repr(value), value) if isinstance(value, float) else value


NETS = """
from torch import nn
from tests.hostile.test_text import EVIL, net

class Other(nn.Conv1d):
    pass

def other():
    return nn.ModuleDict({EVIL: Other(2, 2, 2)})

def fails():
    raise RuntimeError(EVIL * 40)
"""


def net() -> nn.Module:
    """A network whose layers have a hostile name: one that is converted, and one that is not."""
    model = nn.Sequential()
    model.add_module(EVIL.replace(".", ""), nn.Conv2d(3, 4, 3))
    model.add_module("evil" + SIGNS.replace(".", ""), nn.ReLU())
    return model.eval()


class Outcome(NamedTuple):
    """How a run ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line, and looks at every character that it prints."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        outcome = Outcome(exit_code(*arguments), *capsys.readouterr())
        for text in outcome[1:]:
            check_text(text, LARGEST)
            assert all(not line.startswith("conv2attn: forged") for line in text.splitlines())
        assert outcome.code != 70
        return outcome

    return run


def check_text(text: str, largest: int = 10**7) -> None:
    """Nothing in a text moves a cursor or turns a direction."""
    assert {letter for letter in text if not letter.isprintable()} <= {
        "\n",
        "\xa0",
    }  # the page has such a space of its own
    assert len(text) <= largest


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NETS)
    torch.save(net().state_dict(), "weights.pt")
    torch.save(net(), "module.pt")


WEIGHTS = ("--arch", "nets.py:net")


@pytest.mark.parametrize("arguments", [("module.pt",), ("weights.pt", *WEIGHTS)])
def test_hostile_layer_names_are_planned_converted_and_restored(arguments: Sequence[str], run: Run) -> None:
    assert run("plan", *arguments).code == 0
    assert run("convert", *arguments, "--out", "out", "--skip-unsupported").code == 0
    check_text(Path("out", "report.html").read_text())
    for name in ("config.json", "report.json"):
        assert Path("out", name).read_bytes().isascii()
    assert run("restore", "out", "--out", "cnn.pt").code == 0
    assert run("plan", *arguments, "--json").code == 0


def test_json_holds_the_hostile_name_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["conv2attn", "plan", "module.pt", "--json"])
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert EVIL.replace(".", "") in [layer["name"] for layer in json.loads(printed)["layers"]]


@pytest.mark.parametrize(
    ("form", "picture"),
    [("html", None), ("png", "maps"), *(("svg", p) for p in ("maps", "contours", "error", "kernel"))],
)
def test_pictures_and_pages_of_hostile_layers_are_drawn(form: str, picture: str | None, run: Run) -> None:
    options = () if picture is None else ("--picture", picture)
    out = f"picture.{form}"
    assert run("show", "weights.pt", *WEIGHTS, "--out", out, *options, "--size", "16x16").code == 0
    if form in ("html", "svg"):
        check_text(Path(out).read_text())


def test_a_network_with_hostile_names_is_verified(run: Run) -> None:
    assert run("verify", "weights.pt", *WEIGHTS, "--random", "1", "--size", "8x8").code in (0, 3)
    assert run("verify", "weights.pt", *WEIGHTS, "--random", "1", "--size", "8x8", "--json").code in (0, 3)


def test_what_cannot_be_converted_is_told_in_visible_characters(run: Run) -> None:
    assert run("convert", "module.pt", "--out", "out", "--include", EVIL).code == 2
    assert run("plan", "weights.pt", "--arch", "nets.py:other").code == 3
    assert run("plan", "weights.pt", "--arch", "nets.py:fails").code == 3
    assert run("plan", "weights.pt").code == 2
    assert run("plan", "weights.pt", "--arch", f"nets.py:{SIGNS}").code == 3
    assert run("plan", "weights.pt", "--arch-arg", SIGNS).code == 2
    assert run("plan", "weights.pt", SIGNS).code == 2
    assert run(f"--{SIGNS}").code == 2
    assert run(SIGNS).code == 2
    assert run("show", "weights.pt", *WEIGHTS, "--out", "x.png", "--layer", SIGNS).code == 2
    assert run("prove", "--only", SIGNS).code == 2
    assert run("bench", "--table", SIGNS).code == 2
    assert run("soak", "--engine", SIGNS).code in (2, 3)
    for option in ("--data", "--encoding", "--recipe"):
        assert run("learn", option, SIGNS, "--out", "out").code in (2, 3)
    for option in ("--data", "--include", "--accelerator"):
        assert run("melt", "weights.pt", *WEIGHTS, option, SIGNS, "--out", "out").code in (2, 3)
    assert run("freeze", "weights.pt", *WEIGHTS, "--tolerance", "1", "--out", SIGNS).code in (2, 3)
    assert run("export", "weights.pt", *WEIGHTS, "--to", "onnx", "--form", SIGNS, "--out", "x.onnx").code == 2
    assert run("check", SIGNS).code in (2, 3)
    assert run("formal", "--limit", SIGNS).code == 2
    assert run("claims", SIGNS).code == 2


def test_hostile_file_names_are_told_in_visible_characters(run: Run) -> None:
    name = SIGNS.replace("/", "").replace("\0", "") + os.fsdecode(b"\xff.pt")
    os.rename("module.pt", name)
    assert run("convert", name, "--out", "out").code == 0
    check_text(Path("out", "report.html").read_text())
    assert run("plan", name + "nothing").code == 3
    assert run("convert", name, "--out", name + "out").code == 0
    assert run("restore", name + "out", "--out", name + "cnn.pt").code == 0
    assert run("show", name + "out", "--out", name + ".svg").code in (0, 2, 3)
    Path("folder").mkdir()
    Path("folder", name.replace(".pt", ".npy")).write_bytes(b"nothing")
    assert run("verify", "weights.pt", *WEIGHTS, "--data", "folder").code == 3


def edited(edit: Callable[[dict[str, Any]], object]) -> None:
    """A folder of ours whose config.json says something hostile."""
    config = json.loads(Path("out", "config.json").read_text())
    edit(config)
    Path("out", "config.json").write_text(json.dumps(config))


EDITS: list[Callable[[dict[str, Any]], object]] = [
    lambda config: config.update(format_version=99, versions={"conv2attn": SIGNS}),
    lambda config: config.update(format_version=LONG),
    lambda config: config.update(content=LONG),
    lambda config: config.update(architecture={"spec": LONG, "arguments": {}}),
    lambda config: config.update(architecture={LONG: 1}),
    lambda config: config["layers"][0].update({LONG: 1}),
    lambda config: config["layers"][0].update(names=[LONG]),
    lambda config: config["layers"][0].update(engine=LONG),
    lambda config: config["layers"][0]["spec"].update({LONG: 1}),
    lambda config: config["layers"][0]["spec"].update(padding=LONG),
    lambda config: config["layers"][0]["spec"].update(padding_mode=LONG),
    lambda config: config["layers"][0]["spec"].update(kernel_size=LONG),
]


@pytest.mark.parametrize("edit", EDITS)
def test_a_hostile_folder_is_told_in_visible_characters(edit: Callable[[dict[str, Any]], object], run: Run) -> None:
    save_converted(convert_model(nn.Conv2d(3, 4, 3)).model, "out")
    edited(edit)
    assert run("restore", "out", "--out", "cnn.pt").code in (0, 3)  # which need no architecture
    assert run("plan", "out").code in (0, 3)
    assert run("show", "out", "--out", "x.svg").code in (0, 2, 3)
    assert run("verify", "out", "--random", "1", "--size", "8x8").code in (0, 2, 3)


def test_a_hostile_report_is_shown_in_visible_characters(run: Run) -> None:
    save_converted(
        convert_model(nn.Sequential(nn.Conv2d(3, 4, 3))).model, "out", architecture=Architecture("nets.py:one")
    )
    Path("nets.py").write_text("from torch import nn\ndef one(): return nn.Sequential(nn.Conv2d(3, 4, 3))")
    report = json.loads(Path("out", "report.json").read_text())
    report["skipped"] = [{"name": LONG, "reason": LONG}]
    Path("out", "report.json").write_text(json.dumps(report))
    assert run("show", "out", "--arch", "nets.py:one", "--out", "x.html").code == 0
    check_text(Path("x.html").read_text())


def test_hostile_weights_are_told_in_visible_characters(run: Run) -> None:
    write_safetensors({EVIL: torch.zeros(4, 3, 3, 3), SIGNS: torch.tensor([np.nan])}, Path("w.safetensors"), {})
    assert run("plan", "w.safetensors").code == 2
    assert run("plan", "w.safetensors", *WEIGHTS).code == 3


def test_hostile_results_are_told_in_visible_characters(run: Run) -> None:
    assert run("soak", "--layers", "2", "--out", "result.json").code == 0
    result = json.loads(Path("result.json").read_text())
    campaign = result["campaign"]
    campaign["runs"], campaign["versions"] = [LONG], {LONG: LONG}
    campaign["tally"]["options"] = {LONG: 3}
    campaign["stopped"] = LONG
    Path("result.json").write_text(json.dumps(result))
    assert run("merge", "result.json").code in (0, 1, 3)
    Path("result.json").write_text(json.dumps(result | {"version": LONG}))
    assert run("merge", "result.json").code == 3


def test_a_report_is_json_whatever_its_numbers_are() -> None:
    conv = nn.Conv2d(1, 1, 1)
    nn.init.constant_(conv.weight, 3e38)
    text = json_text(CertifiedReport.of(*convert_model(nn.Sequential(conv))).to_json())
    assert "NaN" not in text.replace('"NaN"', "")
