"""A file that lies is refused with one sentence and exit code 3, and nothing in it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from conv2attn.cli import main
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import non_finite_keys, read_checkpoint
from tests.hostile.cases import READ, REFUSED
from tests.hostile.files import (
    FLOATS,
    calls,
    state,
    tensor,
    weight,
    write_exported,
    write_legacy,
    write_torch,
    write_zip,
)


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_lies_is_refused_with_one_sentence_that_says_how(case: str, tmp_path: Path) -> None:
    write, reason = REFUSED[case]
    write(tmp_path / "hostile")
    with pytest.raises(CheckpointError, match=reason) as caught:
        read_checkpoint(tmp_path / "hostile")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(tmp_path)) + 400


@pytest.mark.parametrize("case", REFUSED)
def test_the_command_refuses_a_file_that_lies_with_exit_code_3(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    REFUSED[case][0](tmp_path / "hostile")
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(sys, "argv", ["conv2attn", "convert", str(tmp_path / "hostile"), "--out", str(tmp_path / "o")])
    with pytest.raises(SystemExit) as exited:
        main()
    assert exited.value.code == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("case", READ)
def test_a_file_that_is_odd_but_tells_the_truth_is_read(case: str, tmp_path: Path) -> None:
    READ[case](tmp_path / "odd")
    found = read_checkpoint(tmp_path / "odd").state_dict["w"]
    if "NaN" in case:
        assert non_finite_keys({"w": found}) == ["w"]
    else:
        assert torch.equal(found, torch.arange(6.0).reshape(2, 3))


PRECIOUS = "builtins.open", "os.system", "posix.system", "builtins.exec", "torch.load", "nt.system", "webbrowser.open"


@pytest.mark.parametrize("function", PRECIOUS)
@pytest.mark.parametrize("kind", ["zip", "legacy", "script", "checkpoint", "exported", "shard", "build"])
def test_no_pickle_in_any_kind_of_file_runs_anything(function: str, kind: str, tmp_path: Path) -> None:
    path, trace = tmp_path / "w", tmp_path / "trace"
    command = {"system": f"touch {trace}", "exec": f"open({str(trace)!r}, 'w')"}.get(
        function.rpartition(".")[2], str(trace)
    )
    call = calls(function, command)
    pickled = state({"a": call, "w": tensor()})
    if kind == "zip":
        write_torch(path, pickled)
    elif kind == "legacy":
        write_legacy(path, pickled)
    elif kind == "script":
        write_zip(path, {"data.pkl": pickled, "data/0": FLOATS, "constants.pkl": b"\x80\x02" + call + b"."})
    elif kind == "checkpoint":
        write_torch(path, state({"hyper_parameters": call, "state_dict": state({"w": tensor(), "x": call})[2:-1]}))
    elif kind == "exported":
        write_exported(path, {"config": {"w": weight(use_pickle=True)}})
    elif kind == "build":  # the state of an object whose class has a __setstate__ that runs
        write_torch(path, state({"a": b"cbuiltins\nobject\n)\x81" + call + b"b", "w": tensor()}))
    else:
        write_torch(tmp_path / "part.bin", pickled)
        path.write_text('{"weight_map": {"w": "part.bin"}}')
    module = function.rpartition(".")[0]
    before = module in sys.modules
    if kind == "exported":
        with pytest.raises(CheckpointError):
            read_checkpoint(path)
    else:
        assert torch.equal(read_checkpoint(path).state_dict["w"], torch.arange(6.0).reshape(2, 3))
    assert not trace.exists()
    assert (module in sys.modules) == before  # not even imported
