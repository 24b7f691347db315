"""``same`` with recorded values as a side."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import conv2attn as c2a
from conv2attn.convert.errors import InputError
from conv2attn.convert.sameness.recorded import Recorded, record_values
from conv2attn.convert.sameness.same import same
from conv2attn.convert.sameness.verdict import THRESHOLD
from tests.convert.sameness.recordings import X, laid, network


def wrong() -> nn.Module:
    found = network()
    found[4].eps = 1e-2  # type: ignore[assignment]
    return found


def channels_last() -> nn.Module:
    """The same function, with other last digits."""
    return copy.deepcopy(network()).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def written(own: nn.Module, path: Path, change: Callable[[str, Tensor], tuple[str, Tensor] | None]) -> Path:
    """What another program records of a network: every tensor changed or, for None, left out."""
    kept = Recorded.open(record_values(own, X, path.with_suffix(".safetensors")))
    given = {"input_0": X, "output_0": kept.outputs[""]()}
    changed = (change(name, read()) for name, read in kept.values.items())
    np.savez(path, **{k: v.numpy() for k, v in {**given, **dict(one for one in changed if one)}.items()})  # type: ignore[arg-type]
    return path


WAYS: dict[str, Callable[[str, Tensor], tuple[str, Tensor] | None]] = {
    "as they are": lambda name, x: (name, x),
    "channels last": lambda name, x: (name, laid("channels last", x)),
    "renamed": lambda name, x: (f"/net/op_{10 - int(name)}", x),
    "renamed and channels last": lambda name, x: (f"t{10 - int(name)}", laid("channels last", x)),
    "missing layers": lambda name, x: (name, x) if name in "35" else None,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_recorded_run_of_the_same_network_is_rounding_and_of_a_wrong_one_names_the_stretch(
    way: str, tmp_path: Path
) -> None:
    honest = same(network(), written(channels_last(), tmp_path / "honest.npz", WAYS[way]))
    assert honest.verdict in ("rounding", "same bits")
    found = same(network(), written(wrong(), tmp_path / "wrong.npz", WAYS[way]))
    assert found.verdict == "not rounding"
    assert [one.name for one in found.where] == ["5" if way == "missing layers" else "4"]


def test_names_that_are_given_are_taken(tmp_path: Path) -> None:
    path = written(wrong(), tmp_path / "wrong.npz", lambda name, x: (f"x{name}", x) if name in "34" else None)
    found = same(network(), path, names={"x3": "3", "x4": "4"})
    assert [one.name for one in found.where] == ["4"]


def test_inputs_that_are_given_go_before_those_that_are_recorded_and_without_any_is_refused(tmp_path: Path) -> None:
    path = record_values(network(), X, tmp_path / "own.safetensors")
    assert same(network(), path).verdict == "same bits"
    assert same(path, network()).verdict == "same bits"
    assert same(network(), path, X + 1).verdict == "not rounding"
    np.savez(tmp_path / "bare.npz", output_0=network()(X).detach().numpy())
    with pytest.raises(InputError, match="holds no inputs"):
        same(network(), tmp_path / "bare.npz")
    assert same(network(), tmp_path / "bare.npz", X).verdict in ("rounding", "same bits")


@pytest.mark.parametrize("is_wrong", [False, True])
def test_values_recorded_in_bfloat16_are_held_to_bfloat16(is_wrong: bool, tmp_path: Path) -> None:
    other = (wrong() if is_wrong else network()).bfloat16()
    if is_wrong:
        other[4].eps = 1.0  # type: ignore[index]
    path = c2a.record_values(other, X.bfloat16(), tmp_path / "half.safetensors")
    found = same(network(), path)
    assert found.verdict == ("not rounding" if is_wrong else "rounding")


@pytest.mark.fault
@pytest.mark.parametrize(("eps", "verdict", "where"), [(1e-5, "rounding", []), (1e-2, "not rounding", ["1"])])
def test_a_recorded_value_that_a_later_norm_hides_is_named(
    eps: float, verdict: str, where: list[str], tmp_path: Path
) -> None:
    own = nn.Sequential(nn.LayerNorm(64), nn.LayerNorm(64), nn.LayerNorm(64)).eval()
    values = {"input": torch.randn(8, 64)}
    y = values["input"].double()
    for name, layer in copy.deepcopy(own).double().named_children():
        layer.eps = eps if name == "1" else layer.eps  # type: ignore[assignment]
        y = layer(y).detach()
        values[name] = y.float()
    np.savez(tmp_path / "b.npz", output=y.float().numpy(), **{name: one.numpy() for name, one in values.items()})  # type: ignore[arg-type]
    found = same(own, tmp_path / "b.npz")
    assert (found.verdict, [one.name for one in found.where]) == (verdict, where)
    assert found.ratio < THRESHOLD


def test_a_recorded_value_that_nothing_was_computed_with_is_told_and_no_fault(tmp_path: Path) -> None:
    def change(name: str, x: Tensor) -> tuple[str, Tensor]:
        return name, x.relu() if name == "3" else x  # as where a runtime computes the next function in place

    found = same(network(), written(channels_last(), tmp_path / "b.npz", change))
    assert (found.verdict, found.where) == ("rounding", ())
    assert any("`3`" in note for note in found.notes)
