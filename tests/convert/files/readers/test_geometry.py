"""A convolution in a file is what its weight and its numbers describe, or is refused by what they lack."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conv2attn.convert.files.readers.common.geometry import StoredConvolution, add_layer, describe, layer_name
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.spec import ConvSpec


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "w").write_bytes(bytes(4 * 6 * 4 * 27))
    return Source(tmp_path / "w")


def tensor(source: Source, *shape: int, begin: int = 0) -> StoredTensor:
    return StoredTensor.of(source.run(begin, source.size), torch.float32, shape=list(shape))


def described(source: Source, shape: tuple[int, ...], bias: object = None, **geometry: Any) -> StoredConvolution:
    """A weight of this shape, a bias if one is given, and a geometry; pairs of pads are meant."""
    tensors = {"l.weight": tensor(source, *shape), "l.bias": bias}
    return describe(tensors, "l.weight", None if bias is None else "l.bias", geometry, uneven=True)


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize(("transposed", "channels"), [(False, (12, 6)), (True, (6, 12))])
def test_channels_and_kernel_are_the_weight_s(
    axes: int, transposed: bool, channels: tuple[int, int], source: Source
) -> None:
    kernel = (3, 2, 1)[:axes]
    for bias in (None, tensor(source, channels[1])):
        found = described(source, (6, 4, *kernel), bias, groups=3, transposed=transposed, stride=[2] * axes)
        assert (found.weight, found.bias, found.problem) == ("l.weight", None if bias is None else "l.bias", None)
        wanted = {"in_channels": channels[0], "out_channels": channels[1], "kernel_size": kernel, "stride": [2] * axes}
        spec = ConvSpec.from_json({**wanted, "groups": 3, "transposed": transposed, "bias": bias is not None})
        assert found.spec == spec


def test_groups_that_are_not_given_are_one(source: Source) -> None:
    spec = described(source, (6, 4, 3)).spec
    assert spec is not None
    assert (spec.in_channels, spec.out_channels, spec.groups) == (4, 6, 1)


def problem(found: StoredConvolution) -> str:
    assert found.spec is None
    assert (found.weight, found.bias) == ("", None)
    return str(found.problem)


def test_what_is_no_plain_weight_of_a_convolution_is_refused(source: Source) -> None:
    for tensors, weight in (
        ({}, None),
        ({}, "w"),
        ({"w": OddTensor("sparse")}, "w"),
        ({"w": tensor(source, 6, 4, 3, begin=3)}, "w"),  # beyond the file's end
    ):
        assert problem(describe(tensors, weight, None, {})) == "its weight is computed or not a plain tensor"
    for shape in ((6, 4), (6,), (), (6, 4, 1, 1, 1, 1)):
        assert problem(described(source, shape)) == f"its weight has {len(shape)} dimensions, which no convolution has"
    for groups in (1.0, True, "1", None):
        assert problem(described(source, (6, 4, 3), groups=groups)) == "its groups are not a number"
    assert "groups" in problem(described(source, (6, 4, 3), groups=4))


def test_a_bias_is_one_number_an_output_channel(source: Source) -> None:
    odd: list[object] = [OddTensor("sparse"), tensor(source, 6, 1), tensor(source, 4), tensor(source, 6, begin=3), 0]
    for bias in odd:
        assert problem(described(source, (6, 4, 3), bias)) == "its bias is computed or not one number a channel"
    assert problem(describe({"w": tensor(source, 6, 4, 3)}, "w", "b", {})).startswith("its bias is computed")


def test_the_numbers_of_a_geometry_are_integers_and_not_only_equal_to_some(source: Source) -> None:
    for name, number in (
        *(("stride", 1.0), ("stride", True), ("dilation", 1.0), ("padding", 0.0), ("padding", False)),
        *(("stride", 2**31), ("dilation", 2**31), ("padding", 2**31)),
    ):
        refused = described(source, (6, 4, 3), **{name: [number]})
        assert refused.spec is None, name
    refused = described(source, (6, 4, 3), transposed=True, output_padding=[0.0])
    assert refused.spec is None
    assert described(source, (6, 4, 3), stride=[2**31 - 1]).spec is not None


def test_uneven_padding_is_the_file_s_only_where_it_means_it_and_a_class_has_it(source: Source) -> None:
    tensors, uneven = {"w": tensor(source, 6, 4, 3, 3)}, {"padding": [[0, 1], [1, 1]]}
    assert describe(tensors, "w", None, uneven, uneven=True).spec is not None
    assert describe(tensors, "w", None, {"padding": "same_upper"}, uneven=True).spec is not None
    assert problem(describe(tensors, "w", None, uneven)) == "its padding is one that no convolution of PyTorch has"
    assert "padding" in problem(describe(tensors, "w", None, {**uneven, "transposed": True}, uneven=True))


def test_a_weight_of_two_geometries_is_two_layers(source: Source) -> None:
    layers: dict[str, StoredConvolution] = {}
    one, other = (described(source, (6, 4, 3), stride=[stride]) for stride in (1, 2))
    for each, otherwise in ((one, "first"), (one, "again"), (other, "second")):
        add_layer(layers, "l", each, otherwise=otherwise)
    assert layers == {"l": one, "second": other}
    noted = replace(one, note="dequantised", original="Conv_7")  # what the file says of a layer makes it no other
    add_layer(layers, "l", noted, otherwise="third")
    assert list(layers) == ["l", "second"]


def test_a_layer_is_called_as_its_weight_without_that_word() -> None:
    names = {"a.weight": "a", "weight": "", "a.b.weight": "a.b", "aweight": "aweight", "a.bias": "a.bias"}
    assert {key: layer_name(key) for key in names} == names
