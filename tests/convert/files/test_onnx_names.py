"""Nodes' names become names that modules can have, and what the file calls them is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import NodeProto, helper, numpy_helper

from conv2attn.convert import ConvSpec, save_converted
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.layers import layer_tree
from conv2attn.convert.files.open import open_network
from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from conv2attn.convert.files.readers.common.limits import Budget
from conv2attn.convert.files.readers.onnx.naming import layer_names
from conv2attn.convert.model.convert import convert_model

NAMES = {
    "/layer1/layer1.0/conv1/Conv": "layer1.0.conv1",
    "/features/features.0/features.0.0/Conv": "features.0.0",
    "/a/b/Conv_1": "a.b.Conv_1",
    "features.3.conv": "features.3.conv",
    "resnet50/conv1_conv/Conv2D": "resnet50.conv1_conv",
    "a/conv2d_1/Conv2D__12": "a.conv2d_1",
    "a/conv1d;b/conv1d": "a.conv1d",
    "Conv@1": "Conv_1",
    "Conv_7": "Conv_7",
    "a..b/": "a.b",
    "training/forward": "training_.forward_",
    "Conv": "Conv",
    "::": "_",
    "": "layer",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_becomes_that_of_the_module_which_it_tells_of(name: str) -> None:
    assert layer_names([name, "other"], Budget())[name] == NAMES[name]


def test_names_that_would_be_one_or_lie_within_one_another_are_joined_and_numbered() -> None:
    names = ["a/b/Conv", "a.b", "a", "a/b/c", "a_b", "/a/b"]
    assert list(layer_names(names, Budget()).values()) == ["a.b", "a_b", "a_2", "a_b_c", "a_b_2", "a_b_3"]


PIECES = st.sampled_from(["a", "b", "Conv", "conv", ".", "/", "..", "a.b", "Conv_1", "forward", "", ";", ":", "_2"])


@given(st.lists(st.lists(PIECES, max_size=6).map("".join) | st.text(max_size=8), unique=True, max_size=12))
@example(["/".join("abc") * 70, "." * 300, "a" * 200])
def test_whatever_nodes_are_called_their_layers_can_all_be_modules(names: list[str]) -> None:
    found = layer_names(names, Budget())
    assert list(found) == names
    spec, weight = ConvSpec(1, 1, (1, 1), bias=False), torch.ones(1, 1, 1, 1)
    convolutions = {found[name]: StoredConvolution(f"w{number}", None, spec) for number, name in enumerate(names)}
    assert len(convolutions) == len(names)
    tree = layer_tree(convolutions, {f"w{number}": weight.clone() for number in range(len(names))})
    assert len([name for name in convolutions if tree.get_submodule(name)]) == len(names)


def test_names_that_take_too_much_memory_are_refused() -> None:
    names = [f"m{number}" + ".a" * 60 for number in range(20_000)]
    with pytest.raises(CheckpointError, match="more memory"):
        layer_names(names, Budget())


def conv(name: str) -> NodeProto:
    return helper.make_node("Conv", ["x", "w"], [f"y{name}"], name, strides=[1, 1 + len(name) % 7])


def test_what_the_file_calls_a_layer_is_kept_in_the_report(tmp_path: Path) -> None:
    long = "StatefulPartitionedCall/" + "very_long_scope_name/" * 9 + "Conv2D"
    tensors = [numpy_helper.from_array(np.ones((2, 3, 1, 1), np.float32), "w")]
    proto = helper.make_model(helper.make_graph([conv("/a/Conv"), conv("plain"), conv(long)], "g", [], [], tensors))
    (tmp_path / "m").write_bytes(proto.SerializeToString())
    network = open_network(tmp_path / "m")
    assert network.originals.keys() == {"a", long.replace("/", ".").removesuffix(".Conv2D")}
    model, report = convert_model(network.model)
    save_converted(model, tmp_path / "out", report=report.noted(network.notes, network.originals))
    kept = json.loads((tmp_path / "out" / "report.json").read_text())["layers"]
    assert [layer["original"] for layer in kept] == ["/a/Conv", None, long]
