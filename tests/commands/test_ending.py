"""An error is told as whose it is; a signal ends a command as an error does."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from conv2attn.commands.ending import (
    BUG,
    INTERRUPTED,
    WRONG_INPUT,
    InterruptedRunError,
    ended_by_signals,
    explain,
)
from conv2attn.convert import plain
from conv2attn.convert.inputs import call_with
from conv2attn.proofs.campaign.results import LEGEND, Settings
from conv2attn.proofs.campaign.run import run_campaign
from tests.command import Run, result_of
from tests.processes import PATIENCE, next_line, started


@pytest.fixture(autouse=True)
def _pytest_goes_on() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_ends_a_command_with_its_number() -> None:
    with ended_by_signals():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert explain(InterruptedRunError(), ["convert"]) == 128 + signal.SIGTERM
    assert explain(InterruptedRunError(), ["convert"]) == INTERRUPTED


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


STARTS = "import conv2attn.__main__ as start; print('started', flush=True); start.{}()"


@pytest.mark.slow
@pytest.mark.parametrize(("program", "arguments"), [("main", ("plan", "a.pt")), ("main_same", ("a.pt", "a.pt"))])
def test_an_interrupt_at_any_moment_of_the_start_is_one_sentence(
    program: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    torch.save(nn.Sequential(nn.Conv2d(3, 2, 3)), tmp_path / "a.pt")
    for moment in (0.02, 0.3, 0.5, 0.7, 1.0, 1.4, 1.9):  # while modules of ours, numpy and torch are imported
        with started([sys.executable, "-c", STARTS.format(program), *arguments], cwd=tmp_path) as process:
            assert next_line(process) == "started\n"
            time.sleep(moment)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
        if process.returncode:  # else it was quicker
            assert (process.returncode, out, err.count("\n"), "interrupted; " in err) == (130, "", 1, True), err


def test_an_interrupt_while_torch_is_imported_ends_the_program_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class EndedError(Exception):
        """The process has ended."""

    def end(code: int) -> None:
        raise EndedError(code)

    monkeypatch.setattr(torch.__spec__, "_initializing", True, raising=False)
    monkeypatch.setattr("os._exit", end)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
    try:
        with ended_by_signals(["plan", "a.pt"]), pytest.raises(EndedError, match="130"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "conv2attn: interrupted; nothing was done\n"


class Asserting(nn.Module):
    """A network of the user's."""

    def forward(self, x: Tensor) -> Tensor:
        """Takes no image of other than 32x32 pixels."""
        assert x.shape[-1] == 32, "Input size doesn't match\nat all"
        return x


def outdated() -> nn.Module:
    """A pickled activation that lacks what a newer PyTorch gives it."""
    net = nn.Sequential(nn.GELU())
    del net[0].approximate
    return net


IMAGE = torch.zeros(1, 3, 8, 8)


def test_an_error_of_the_user_s_network_is_the_input_s(capsys: pytest.CaptureFixture[str]) -> None:
    for net, told in (
        (Asserting(), "AssertionError: Input size doesn't match"),
        (outdated(), "AttributeError: 'GELU'"),
    ):
        with pytest.raises((AssertionError, AttributeError)) as caught:
            call_with(net, IMAGE)
        assert explain(caught.value) == WRONG_INPUT
        assert capsys.readouterr().err.startswith(f"conv2attn: the network does not run: {told}")


def test_an_error_of_ours_is_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TypeError) as caught:
        plain.json_text({1: object()}, default=None)
    assert explain(caught.value) == BUG
    assert "internal error: TypeError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["verify", "att", "--trust"], "nothing was checked"),
        (["convert", "weights.pth"], "nothing was written"),
        (["graft", "weights.pth"], "nothing was written"),
        (["graft", "--data", "digits", "--out", "not/there"], "nothing was written"),
        (["graft", "--data", "digits", "--out=."], ". has what was trained so far, and --resume continues it"),
        (["learn", "-o", "."], ". has what was trained so far, and --resume continues it"),
        (["learn"], "nothing was written"),
        (["prove"], "only what is printed above was decided"),
    ],
)
def test_an_interrupt_says_what_there_is_now(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert explain(InterruptedRunError(), arguments) == INTERRUPTED == 130
    assert capsys.readouterr() == ("", f"conv2attn: interrupted; {told}\n")


def test_an_interrupt_in_a_command_is_said_and_not_swallowed_by_typer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("conv2attn.commands.prove.list_claims", interrupted)
    assert run("claims") == (130, "", "conv2attn: interrupted; nothing was done\n")
    found = run("claims", "--json")
    assert (found.code, found.err, json.loads(found.out)["exit_code"]) == (130, "", 130)


def test_a_campaign_that_a_cluster_ends_has_its_result_and_the_signal_s_code(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conv2attn.proofs.campaign.run.check_block", lambda *_: signal.raise_signal(signal.SIGTERM))
    found = run("soak", "--layers", "3", "--out", "result.json")
    assert (found.code, found.err) == (143, "")
    assert result_of("soak", Path("result.json").read_text())["campaign"]["stopped"] == "interrupted"


def test_a_campaign_that_was_interrupted_at_once_reports_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("conv2attn.proofs.campaign.run.check_block", interrupted)
    found = run_campaign(Settings(), layers=3, workers=0)
    assert (found.exit_code, found.shown()[-1]) == (130, "Nothing was checked (interrupted).")
    assert LEGEND not in found.shown()  # it explains a table that is not there


def test_without_arguments_the_help_is_printed(run: Run) -> None:
    assert run() == run("--help")
    assert run().code == 0
    assert {"Usage:", "convert", "plan", "demo"} <= set(run().out.split())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["claims", "soak --layers 8 --json"])
def test_a_reader_that_has_enough_ends_a_command_quietly(command: str) -> None:
    with started([sys.executable, "-m", "conv2attn", *command.split()]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait(PATIENCE)) == ("", 141)
