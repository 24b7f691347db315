"""A pickled network is its modules: their tensors by name, and the convolutions that compute what they say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert.attention.supported import OVERRIDABLE
from conv2attn.convert.errors import CheckpointError
from conv2attn.convert.files.checkpoint import read_checkpoint
from conv2attn.convert.files.readers import modules
from conv2attn.convert.files.readers.common.geometry import StoredConvolution
from conv2attn.convert.files.readers.common.limits import MAX_DEPTH, MAX_NAME, Budget
from conv2attn.convert.files.readers.common.quantised import DEQUANTISED, ROUNDING
from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.modules import flatten, is_module
from conv2attn.convert.files.readers.pickle_machine import OTHER, StandIn
from conv2attn.convert.spec import ConvSpec

LINEAR = "torch.nn.modules.linear.Linear"


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A file with room for any tensor of these tests."""
    (tmp_path / "x").write_bytes(bytes(4096))
    return Source(tmp_path / "x")


def stored(source: Source, *shape: int) -> StoredTensor:
    return StoredTensor.of(source.run(0, 4096), torch.float32, shape=list(shape))


def made(
    kind: str,
    parameters: dict[object, object] | None = None,
    children: dict[object, object] | None = None,
    buffers: dict[object, object] | None = None,
    **state: object,
) -> StandIn:
    own = {"_parameters": parameters or {}, "_buffers": buffers or {}, "_modules": children or {}}
    return StandIn(kind, own | state)


def of(module: nn.Module, source: Source, **changed: object) -> StandIn:
    """What stands in for a convolution of torch's when it is pickled."""
    given = {**vars(module), **changed}
    own = {key: value for key, value in given.items() if key not in ("_parameters", "_buffers", "_modules")}
    parameters: dict[object, object] = {
        name: None if tensor is None else stored(source, *tensor.shape) for name, tensor in module._parameters.items()
    }
    return made(f"torch.nn.modules.conv.{type(module).__name__}", parameters, **own)


def one(module: StandIn) -> StoredConvolution:
    (found,) = flatten(module, Budget())[1].values()
    return found


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "conv",
    [
        *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
        *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    ],
)
def test_a_convolution_is_the_geometry_that_it_keeps(conv: type[nn.Conv2d], bias: bool, source: Source) -> None:
    transposed: dict[str, Any] = {"output_padding": 1} if "Transpose" in conv.__name__ else {}
    module = conv(4, 6, 3, stride=2, padding=1, dilation=1, groups=2, bias=bias, **transposed)
    tensors, convolutions = flatten(made("own.Net", children={"a": of(module, source)}), Budget())
    found = convolutions["a"]
    assert (found.spec, found.weight, found.bias) == (
        ConvSpec.from_conv(module),
        "a.weight",
        "a.bias" if bias else None,
    )
    assert (found.problem, found.note) == (None, None)
    assert list(tensors) == ["a.weight", "a.bias"][: 1 + bias]


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_a_padding_that_was_changed_after_it_was_made_is_refused(mode: Any, source: Source) -> None:
    module = nn.Conv2d(1, 1, 3, padding=(1, 2), padding_mode=mode)
    told = "its padding was changed after it was made, which its padding mode ignores"
    assert one(of(module, source)).spec == ConvSpec.from_conv(module)
    for kept in ([2, 2, 1, 1], (2, 2, 1, 1)):
        assert one(of(module, source, _reversed_padding_repeated_twice=kept)).spec is not None
    for wrong in ([1, 1, 2, 2], [2, 2, 1], None, 3):
        assert one(of(module, source, _reversed_padding_repeated_twice=wrong)) == StoredConvolution.refused(told)
    zeros = nn.Conv2d(1, 1, 3, padding=(1, 2))
    assert one(of(zeros, source, _reversed_padding_repeated_twice=None)).spec is not None


