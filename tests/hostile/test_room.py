"""A file of a hundred bytes makes no page, picture or certificate of gigabytes: what is too large is left out."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from conv2attn.cli import main
from conv2attn.convert import attention_from_conv, certify, convert_model
from conv2attn.convert.bounds import tail as tails
from conv2attn.convert.errors import ConversionError
from conv2attn.convert.files.report import ALONE
from conv2attn.convert.model.report import Report
from conv2attn.convert.size import Size
from conv2attn.convert.spec import ConvSpec
from conv2attn.proofs.show.page import room
from conv2attn.proofs.show.page.room import HEADS, Room, too_large
from conv2attn.proofs.show.page.write import make_page
from conv2attn.proofs.show.pictures.image import drawn_image
from tests.hostile.bombs import large_kernel
from tests.hostile.measuring import Measure, measuring

MEMORY = 2**29  # bytes beyond what the imports take; the old code took 8 to 19 GB
PAGE = 10**6

# Takes a folder and what the command line is given there; tells the exit code and all that was printed.
RUN = """
import contextlib, io, json, os, sys
from conv2attn import cli
from conv2attn.convert.files import network, save
from conv2attn.convert.model import convert
from conv2attn.proofs.show.page import write

def work(line):
    folder, *arguments = json.loads(line)
    os.chdir(folder)
    sys.argv, code = ["conv2attn", *arguments], None
    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
    return json.dumps([code, printed.getvalue()])
