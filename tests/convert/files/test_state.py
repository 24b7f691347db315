"""What a state dict tells: which layers are attention, what their entries are, and which keys are whose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import ConvSpec, attention_from_conv, convert_model
from conv2attn.convert.attention.layer import SelfAttention
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files import state as states
from conv2attn.convert.files.entry import LayerEntry
from conv2attn.convert.files.state import (
    ATTENTION_KEYS,
    holds_attention,
    keys_when_converted,
    layer_entries,
    only_layers,
    under_middle_tap,
    without_attention,
)

SIGNS = ("weight", "alpha", "centers")


def network() -> nn.Sequential:
    shared = nn.Conv2d(2, 2, (3, 2))
    return nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), shared, nn.Sequential(nn.Linear(1, 1), shared))


def changed(conv: nn.Module, *, keys: int | None = None, gated: bool = False, tables: tuple[int, ...] = ()) -> Any:
    """The state dict of a convolution's attention with content or learned tables."""
    layer = attention_from_conv(conv)  # type: ignore[call-overload]
    if keys is not None:
        layer.add_content(keys, gated=gated)
    if tables:
        layer.set_axis_scores(*(torch.randn(layer.num_heads, offsets) for offsets in tables))
    return layer.state_dict()


def test_every_key_of_an_attention_layer_is_its_convolution_s_or_listed() -> None:
    conv = nn.Conv2d(2, 2, 3, padding=1)
    every = [changed(conv, keys=2), changed(conv, keys=2, gated=True), changed(conv, tables=(5, 5))]
    assert {key for state in every for key in state} == {"weight", "bias", *ATTENTION_KEYS}
    assert changed(nn.Conv1d(2, 2, 3), tables=(5,)).keys() <= {"weight", "bias", *ATTENTION_KEYS}


@pytest.mark.parametrize("name", ["", "a", "a.b"])
def test_a_layer_is_attention_if_its_weight_its_alpha_and_its_centers_are_there(name: str) -> None:
    def of(*keys: str) -> dict[str, Tensor]:
        return {f"{name}.{key}".removeprefix("."): torch.zeros(1) for key in keys}

    assert holds_attention(of(*SIGNS))
    assert holds_attention(of("bias", *SIGNS, "other"))
    assert holds_attention(of("x.centers") | of(*SIGNS))
    for missing in SIGNS:
        assert not holds_attention(of(*(sign for sign in SIGNS if sign != missing)))
    assert not holds_attention(of("weight", "alpha", "xcenters"))
    assert not holds_attention(of("weight", "alpha") | {"other.centers": torch.zeros(1)})
    assert not holds_attention({})


def test_the_keys_of_a_network_are_its_own_and_those_its_layers_can_get() -> None:
    cnn = network()
    own = {f"{name}.{key}" for name in ("0", "2", "3.1") for key in ATTENTION_KEYS}
    assert keys_when_converted(cnn) == cnn.state_dict().keys() | own
    assert keys_when_converted(nn.Conv1d(1, 1, 1)) == {"weight", "bias", *ATTENTION_KEYS}
    assert keys_when_converted(nn.Linear(1, 1)) == {"weight", "bias"}


def test_entries_are_those_of_a_converted_network_where_the_state_is_attention() -> None:
    cnn = network()
    converted = convert_model(network()).model.state_dict()
    for names in (("0",), ("2", "3.1")):
        part = {key: value for key, value in converted.items() if key.split(".")[0] in [name[0] for name in names]}
        (entry,) = layer_entries(cnn, part)
        layer = cnn.get_submodule(names[0])
        assert entry == LayerEntry(names, ConvSpec.from_conv(layer).to_json(), "auto", None, None)  # type: ignore[arg-type]
    assert [entry.names for entry in layer_entries(cnn, converted)] == [("0",), ("2", "3.1")]
    first = {key: value for key, value in converted.items() if not key.startswith("3.1.")}
    assert layer_entries(cnn, first) == layer_entries(cnn, converted)
    assert layer_entries(cnn, cnn.state_dict()) == ()
    alone = nn.Conv2d(1, 1, 3)
    assert [entry.names for entry in layer_entries(alone, attention_from_conv(alone).state_dict())] == [("",)]


@pytest.mark.parametrize("name", ["", "0"])
def test_an_entry_tells_content_and_tables(name: str) -> None:
    def entry(conv: nn.Module, state: dict[str, Tensor], **other: Tensor) -> LayerEntry:
        network = nn.Sequential(conv) if name else conv
        (found,) = layer_entries(network, {f"{name}.{key}".removeprefix("."): v for key, v in (state | other).items()})
        return found

    image, text, volume = nn.Conv2d(3, 2, 3, padding=1), nn.Conv1d(3, 2, 3), nn.Conv3d(3, 2, 2)
    for conv in (image, text):
        plain, soft = entry(conv, changed(conv)), entry(conv, changed(conv, keys=2))
        gated = entry(conv, changed(conv, keys=4, gated=True))
        assert (plain.content_key_dim, plain.content_gated, plain.axis_offsets) == (None, False, None)
        assert (soft.content_key_dim, soft.content_gated, soft.axis_offsets) == (2, False, None)
        assert (gated.content_key_dim, gated.content_gated, gated.axis_offsets) == (4, True, None)
    assert entry(image, changed(image, tables=(5, 7))).axis_offsets == (5, 7)
    assert entry(text, changed(text, tables=(9,))).axis_offsets == (9,)
    rows, columns = "axis_scores.rows", "axis_scores.columns"
    assert entry(text, changed(text), **{columns: torch.zeros(3, 4)}).axis_offsets == (4,)
    assert entry(image, changed(image), **{columns: torch.zeros(9, 4)}).axis_offsets is None
    assert entry(image, changed(image), **{rows: torch.zeros(9), columns: torch.zeros(9, 4)}).axis_offsets is None
    assert entry(image, changed(image), **{rows: torch.zeros(9, 4, 1), columns: torch.zeros(9, 4)}).axis_offsets is None
    assert entry(volume, changed(volume)).axis_offsets is None
    for odd in (torch.zeros(2), torch.zeros(2, 3), torch.zeros(2, 3, 4, 5)):
        assert entry(image, changed(image), **{"content.key_weight": odd}).content_key_dim is None