def test_what_makes_a_convolution_compute_something_else_is_told(source: Source) -> None:
    conv = nn.Conv2d(1, 1, 3)
    for name in OVERRIDABLE:
        told = f"its {name} method was replaced on the instance"
        assert one(of(conv, source, **{name: StandIn("f")})) == StoredConvolution.refused(told)
    assert (
        one(of(conv, source, forward=0, _conv_forward=0)).problem == "its forward method was replaced on the instance"
    )
    for name in ("_forward_hooks", "_forward_pre_hooks"):
        told = "it has hooks, which may change what it computes"
        assert one(of(conv, source, **{name: {1: StandIn("f")}})) == StoredConvolution.refused(told)
        for unseen in ({OTHER: None}, StandIn("collections.OrderedDict")):
            assert one(of(conv, source, **{name: unseen})) == StoredConvolution.refused(told)
    assert one(of(conv, source, _backward_hooks={1: StandIn("f")})).spec is not None
    for name in ("_call_impl", "_slow_forward"):
        assert one(of(conv, source, **{name: None})).problem == f"its {name} method was replaced on the instance"
    assert one(of(conv, source, _compiled_call_impl=None)).spec is not None
    assert "its call was compiled" in str(one(of(conv, source, _compiled_call_impl=StandIn("f"))).problem)
    for name in ("weight", "bias"):
        for hiding in (None, stored(source, 1, 1, 3, 3)):
            found = one(of(conv, source, **{name: hiding}))
            assert found == StoredConvolution.refused(f"its {name} is an attribute that hides the parameter")


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("own.Conv2d", "Conv2d is not a convolution of torch.nn"),
        ("torch.nn.modules.conv.Other", "Other is not a convolution of torch.nn"),
        ("torch.nn.modules.conv.inner.Conv2d", "Conv2d is not a convolution of torch.nn"),
        ("torch.ao.nn.quantized.modules.conv.Conv2d", "Conv2d is not a convolution of torch.nn"),
        ("Conv2d", "Conv2d is not a convolution of torch.nn"),
        ("torch.nn.modules.conv.Conv1d", "its weight is not one of Conv1d"),
        ("torch.nn.modules.conv.Conv3d", "its weight is not one of Conv3d"),
    ],
)
def test_another_class_is_no_convolution_of_torch(kind: str, told: str, source: Source) -> None:
    module = of(nn.Conv2d(1, 1, 3), source)
    module.kind = kind
    assert one(module) == StoredConvolution.refused(told)


def test_what_has_no_kernel_no_stride_or_no_direction_is_not_taken_for_a_convolution(source: Source) -> None:
    whole = of(nn.Conv2d(1, 1, 3), source)
    assert isinstance(whole.state, dict)
    for name in ("kernel_size", "stride", "transposed"):
        state = {key: value for key, value in whole.state.items() if key != name}
        assert flatten(StandIn(whole.kind, state), Budget())[1] == {}
    for name in ("padding", "dilation", "groups", "padding_mode"):
        assert one(of(nn.Conv2d(1, 1, 3), source, **{name: None})).problem is not None


def test_a_convolution_without_its_weight_is_refused(source: Source) -> None:
    module = of(nn.Conv2d(1, 1, 3), source)
    assert isinstance(module.state, dict)
    module.state["_parameters"] = {"bias": stored(source, 1)}
    assert one(module).problem == "its weight is computed or not a plain tensor"


# Modules in modules


def test_tensors_have_the_names_that_a_state_dict_gives_them(source: Source) -> None:
    tensor, odd = stored(source, 2), OddTensor("sparse")
    shared = made(LINEAR, {"weight": tensor, "bias": None, 3: tensor})
    buffers: dict[object, object] = {
        "kept": tensor,
        "hidden": tensor,
        "secret": tensor,
        "odd": odd,
        "text": "x",
        5: tensor,
    }
    net = made(
        "own.Net",
        {"scale": tensor},
        {"b": shared, "a": made("own.Part", children={"0": shared, "none": None}), 7: shared, "x": StandIn("f", 3)},
        buffers,
        _non_persistent_buffers_set=["hidden", 5, "scale", "secret"],
    )
    tensors, convolutions = flatten(net, Budget())
    assert list(tensors) == ["scale", "kept", "odd", "b.weight", "a.0.weight", "7.weight"]
    unseen = StoredConvolution.refused("it is made by f when it is read, and its layers are not seen")
    assert convolutions == {"x": unseen}
    assert tensors["odd"] is odd
    for hidden in (None, {"hidden": 1}, 3):
        assert isinstance(net.state, dict)
        net.state["_non_persistent_buffers_set"] = hidden
        net.state["_parameters"] = {}
        assert list(flatten(net, Budget())[0])[:4] == ["kept", "hidden", "secret", "odd"]


