"""What a file tells of a batch normalisation that was folded into weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import StringStringEntryProto

from conv2attn.convert.files.readers.common.stored import Source
from conv2attn.convert.files.readers.onnx.folding import COMPUTED, FOLDED, OPEN, folding_note
from conv2attn.convert.files.readers.onnx.nodes import Node
from conv2attn.convert.files.readers.onnx.protobuf import Message

RULES = "pkg.onnxscript.rewriter.rule_name"
Entry = tuple[str | None, str | None]


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., Node]:
    """A node with entries of metadata."""

    def describe(*entries: Entry) -> Node:
        metadata = []
        for number, (key, value) in enumerate(entries):
            path = tmp_path / str(number)
            path.write_bytes(StringStringEntryProto(key=key, value=value).SerializeToString())
            metadata.append(Message(Source(path), 0, path.stat().st_size))
        return Node(operator="Conv", metadata=metadata)

    return describe


@pytest.mark.parametrize(
    ("entries", "note"),
    [
        ([(RULES, "FuseBatchNormIntoConv")], FOLDED),
        ([(RULES, "CastCast, FuseBatchNormIntoConv")], FOLDED),
        ([(RULES, "CastCast"), (RULES, "FuseBatchNormIntoConv")], FOLDED),
        ([(RULES, "FuseBatchNormIntoConv"), ("pkg.torch.onnx.stack_trace", "line 3")], FOLDED),
        ([(RULES, "CastCast")], None),
        ([("pkg.torch.onnx.stack_trace", "FuseBatchNormIntoConv")], None),
        ([("pkg.torch.onnx.stack_trace", None)], None),
        ([(RULES, None)], COMPUTED),
        ([(None, "FuseBatchNormIntoConv")], COMPUTED),
        ([("pkg.torch", "FuseBatchNormIntoConv")], COMPUTED),
        ([], COMPUTED),
    ],
)
def test_a_record_of_torch_s_exporter_decides_and_other_metadata_says_nothing(
    entries: list[Entry], note: str | None, node: Callable[..., Node]
) -> None:
    assert folding_note(node(*entries), "onnx::Conv_7", has_bias=True, normalised=False) == note


@pytest.mark.parametrize("name", ["onnx::Conv_12", "_v_3"])
def test_weights_named_as_what_is_computed_were_computed(name: str, node: Callable[..., Node]) -> None:
    for has_bias in (False, True):
        for normalised in (False, True):
            assert folding_note(node(), name, has_bias=has_bias, normalised=normalised) == COMPUTED


@pytest.mark.parametrize("name", ["layer.weight", "my_onnx::Conv", "_v_3_weight"])
def test_otherwise_it_is_open_if_there_is_a_bias_and_no_batch_normalisation_is_left(
    name: str, node: Callable[..., Node]
) -> None:
    notes = [
        folding_note(node(), name, has_bias=has_bias, normalised=normalised)
        for has_bias, normalised in ((False, False), (False, True), (True, False), (True, True))
    ]
    assert notes == [None, None, OPEN, None]