def test_keys_are_a_layer_s_convolution_s_or_neither_s() -> None:
    spec = ConvSpec(1, 1, kernel_size=(1, 1)).to_json()
    entries = (LayerEntry(("", "a"), spec, "auto", None, None), LayerEntry(("b.c",), spec, "auto", None, None))
    value = torch.zeros(1)
    own = {f"{name}.{key}".removeprefix("."): value for name in ("", "a", "b.c") for key in ATTENTION_KEYS}
    conv = {f"{name}.{key}".removeprefix("."): value for name in ("", "a", "b.c") for key in ("weight", "bias")}
    others = {"b.weight": value, "b.alpha": value, "c.centers": value, "a.running_mean": value}
    assert without_attention({**own, **conv, **others}, entries) == {**conv, **others}
    assert only_layers({**own, **conv, **others}, entries) == {**own, **conv}
    assert list(only_layers({"a.bias": value, "alpha": value}, entries)) == ["a.bias", "alpha"]
    assert without_attention(own, ()) == own
    assert only_layers(own, ()) == {}


SPEC = ConvSpec(1, 1, kernel_size=(3, 1), dilation=(2, 1))
OLD, NEW = [[0, 0], [2, 0], [4, 0]], [[-2, 0], [0, 0], [2, 0]]


def migrated(spec: ConvSpec, names: tuple[str, ...], state: dict[str, Tensor]) -> dict[str, Tensor]:
    return under_middle_tap(state, (LayerEntry(names, spec.to_json(), "auto", None, None),))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_centres_counted_from_the_first_tap_are_counted_from_the_middle_one_under_every_name(
    dtype: torch.dtype,
) -> None:
    old = torch.tensor(OLD, dtype=dtype)
    given = {"a.centers": old, "b.centers": old.clone(), "c.centers": old}
    found = migrated(SPEC, ("a", "b"), given)
    assert found["a.centers"].tolist() == found["b.centers"].tolist() == NEW
    assert found["c.centers"] is old
    assert given["a.centers"] is old
    assert migrated(SPEC, ("",), {"centers": old})["centers"].tolist() == NEW


def test_a_layer_is_described_by_its_first_name() -> None:
    told = {"content.key_weight": torch.zeros(6, 4, 2), "content.gate": torch.zeros(6)}
    told |= {f"axis_scores.{axis}": torch.zeros(6, 5) for axis in ("rows", "columns")}
    conv = nn.Conv2d(2, 2, (3, 2))
    state = {f"0.{key}": value for key, value in (attention_from_conv(conv).state_dict() | told).items()}
    (entry,) = layer_entries(nn.Sequential(conv, conv), state)
    assert (entry.content_key_dim, entry.content_gated, entry.axis_offsets) == (4, True, (5, 5))
    assert migrated(SPEC, ("a", "b"), {"a.centers": torch.tensor(OLD).float()})["a.centers"].tolist() == NEW


@pytest.mark.parametrize("centers", [NEW, [[0, 0], [2, 0], [4, 1]], [[0, 0], [2, 0]], [[0], [2], [4]], []])
def test_other_centres_are_read_as_they_are(centers: Any) -> None:
    given = torch.tensor(centers, dtype=torch.float32)
    assert migrated(SPEC, ("a",), {"a.centers": given})["a.centers"] is given


def test_only_layers_of_two_axes_are_of_an_earlier_version() -> None:
    """And those whose first tap is not their middle one."""
    content = torch.ones(2, 3)
    for spec in (
        ConvSpec(1, 1, kernel_size=(3,)),
        ConvSpec(1, 1, kernel_size=(3, 1, 1)),
        ConvSpec(1, 1, kernel_size=(2, 2)),
    ):
        first = torch.tensor(spec.tap_offsets) + torch.tensor(spec.middle)
        given = {"a.centers": first.float(), "a.content.query_weight": content, "a.alpha": torch.ones(1).half()}
        found = migrated(spec, ("a",), given)
        assert all(found[key] is value for key, value in given.items())
    with pytest.raises(CheckpointError, match="was trained with content terms by an earlier version"):
        migrated(SPEC, ("a",), {"a.centers": torch.tensor(OLD).float(), "a.content.query_weight": content})


def test_subclasses_of_convolutions_are_described_by_their_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ConvSpec(1, 1, kernel_size=(1, 1), padding=((1, 2), (3, 4)))
    monkeypatch.setattr(states, "geometry", lambda _: spec)
    conv = nn.Conv2d(1, 1, 1)
    layer = attention_from_conv(conv)
    assert isinstance(layer, SelfAttention)
    (entry,) = layer_entries(conv, layer.state_dict())
    assert entry.spec == spec.to_json()