def test_a_scripted_module_holds_its_tensors_and_its_children_in_one(source: Source) -> None:
    tensor = stored(source, 2)
    inner = StandIn("__torch__.Part", {"weight": tensor})
    root = StandIn("__torch__.Net", {"scale": tensor, "part": inner, "training": True})
    assert list(flatten(root, Budget())[0]) == ["scale", "part.weight"]
    assert is_module(root)


@pytest.mark.parametrize("parameter", [None, "tensor"])
def test_a_name_is_not_that_of_a_parameter_and_of_a_buffer(parameter: str | None, source: Source) -> None:
    """PyTorch computes with the parameter, and None is one; its state dict holds the buffer."""
    tensor = stored(source, 2)
    module = made(LINEAR, {"bias": None if parameter is None else tensor}, buffers={"bias": tensor})
    with pytest.raises(CheckpointError, match="a parameter and a buffer of one name"):
        flatten(module, Budget())


def test_two_modules_do_not_come_to_one_name(source: Source) -> None:
    conv = nn.Conv2d(1, 1, 3)
    lacking = of(conv, source)
    lacking.state = {**lacking.state, "_parameters": {}}  # type: ignore[dict-item]
    for first, second in ((of(conv, source), of(conv, source)), (of(conv, source), lacking)):
        net = made("own.Net", children={"a": made("own.Part", children={"b": first}), "a.b": second})
        with pytest.raises(CheckpointError, match=r"two modules called 'a\.b'"):
            flatten(net, Budget())


def test_a_convolution_has_no_weight_but_its_own(source: Source) -> None:
    lacking = of(nn.Conv2d(1, 1, 3), source)
    lacking.state = {**lacking.state, "_parameters": {}}  # type: ignore[dict-item]
    net = made("own.Net", {"a.weight": stored(source, 1, 1, 3, 3)}, children={"a": lacking})
    assert flatten(net, Budget())[1]["a"].problem == "its weight is computed or not a plain tensor"


@pytest.mark.parametrize("change", [{"0": None}, {OTHER: None}])
def test_nothing_is_put_into_a_module_after_it_was_made(change: dict[object, object], source: Source) -> None:
    """nn.Sequential takes another module at a place, and appends one."""
    sequence = made("torch.nn.modules.container.Sequential", children={"0": of(nn.Conv2d(1, 1, 3), source)})
    assert flatten(sequence, Budget())[1]["0"].spec is not None
    sequence.entries = change
    with pytest.raises(CheckpointError, match="a module that others are put into"):
        flatten(sequence, Budget())


@pytest.mark.parametrize("missing", ["_parameters", "_buffers", "_modules"])
def test_a_module_has_parameters_buffers_and_children(missing: str) -> None:
    module = made(LINEAR)
    assert is_module(module)
    assert isinstance(module.state, dict)
    for wrong in (None, 3, "x"):
        module.state[missing] = wrong
        assert not is_module(module)
    del module.state[missing]
    assert not is_module(module)
    assert not any(map(is_module, (StandIn("a"), StandIn("a", 3), StandIn("a", ()), {"_parameters": {}}, None)))


def chain(depth: int, root: str = "own.Net") -> StandIn:
    module = made(root)
    for _ in range(depth):
        module = made(root, children={"a": module})
    return module


