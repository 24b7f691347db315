"""Which factor of a file the integers of a node are multiplied by."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.onnx.nodes import Node
from conv2attn.convert.files.readers.onnx.scales import Scales, for_channels
from conv2attn.convert.files.readers.onnx.scopes import Known, Unknown

SUM, OTHER_SUM = Unknown("computed by ConvInteger", integers=7), Unknown("computed by ConvInteger", integers=8)
PLAIN = Unknown("computed by Relu")


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A file of 12 numbers."""
    (tmp_path / "w").write_bytes(torch.arange(12, dtype=torch.float32).numpy().tobytes())
    return Source(tmp_path / "w")


def known(source: Source, *shape: int, first: int = 0, stride: list[int] | None = None) -> Known:
    tensor = StoredTensor.of(source.run(0, 48), torch.float32, shape=list(shape), first=first, stride=stride)
    return Known("scale", tensor, "scale")


@pytest.mark.parametrize("operator", ["Add", "Cast"])
def test_integers_stay_integers_if_nothing_else_is_added_that_has_any(operator: str) -> None:
    scales, node = Scales(), Node(operator=operator)
    computed = Unknown(f"computed by {operator}")
    assert scales.follow(node, [SUM]) == computed._replace(integers=7)
    assert scales.follow(node, [PLAIN, SUM]) == computed._replace(integers=7)
    for inputs in ([], [None], [PLAIN], [SUM, OTHER_SUM], [SUM, SUM]):
        assert scales.follow(node, inputs) == computed


def test_integers_are_multiplied_by_a_number_of_the_file_or_what_was_computed_with_one(source: Source) -> None:
    scales, factor, node = Scales(), known(source), Node(operator="Mul")
    computed = Unknown("computed by Mul")
    product = scales.follow(node, [PLAIN, factor])
    assert product == computed._replace(factor=factor)
    assert scales.follow(node, [factor, PLAIN]) == product
    assert scales.of(7) is None
    assert scales.follow(node, [SUM, product]) == computed
    assert scales.of(7) is factor
    assert scales.of(8) is None
    assert scales.follow(node, [factor, OTHER_SUM]) == computed
    assert scales.of(8) is factor


def test_integers_that_are_multiplied_twice_or_by_two_numbers_have_no_factor(source: Source) -> None:
    scales, factor, node = Scales(), known(source), Node(operator="Mul")
    computed = Unknown("computed by Mul")
    odd: list[list[Known | Unknown | None]] = [[SUM, PLAIN], [factor, factor], [SUM, factor, PLAIN], [factor]]
    odd.append([SUM, factor, factor])
    for inputs in odd:
        assert scales.follow(node, inputs) == computed
        assert scales.of(7) is None
    scales.follow(node, [SUM, factor])
    assert scales.of(7) is factor
    scales.follow(node, [factor, SUM])
    assert scales.of(7) is None


@pytest.mark.parametrize(
    ("shape", "kept"),
    [
        ((), ()),
        ((1,), ()),
        ((1, 1, 1), ()),
        ((3, 1, 1), (3,)),
        ((1, 3, 1, 1), (3,)),
        ((1, 1, 3, 1, 1), (3,)),
        ((3, 1, 1, 1), (3,)),
        ((1, 3, 1, 1, 1), (3,)),
        ((0,), None),
        ((1, 0, 1), None),
        ((3,), None),
        ((3, 1), None),
        ((1, 3), None),
        ((4, 1, 1), None),
        ((3, 1, 2), None),
        ((3, 2, 1), None),
        ((2, 3, 1, 1), None),
    ],
)
def test_a_scale_is_one_number_or_one_for_each_channel(
    shape: tuple[int, ...], kept: tuple[int, ...] | None, source: Source
) -> None:
    found = for_channels(known(source, *shape), 3)
    if kept is None:
        assert found is None
    else:
        assert found is not None
        assert found.read().tolist() == torch.arange(12.0)[: max(1, *kept, 1)].view(kept).tolist()


def test_a_scale_begins_where_it_lies_and_is_none_if_it_cannot_be_read_as_it_lies(source: Source) -> None:
    found = for_channels(known(source, 3, 1, 1, first=5), 3)
    assert found is not None
    assert found.read().tolist() == [5, 6, 7]
    found = for_channels(known(source, 1, first=4), 3)
    assert found is not None
    assert found.read().item() == 4
    assert for_channels(known(source, 3, 1, 1, first=10), 3) is None
    assert for_channels(known(source, 3, 1, 1, stride=[2, 1, 1]), 3) is None
    assert for_channels(None, 3) is None
    assert for_channels(Known("scale", OddTensor("sparse"), "scale"), 3) is None
