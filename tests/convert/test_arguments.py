"""Whatever is passed in place of what a function wants is refused with one sentence that says what to do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_module

from conv2attn import convert
from conv2attn.convert import (
    ConversionError,
    alpha_for,
    attention_from_conv,
    certify,
    certify_data,
    certify_network,
    compare_layers,
    conv_from_attention,
    convert_model,
    measure_input,
    restore_model,
    save_converted,
)
from conv2attn.convert.arguments import format_seconds

RANGE = (-1.0, 1.0)
door: Any = convert  # the public functions, as they look to somebody without a type checker


def cnn() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, (1, 2))).eval()


def network() -> nn.Module:
    return convert_model(cnn()).model


def layer() -> Any:
    return attention_from_conv(nn.Conv2d(2, 3, (3, 2)))


def meta_layer() -> Any:
    return layer().to("meta")


def scripted() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = torch.jit.script(cnn())
    assert isinstance(module, nn.Module)
    return module


def exported() -> Any:
    return torch.export.export(cnn(), (torch.zeros(1, 2, 8, 8),))


X = torch.zeros(1, 2, 6, 7)
Case = tuple[Callable[[], object], str]

NOT_MODELS: dict[str, tuple[Callable[[], Any], str]] = {
    "a state dict": (lambda: cnn().state_dict(), "a state dict is weights without their network"),
    "a string": (lambda: "resnet.pth", "got the str 'resnet.pth': load the network first"),
    "an exported program": (exported, "got an ExportedProgram, whose layers are compiled"),
    "a scripted model": (scripted, "got TorchScript, whose layers are compiled"),
    "a conversion": (lambda: convert_model(cnn()), "got a Conversion: pass its .model"),
}
WANT_MODELS: dict[str, Callable[[Any], object]] = {
    "convert_model": convert_model,
    "restore_model": restore_model,
    "attention_from_conv": attention_from_conv,
    "certify_network": lambda model: certify_network(model, input_range=RANGE),
    "compare_layers": lambda model: compare_layers(cnn(), model, [X]),
    "save_converted": lambda model: save_converted(model, "folder"),
}


@pytest.mark.parametrize(
    ("function", "given"),
    [*((each, "a string") for each in WANT_MODELS), *(("convert_model", each) for each in NOT_MODELS)],
)
def test_what_is_not_a_model_is_refused_with_what_to_do(function: str, given: str) -> None:
    make, reason = NOT_MODELS[given]
    with pytest.raises(ConversionError, match=reason):
        WANT_MODELS[function](make())


WANT_LAYERS: dict[str, Callable[[Any], object]] = {
    "certify": lambda given: certify(given, input_range=RANGE),
    "certify_data": lambda given: certify_data(given, [X]),
    "measure_input": lambda given: measure_input(given, [X]),
    "alpha_for": lambda given: alpha_for(1.0, given, RANGE),
    "conv_from_attention": conv_from_attention,
}
NOT_LAYERS: dict[str, tuple[Callable[[], Any], str]] = {
    "a network": (network, "must be a self-attention layer.*; got a Sequential"),
    "a layer without values": (meta_layer, "no values, as on the meta device"),
}


@pytest.mark.parametrize(
    ("function", "given"), [*((each, "a network") for each in WANT_LAYERS), *(("certify", each) for each in NOT_LAYERS)]
)
def test_what_is_not_a_layer_is_refused(function: str, given: str) -> None:
    make, reason = NOT_LAYERS[given]
    with pytest.raises(ConversionError, match=reason):
        WANT_LAYERS[function](make())


CASES: dict[str, Case] = {
    "size": (lambda: layer().attention_probabilities(5), "size must be two integers.*got 5"),
    "size of nothing": (lambda: layer().explain((0, 5)), "size's rows must be an integer from 1 to"),
    "one head": (lambda: layer().attention_probabilities((5, 6), heads=3), r"heads must be .*\[3\], not 3"),
    "another x": (lambda: layer().attention_probabilities((5, 6), x=X), r"x must be \[batch, 2, 5, 6\]"),
    "numpy x": (lambda: layer()(np.zeros((1, 2, 5, 6))), "input must be a torch.Tensor; got ndarray: torch.as_tensor"),
    "text as alpha": (
        lambda: door.attention_from_conv(nn.Conv2d(1, 1, 1), alpha="128"),
        "alpha must be a number; got '128'",
    ),
    "engine": (lambda: door.convert_model(cnn(), engine=3), "there is no engine 3"),
    "filter": (lambda: door.convert_model(cnn(), filter_fn="0"), "filter_fn must be a function.*name_filter"),
    "tolerance": (
        lambda: door.restore_model(network(), tolerance=-1.0),
        "a number that is not negative; got -1.0",
    ),
    "range": (lambda: door.certify(layer(), input_range=1.0), r"input_range must be a pair \(low, high\); got 1.0"),
    "batches": (lambda: door.measure_input(layer(), 5), "batches must be an iterable of tensors; got 5"),
    "numpy batches": (lambda: door.compare_layers(cnn(), network(), [X.numpy()]), "each batch must be a tensor"),
    "batch of channels": (
        lambda: door.certify_data(layer(), [X[:, :1]]),
        r"inputs must be \[batch, 2, rows, columns\]",
    ),
    "small batch": (lambda: door.measure_input(layer(), [X[..., :1]]), "does not fit into an input"),
    "swapped": (lambda: door.compare_layers(network(), cnn(), [X]), "the networks are swapped: the CNN comes first"),
    "unconverted": (
        lambda: door.compare_layers(cnn(), cnn(), [X]),
        "model has no self-attention layer; convert it first",
    ),
    "spec": (lambda: door.SelfAttention2d(nn.Conv2d(1, 1, 1)), "spec must be a ConvSpec.*got Conv2d"),
    "restored without values": (lambda: door.restore_model(network().to("meta")), "no values, as on the meta device"),
    "saved without values": (lambda: door.save_converted(network().to("meta"), "folder"), "without values.*0.weight"),
    "report": (
        lambda: door.save_converted(network(), "folder", report=door.convert_model(cnn())),
        "report must be a Report",
    ),
    "file": (lambda: door.load_converted(Path(__file__)), "is a file, not a folder"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_argument_of_another_kind_is_refused_in_one_sentence(case: str) -> None:
    call, reason = CASES[case]
    with pytest.raises(ConversionError, match=reason) as found:
        call()
    assert "\n" not in str(found.value)


def test_whole_numbers_of_other_libraries_are_numbers() -> None:
    five, six = np.int64(5), torch.tensor(6)
    maps = layer().attention_probabilities((five, six), heads=torch.tensor([1]), queries=np.array([[0, 1]]))
    assert torch.equal(maps, layer().attention_probabilities((5, 6), heads=[1], queries=[(0, 1)]))
    assert door.attention_from_conv(nn.Conv2d(1, 1, 1), alpha=np.float32(2)).regime.shared_alpha == 2


def test_images_with_labels_are_compared_and_measured_as_images() -> None:
    torch.manual_seed(3)
    before, x = cnn(), torch.randn(4, 2, 6, 7)
    model = convert_model(before, alpha=2.0).model
    images = list(x.split(2))
    labelled = [(part, torch.zeros(2)) for part in images]
    compare, measure = door.compare_layers, door.measure_input
    assert compare(before, model, labelled) == compare(before, model, images)
    assert compare(before, model, [list(pair) for pair in labelled]) == compare(before, model, images)
    measured = [measure(model.get_submodule("0"), batches) for batches in (labelled, images)]
    assert all(torch.equal(getattr(measured[0], name), getattr(measured[1], name)) for name in ("low", "high", "sums"))
    single = measure(model.get_submodule("0"), x)
    assert torch.equal(single.sums, measured[0].sums)


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own, about its internals
            yield
    finally:
        dist.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_a_network_wrapped_for_several_devices_is_converted_before_not_after() -> None:
    mesh = DeviceMesh("cpu", [0])
    sharded: Any = fully_shard(cnn(), mesh=mesh)
    parallel: Any = nn.parallel.DistributedDataParallel(cnn())
    for wrapped, wrapper in ((sharded, "FSDPModule"), (parallel, "DistributedDataParallel")):
        for change in (convert_model, restore_model):
            with pytest.raises(ConversionError, match=f"wrapped in {wrapper}.*convert or restore the model first"):
                change(wrapped)
    with pytest.raises(ConversionError, match="its weight is a DTensor; convert the model before it is sharded"):
        convert_model(distribute_module(cnn(), mesh))


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.2, "1 second"),
        (40.4, "40 seconds"),
        (89, "89 seconds"),
        (90, "2 minutes"),
        (720, "12 minutes"),
        (9000, "2 hours"),
    ],
)
def test_a_duration_is_rounded_to_its_unit(seconds: float, told: str) -> None:
    assert format_seconds(seconds) == told