"""

TRANSPOSED = "strides between pixels"
FILES: dict[str, tuple[Sequence[int], dict[str, Any]]] = {
    "pads": ((1, 1, 1, 1), {"pads": [8192] * 4}),
    "more pads": ((1, 1, 1, 1), {"pads": [10**6] * 4}),
    "uneven pads": ((1, 1, 1, 1), {"pads": [0, 1, 2**31 - 1, 2**31 - 1]}),
    "automatic pads": ((1, 1, 2, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 3], "dilations": [2**24, 2**24]}),
    "dilation": ((1, 1, 2, 2), {"dilations": [16384, 16384]}),
    "outputs": ((10**6, 1, 1, 1), {}),
    "inputs": ((1, 10**6, 1, 1), {}),
    "heads": ((1, 1, 400, 400), {}),
    "heads of a row": ((1, 1, 200_000), {}),
    "pads of a volume": ((1, 1, 1, 1, 1), {"pads": [500] * 6}),
    TRANSPOSED: ((1, 1, 2, 2), {"strides": [30_000] * 2, "output_padding": [29_999] * 2}),
}


def write(name: str) -> None:
    """An ONNX file with one convolution."""
    shape, attributes = FILES[name]
    weight = np.ones(shape, np.float32)
    tensor = helper.make_tensor("w", TensorProto.FLOAT, shape, weight.tobytes(), raw=True)
    operator, channels = ("ConvTranspose", shape[0]) if name == TRANSPOSED else ("Conv", shape[1])
    node = helper.make_node(operator, ["x", "w"], ["y"], name="layer", **attributes)
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, *(None for _ in shape[2:])])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    onnx.save(helper.make_model(helper.make_graph([node], "graph", [image], [result], [tensor])), "model.onnx")


@pytest.fixture(scope="module")
def running() -> Iterator[Measure]:
    """Runs commands in processes of their own."""
    with measuring(RUN) as measure:
        yield measure


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("options", [(), ("--alpha", "2")])
@pytest.mark.parametrize("name", FILES)
def test_a_small_file_is_converted_in_little_memory_and_told_what_is_left_out(
    name: str, options: Sequence[str], running: Measure
) -> None:
    write(name)
    grown, _, ended = running(json.dumps([os.getcwd(), "convert", "model.onnx", "--out", "out", *options]))
    code, printed = json.loads(ended)
    assert code == 0, printed
    assert grown < MEMORY
    assert Path("out", "report.html").stat().st_size < PAGE
    note = json.loads(Path("out", "report.json").read_text())["layers"][0]["note"]
    assert "not drawn in the page: " in note
    assert note in printed
    page = Path("out", "report.html").read_text()
    assert "not drawn in the page" in page
    counts_alone = name in ("dilation", "automatic pads", "heads of a row") and bool(options)
    assert (ALONE in note) == (ALONE in page) == counts_alone


@pytest.mark.parametrize("command", [("plan",), ("convert", "--out", "out")])
def test_layers_that_share_one_large_kernel_are_not_made_one_by_one(command: Sequence[str], running: Measure) -> None:
    large_kernel(Path("model.onnx"))
    grown, _, ended = running(json.dumps([os.getcwd(), command[0], "model.onnx", *command[1:]]))
    code, printed = json.loads(ended)
    assert (code, "to read than any checkpoint of its size needs" in printed.replace("\n", " ")) == (3, True), printed
    assert grown < MEMORY


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (ConvSpec(1, 1, (1, 1), padding=(1024, 0)), Size(3, 2)),
        (ConvSpec(1, 1, (1, 1), padding=(512, 512)), Size(3, 2)),
        (ConvSpec(1, 1, (65, 64)), Size(70, 70)),
        (ConvSpec(2**20, 1, (1, 1)), Size(32, 33)),
        (ConvSpec(1, 2**20, (1, 1)), Size(32, 33)),
    ],
)
def test_what_is_too_large_is_told(spec: ConvSpec, size: Size) -> None:
    assert too_large(spec, size) is not None
    assert Room().take(spec, size) is not None


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        (ConvSpec(3, 64, (7, 7), stride=(2, 2), padding=(3, 3)), Size(224, 224)),
        (ConvSpec(64, 64, (3, 3), padding=(1, 1)), Size(512, 512)),
        (ConvSpec(2048, 512, (1, 1)), Size(56, 56)),
        (ConvSpec(1, 1, (64, 64)), Size(64, 64)),
    ],
)
def test_what_networks_have_is_drawn(spec: ConvSpec, size: Size) -> None:
    assert too_large(spec, size) is None
    assert Room().take(spec, size) is None


def test_layers_that_fill_the_page_are_left_out_and_later_small_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ALL_PIXELS", 1000)
    taken = Room()
    assert taken.take(ConvSpec(1, 1, (1, 1)), Size(30, 30)) is None
    assert taken.take(ConvSpec(1, 1, (1, 1)), Size(30, 30)) == "the layers before it fill the page"
    assert taken.take(ConvSpec(1, 1, (1, 1)), Size(10, 10)) is None
    assert taken.take(ConvSpec(1, 1, (1, 1)), Size(1, 1)) is not None


def test_a_page_names_what_it_leaves_out_and_counts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "ALL_PIXELS", 32 * 32 * 2)
    model = nn.Sequential(*(nn.Conv2d(1, 1, 1) for _ in range(3)))
    converted = convert_model(model).model
    page, left_out = make_page(converted, Report.of(converted), title="", image=torch.zeros(1, 1, 32, 32))
    assert left_out == {"2": "not drawn in the page: the layers before it fill the page"}
    assert page.count("the layers before it fill the page") >= 1
    assert "3 convolutions of this network" in page


def test_a_layer_that_cannot_be_drawn_keeps_no_other_from_being_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    good, odd = (TensorProto.FLOAT, (1, 1, 1, 1)), (TensorProto.FLOAT, (1, 10**6, 1, 1))
    tensors = [
        helper.make_tensor(name, *kind, bytes(4 * kind[1][1]), raw=True) for name, kind in (("a", odd), ("b", good))
    ]
    nodes = [helper.make_node("Conv", ["x", name], [f"y{name}"], name=f"layer {name}") for name in "ab"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "graph", [], [], tensors)), "model.onnx")

    def shown(*arguments: str) -> tuple[object, str]:
        monkeypatch.setattr(sys, "argv", ["conv2attn", "show", "model.onnx", *arguments])
        told = io.StringIO()
        with redirect_stderr(told), pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code, told.getvalue()

    assert shown("--out", "page.html") == (0, "")
    assert shown("--layer", "layer_b", "--out", "b.svg") == (0, "")
    for arguments in (
        ("--out", "all.svg"),
        ("--layer", "layer_a", "--out", "a.svg"),
        ("--layer", "layer_a", "--out", "a.html"),
    ):
        code, told = shown(*arguments)
        assert code == 3
        assert told.startswith("conv2attn: layer 'layer_a' cannot be drawn: ")


def test_a_picture_that_has_no_room_is_refused() -> None:
    with pytest.raises(ConversionError, match="too large to be drawn"):
        drawn_image(10**6)
    with pytest.raises(ConversionError, match="too large to be drawn"):
        drawn_image(1, Size(10**5, 10**5))


def test_a_tail_without_room_for_its_table_is_the_sum_over_the_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is larger, and holds as well."""
    layer = attention_from_conv(nn.Conv2d(4, 6, (3, 2), groups=2), alpha=2.0)
    sharp = certify(layer, input_range=(-1, 1))
    monkeypatch.setattr(tails, "_TABLE", 1)
    assert certify(layer, input_range=(-1, 1)).tail > sharp.tail


@pytest.mark.parametrize("entries", [156, 500, 2**22])  # one row of the table, three, and all
def test_the_tail_does_not_depend_on_how_many_channels_are_summed_at_once(
    entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = attention_from_conv(nn.Conv2d(4, 6, (3, 2), groups=2), alpha=2.0)
    whole = certify(layer, input_range=(-1, 1)).per_channel
    monkeypatch.setattr(tails, "_ENTRIES", entries)
    assert certify(layer, input_range=(-1, 1)).per_channel == pytest.approx(
        whole, rel=2**12 * 2.0**-53
    )  # each sums at most 2**10 terms


def test_there_are_kernels_with_more_heads_than_are_drawn() -> None:
    assert "heads" in str(too_large(ConvSpec(1, 1, (1, HEADS + 1)), Size(1, HEADS + 1)))