def test_modules_lie_in_at_most_so_many_others() -> None:
    flatten(chain(MAX_DEPTH), Budget())
    with pytest.raises(CheckpointError, match=f"the pickled network nests modules more than {MAX_DEPTH} deep"):
        flatten(chain(MAX_DEPTH + 1), Budget())


def test_names_have_at_most_so_many_letters(source: Source) -> None:
    tensor = stored(source, 1)
    for name, key in ((MAX_NAME - 5, "short"), (1, "k" * (MAX_NAME - 1))):
        flatten(made("own.Net", children={"n" * name: made(LINEAR, {key: tensor})}), Budget())
        for longer, more in ((name + 1, key), (name, f"{key}k")):
            with pytest.raises(CheckpointError, match=f"has names of more than {MAX_NAME} letters"):
                flatten(made("own.Net", children={"n" * longer: made(LINEAR, {more: tensor})}), Budget())


def test_modules_and_tensors_together_are_limited(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = stored(source, 1)
    leaf = made(LINEAR, {"a": tensor, "b": tensor})
    net = made("own.Net", {"c": tensor}, {"x": leaf, "y": leaf})  # 3 modules and 5 tensors
    monkeypatch.setattr(modules, "MAX_TENSORS", 8)
    flatten(net, Budget())
    monkeypatch.setattr(modules, "MAX_TENSORS", 7)
    with pytest.raises(CheckpointError, match="the pickled network has more than 7 modules and tensors"):
        flatten(net, Budget())


def test_children_that_wait_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a module and those beside it that come later."""
    wide = made("own.Net", children={"a": made("own.Net", children={"c": 1, "d": 2}), "b": made("own.Net")})
    monkeypatch.setattr(modules, "MAX_TENSORS", 3)
    flatten(wide, Budget())
    monkeypatch.setattr(modules, "MAX_TENSORS", 2)
    with pytest.raises(CheckpointError, match=r"the pickled network has more than 2 modules$"):
        flatten(wide, Budget())


def test_everything_that_is_looked_at_and_every_name_is_charged(source: Source) -> None:
    tensor, budget = stored(source, 1), Budget()
    leaf = made(LINEAR, {"a": tensor, "b": 3}, buffers={"c": 1}, _non_persistent_buffers_set=["x", "y"])
    net = made("own.Net", children={"leaf": leaf, "none": None})
    memory, steps = budget.memory, budget.steps
    flatten(net, budget)
    assert steps - budget.steps == 2 + (2 + 1 + 2)  # the children, and what the leaf holds and hides
    assert memory - budget.memory == sum(sys.getsizeof(name) + 200 for name in ("leaf", "leaf.a"))


def test_a_module_whose_layers_are_not_seen_is_charged() -> None:
    budget = Budget()
    memory = budget.memory
    flatten(made("own.Net", children={"x": StandIn("f", 3)}), budget)
    assert memory - budget.memory == sys.getsizeof("x") + 200 + 1000


# Quantised


def packed(source: Source, kind: str, module: nn.Conv2d, weight: Tensor, **changed: object) -> StandIn:
    """What stands in for a quantised convolution, which gives its state as a tuple."""
    state: dict[str, object] = {
        "in_channels": 4,
        "out_channels": 6,
        "kernel_size": module.kernel_size,
        "stride": module.stride,
        "padding": module.padding,
        "dilation": module.dilation,
        "transposed": module.transposed,
        "output_padding": module.output_padding,
        "groups": module.groups,
        "padding_mode": module.padding_mode,
        "weight": stored(source, *weight.shape),
        "bias": stored(source, 6),
        "scale": 1.0,
        "zero_point": 0,
        "training": False,
    }
    return StandIn(kind, tuple((state | changed).values()))


@pytest.mark.parametrize("place", ["torch.ao.nn.quantized.modules.conv.", "torch.nn.quantized.modules.conv."])
@pytest.mark.parametrize("conv", [nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d])
def test_a_quantised_convolution_is_one_of_what_its_integers_stand_for(
    conv: type[nn.Conv2d], place: str, source: Source
) -> None:
    module = conv(4, 6, 3, stride=2, padding=1, groups=2)
    stand_in = packed(source, f"{place}{conv.__name__}", module, module.weight)
    tensors, convolutions = flatten(made("own.Net", children={"a": stand_in}), Budget())
    found = convolutions["a"]
    assert (found.spec, found.weight, found.bias) == (ConvSpec.from_conv(module), "a.weight", "a.bias")
    assert found.note == f"{DEQUANTISED}; {ROUNDING}"
    assert list(tensors) == ["a.weight", "a.bias"]
    assert is_module(stand_in)
    refused = one(packed(source, f"{place}{conv.__name__}", module, module.weight, groups=None))
    assert (refused.spec, refused.note) == (None, None)


def test_a_state_of_another_form_or_class_is_no_quantised_convolution(source: Source) -> None:
    module, place = nn.Conv2d(4, 6, 3), "torch.ao.nn.quantized.modules.conv."
    whole = packed(source, f"{place}Conv2d", module, module.weight)
    assert isinstance(whole.state, tuple)
    for state in (whole.state[:-1], (*whole.state, 1), list(whole.state), None):
        assert not is_module(StandIn(whole.kind, state))
    for kind in ("own.ao.nn.quantized.modules.conv.Conv2d", "torch.ao.nn.modules.conv.Conv2d"):
        assert not is_module(StandIn(kind, whole.state))
    assert one(StandIn("torch.ao.nn.quantized.modules.linear.Conv2d", whole.state)).problem is not None
    assert one(StandIn(f"{place}ConvReLU2d", whole.state)).problem == "ConvReLU2d is not a convolution of torch.nn"


@pytest.mark.parametrize("kind", ["torch.nn.parameter.Parameter", "torch._tensor._rebuild_from_type"])
def test_a_bias_that_is_not_read_is_not_taken_for_none(kind: str, source: Source) -> None:
    module = of(nn.Conv2d(1, 2, 3), source)
    assert isinstance(module.state, dict)
    module.state["_parameters"]["bias"] = StandIn(kind)
    assert one(module).problem == "its bias is not one of the plain tensors of its state"


def test_a_bias_that_is_no_part_of_the_state_is_not_taken_for_none(tmp_path: Path) -> None:
    conv = nn.Conv2d(1, 2, 3)
    bias = torch.arange(2.0)
    del conv.bias
    conv.register_buffer("bias", bias, persistent=False)
    torch.save(conv, tmp_path / "w")
    assert torch.equal(torch.load(tmp_path / "w", weights_only=False).bias, bias)
    (found,) = read_checkpoint(tmp_path / "w").convolutions.values()
    assert found.problem == "its bias is not one of the plain tensors of its state"


def test_modules_whose_layers_are_not_seen_are_named(tmp_path: Path) -> None:
    """A graph of torch.fx is made of its code when it is unpickled."""
    inner = torch.fx.symbolic_trace(nn.Sequential(nn.Conv2d(2, 1, 1)))
    torch.save(nn.Sequential(nn.Conv2d(1, 2, 3), inner), tmp_path / "w")
    found = read_checkpoint(tmp_path / "w").convolutions
    assert [stored.problem for stored in found.values()] == [
        None,
        "it is made by torch.fx.graph_module.reduce_graph_module when it is read, and its layers are not seen",
    ]


def test_what_scripted_modules_keep_besides_modules_is_no_layer(source: Source) -> None:
    kept = {"weight": stored(source, 2), "packed": StandIn("__torch__.torch.classes.quantized.LinearPackedParamsBase")}
    assert flatten(StandIn("__torch__.Net", kept), Budget())[1] == {}


def test_a_convolution_that_is_older_than_padding_modes_pads_by_zeros(tmp_path: Path) -> None:
    conv = nn.Conv2d(1, 2, 3, padding=1)
    del conv.__dict__["padding_mode"]
    torch.save(conv, tmp_path / "w")
    theirs = torch.load(tmp_path / "w", weights_only=False)
    assert read_checkpoint(tmp_path / "w").convolutions[""].spec == ConvSpec.from_conv(theirs)
