"""An error is told as whose it is; a signal ends a command as an error does."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from conv2attn.commands.ending import BUG, WRONG_INPUT, ended_by_signals, explain
from conv2attn.convert import plain
from conv2attn.convert.inputs import call_with


@pytest.fixture(autouse=True)
def _pytest_goes_on() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_signal_ends_a_command_with_its_number() -> None:
    with pytest.raises(SystemExit) as ended, ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


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
