"""A config.json says exactly what it says: every value of another kind is refused, and every layer is held to it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from conv2attn.convert import attention_from_conv
from conv2attn.convert.attention.layer import SelfAttention
from conv2attn.convert.errors import CheckpointError, GeometryError
from conv2attn.convert.files.architecture import Architecture
from conv2attn.convert.files.checkpoint import Checkpoint
from conv2attn.convert.files.config import (
    FORMAT_VERSION,
    OWN_ARCHITECTURES,
    Config,
    LayerEntry,
    attention_named,
    is_converted,
    read_config,
)
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.spec import ConvSpec

SPEC = ConvSpec(2, 3, kernel_size=(3, 2))
PLAIN: dict[str, Any] = {
    "names": ["a"],
    "spec": SPEC.to_json(),
    "engine": "auto",
    "content_key_dim": None,
    "axis_offsets": None,
}


def entry(**changed: Any) -> LayerEntry:
    return LayerEntry(**PLAIN | changed)


def layer_of(spec: ConvSpec = SPEC) -> SelfAttention:
    return SelfAttention(spec)


def test_a_layer_has_no_more_than_is_said_of_it() -> None:
    found = entry()
    assert (found.alpha_follows_dtype, found.kind, found.content_gated) == (True, None, False)


@pytest.mark.parametrize(
    "changed",
    [
        *[{"names": names} for names in ([], (), "a", {"a": 1}, None, [1], ["a", None])],
        *[{"spec": wrong} for wrong in (None, 3, "a")],
        *[{"engine": engine} for engine in (None, 1, ["auto"])],
        *[{"content_key_dim": dimension} for dimension in ("3", 3.0, [3])],
        *[{"axis_offsets": wrong} for wrong in (3, "3", True)],
        *[{"alpha_follows_dtype": value} for value in (1, None, "true")],
        *[{"content_gated": value} for value in (1, None, "true")],
        *[{"kind": kind} for kind in (1, ["a"])],
    ],
)
def test_a_value_of_another_kind_is_refused(changed: dict[str, Any]) -> None:
    told = "a layer is names, a geometry, an engine and dimensions or null; got LayerEntry("
    with pytest.raises(TypeError, match=re.escape(told)):
        entry(**changed)


def test_a_geometry_that_no_convolution_has_is_refused() -> None:
    with pytest.raises(GeometryError):
        entry(spec=SPEC.to_json() | {"stride": [0, 1]})


def test_an_entry_describes_its_layer() -> None:
    layer = attention_from_conv(nn.Conv2d(2, 3, (3, 2)))
    plain = LayerEntry.of(("a", "b"), layer)
    assert plain == LayerEntry(("a", "b"), layer.spec.to_json(), "auto", None, None)
    assert plain.to_json() == {
        "names": ("a", "b"),
        "spec": layer.spec.to_json(),
        "engine": "auto",
        "content_key_dim": None,
        "axis_offsets": None,
        "alpha_follows_dtype": True,
    }
    layer.add_content(5)
    assert LayerEntry.of(("a",), layer).content_key_dim == 5
    assert not LayerEntry.of(("a",), layer).content_gated
    gated = attention_from_conv(nn.Conv2d(2, 3, (3, 2)), alpha=2.0)
    gated.add_content(4, gated=True)
    gated.set_axis_scores(torch.zeros(6, 9), torch.zeros(6, 7))
    gated.engine, gated.alpha_follows_dtype = "literal", False
    found = LayerEntry.of(("a",), gated)
    assert (found.content_key_dim, found.content_gated, found.axis_offsets) == (4, True, (9, 7))
    assert (found.engine, found.alpha_follows_dtype) == ("literal", False)
    assert found.to_json()["content_gated"] is True
    assert entry(kind="Own").to_json()["kind"] == "Own"


@pytest.mark.parametrize(("name", "keys"), [("", ("weight", "bias")), ("a", ("a.weight", "a.bias"))])
def test_a_layer_is_stored_under_its_name(name: str, keys: tuple[str, str]) -> None:
    weight, bias = torch.zeros(3, 2, 3, 2), torch.zeros(3)
    for state, has_bias in ((dict(zip(keys, (weight, bias), strict=True)), True), ({keys[0]: weight}, False)):
        stored = entry().stored(name, Checkpoint(Path("x"), state, ""))
        assert (stored.weight, stored.bias, stored.spec) == (keys[0], keys[1] if has_bias else None, SPEC)


def test_a_layer_becomes_what_its_entry_says() -> None:
    plain = layer_of()
    entry(engine="literal", alpha_follows_dtype=False).configure(plain, {})
    assert (plain.engine, plain.alpha_follows_dtype) == ("literal", False)
    assert (plain.content, plain.axis_scores) == (None, None)
    for names, prefix in ((["a", "b"], "a."), ([""], "")):
        layer = layer_of()
        saved = {
            f"{prefix}content.key_weight": torch.ones(6, 4, 2),
            f"{prefix}axis_scores.rows": torch.ones(6, 9),
            f"{prefix}axis_scores.columns": torch.ones(6, 7),
        }
        entry(names=names, content_key_dim=4, content_gated=True, axis_offsets=[9, 7]).configure(layer, saved)
        assert layer.content is not None
        assert layer.content.gate is not None
        assert layer.content.key_weight.shape == (6, 4, 2)
        assert layer.axis_scores is not None
        assert [table.shape for table in layer.axis_scores.tables] == [(6, 9), (6, 7)]
    ungated = layer_of()
    entry(content_key_dim=4).configure(ungated, {"a.content.key_weight": torch.ones(6, 4, 2)})
    assert ungated.content is not None
    assert ungated.content.gate is None


def test_a_layer_that_its_entry_does_not_describe_is_refused() -> None:
    other = ConvSpec(2, 3, kernel_size=(2, 3))
    with pytest.raises(
        CheckpointError, match=re.escape(f"layer a is {PLAIN['spec']}, in the architecture {other.to_json()}")
    ):
        entry().configure(layer_of(other), {})
    with pytest.raises(
        CheckpointError, match=r"^layer a was of Own, in the architecture it is of PyTorch's own class$"
    ):
        entry(kind="Own").configure(layer_of(), {})
    for weight in (None, torch.ones(6, 5, 2), torch.ones(5, 4, 2), torch.ones(6, 4, 3), torch.ones(6, 8)):
        saved = {} if weight is None else {"a.content.key_weight": weight}
        with pytest.raises(CheckpointError, match=r"^layer a has no content terms of dimension 4$"):
            entry(content_key_dim=4).configure(layer_of(), saved)
    rows, columns = torch.ones(6, 9), torch.ones(6, 7)
    for tables in (
        (rows, None),
        (None, columns),
        (columns, rows),
        (rows, torch.tensor(7.0)),
        (torch.ones(6, 8), columns),
        (torch.ones(6, 10), columns),
    ):
        named = zip(("rows", "columns"), tables, strict=True)
        saved = {f"a.axis_scores.{axis}": table for axis, table in named if table is not None}
        with pytest.raises(CheckpointError, match=r"^layer a has no score tables of \[9, 7\] offsets$"):
            entry(axis_offsets=[9, 7]).configure(layer_of(), saved)


def test_tensors_are_listed_by_name_or_not_at_all() -> None:
    assert Config("network", None, ()).tensors is None
    for listed in ([], ["a"], ("a", "b")):
        assert Config("network", None, (), listed).tensors == listed
    for wrong in ("a", {"a": 1}, 3, [1], ["a", None]):
        with pytest.raises(TypeError, match="the tensors are no list of texts"):
            Config("network", None, (), wrong)  # type: ignore[arg-type]


def test_only_an_example_of_the_project_s_is_its_own_architecture() -> None:
    assert len(OWN_ARCHITECTURES) == 3
    for spec in OWN_ARCHITECTURES:
        own = Architecture(spec)
        assert Config("network", own, ()).own_architecture is own
    assert Config("network", Architecture("os:system"), ()).own_architecture is None
    assert Config("network", None, ()).own_architecture is None


# Files


GOOD: dict[str, Any] = {
    "format": "conv2attn",
    "format_version": FORMAT_VERSION,
    "content": "network",
    "architecture": None,
    "layers": [PLAIN],
}


def write(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(text)
    return folder


def test_a_folder_is_ours_if_its_config_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_converted(tmp_path)
    assert not is_converted(tmp_path / "nothing")
    assert is_converted(write(tmp_path / "ours", json.dumps(GOOD)))
    assert not is_converted(write(tmp_path / "other", '{"format": "other"}'))
    (tmp_path / "folder" / "config.json").mkdir(parents=True)
    assert not is_converted(tmp_path / "folder")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    ours = tmp_path / "ours"
    told = f"^{ours}/config.json, which says whether {ours} is a converted model, is not readable$"
    with pytest.raises(CheckpointError, match=told):
        is_converted(ours)

    def refuse(path: Path) -> bool:
        raise PermissionError

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(CheckpointError, match=f"^{ours} is not readable, or lies in a folder that is not$"):
        is_converted(ours)


def test_a_config_is_read_and_charged_for_its_layers(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", json.dumps(GOOD))
    version, config = read_config(folder)
    assert (version, config) == (FORMAT_VERSION, Config("network", None, (LayerEntry(**PLAIN),)))
    spent, heads = [], ConvSpec.from_json(PLAIN["spec"]).num_heads
    for count in (1, 3):
        budget = Budget()
        text = json.dumps(GOOD | {"layers": [PLAIN] * count}).ljust(5000)
        memory, steps = budget.memory, budget.steps
        read_config(write(folder, text), budget)
        parsed = 50 * sum(map(text.count, ",[{")) + 110 * text.count(":") + 20 * text.count(chr(34))  # as all JSON
        spent.append((memory - budget.memory - parsed, steps - budget.steps))
    assert spent[1][0] - spent[0][0] == 2 * (8000 + 250 * heads)
    assert spent[1][1] - spent[0][1] == 2 * (1000 + 4 * heads)


def test_a_version_that_says_no_content_holds_a_network(tmp_path: Path) -> None:
    old = {key: value for key, value in GOOD.items() if key != "content"}
    version, config = read_config(write(tmp_path / "x", json.dumps(old | {"format_version": 1})))
    assert (version, config.content) == (1, "network")
    with pytest.raises(CheckpointError, match="is malformed: 'content'"):
        read_config(write(tmp_path / "x", json.dumps(old | {"format_version": 2})))
    version, config = read_config(write(tmp_path / "x", json.dumps(GOOD | {"content": "layers", "format_version": 2})))
    assert (version, config.content) == (2, "layers")


LATER = f"has format version {FORMAT_VERSION + 1}, which needs "
REFUSED: list[tuple[Any, str]] = [
    ([1], "does not describe a model that conv2attn converted"),
    *[(GOOD | {"format": name}, "does not describe a model that conv2attn converted") for name in ("other", "a")],
    *[
        (
            GOOD | {"format_version": version},
            f"has the unknown format version {version!r}; versions are 1 to {FORMAT_VERSION}",
        )
        for version in (0, -1, "3", 3.0, True, None)
    ],
    (GOOD | {"format_version": FORMAT_VERSION + 1}, LATER + "a later conv2attn; conv2attn "),
    (GOOD | {"format_version": FORMAT_VERSION + 1, "versions": []}, LATER + "a later conv2attn; "),
    (GOOD | {"format_version": FORMAT_VERSION + 1, "versions": {"conv2attn": 1}}, LATER + "a later conv2attn; "),
    (GOOD | {"format_version": FORMAT_VERSION + 1, "versions": {"conv2attn": "9.1"}}, LATER + "conv2attn 9.1; "),
    (GOOD | {"content": "other"}, "is malformed: its content is 'other', not 'network' or 'layers'"),
    (GOOD | {"layers": []}, "is malformed: it lists no attention layer"),
    (GOOD | {"layers": 3}, "is malformed: "),
    (GOOD | {"layers": [PLAIN | {"spec": {}}]}, "is malformed: "),
    (GOOD | {"architecture": {"spec": 3}}, "is malformed: "),
    (GOOD | {"tensors": "a"}, "is malformed: the tensors are no list of texts"),
]


@pytest.mark.parametrize(("data", "told"), REFUSED)
def test_a_config_that_describes_no_converted_model_is_refused(data: Any, told: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "x", json.dumps(data))
    with pytest.raises(CheckpointError, match=re.escape(f"{folder}/config.json {told}")):
        read_config(folder)


def test_a_later_version_is_told_with_what_this_one_reads(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", json.dumps(GOOD | {"format_version": FORMAT_VERSION + 1}))
    with pytest.raises(CheckpointError, match=rf"; conv2attn \S+ reads up to {FORMAT_VERSION}$"):
        read_config(folder)


def test_a_config_that_cannot_be_read_makes_no_converted_model(tmp_path: Path) -> None:
    told = f"{tmp_path} is not a converted model: config.json cannot be read (No such file or directory)"
    with pytest.raises(CheckpointError, match=re.escape(told)):
        read_config(tmp_path)


def test_a_layer_is_found_by_name_and_nothing_else_is_taken_for_one() -> None:
    model = nn.Sequential(layer_of(), nn.ReLU())
    assert attention_named(model, "0") is model[0]
    with pytest.raises(CheckpointError, match=r"^1 is not a self-attention layer; got ReLU$"):
        attention_named(model, "1")
