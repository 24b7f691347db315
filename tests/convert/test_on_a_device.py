"""All that is done with layers and networks is done on a device other than the CPU, with the same results.

The device is CUDA where there is a GPU; on the CPU the same tests run as well.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import (
    SelfAttention2d,
    alpha_for,
    attention_from_conv,
    certify,
    certify_data,
    certify_network,
    compare_layers,
    convert_model,
    load_converted,
    measure_input,
    restore_model,
    save_converted,
)
from conv2attn.convert.agreement.report import CertifiedReport, certify_report
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.layer.layer import set_engine
from conv2attn.proofs.campaign.arithmetic import certified_arithmetic
from conv2attn.proofs.campaign.checks import compare_layer
from conv2attn.proofs.campaign.layers import draw_layer
from tests.devices import CUDA, DEVICES

LAYERS = 2  # random ones: each takes some 0.5 s
ALPHAS = [None, 2.0]
UNITY = (-1.0, 1.0)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    with certified_arithmetic():
        yield str(request.param)


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, (3, 2), padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2, padding=1, padding_mode="reflect", groups=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    ).eval()


def image(device: str) -> Tensor:
    return torch.randn(2, 3, 19, 17).clamp(-1, 1).to(device)


def devices_of(module: nn.Module) -> set[str]:
    return {tensor.device.type for tensor in module.state_dict().values()}


@pytest.mark.parametrize("index", range(LAYERS))
def test_a_random_layer_has_no_violation(index: int, device: str) -> None:
    checks = ["integers", "certificate", "gradients", "round trip"]
    assert all(made.holds for made in compare_layer(draw_layer(0, index), checks=checks, device=device))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("alpha", "dtype"), [(None, torch.float32), (None, torch.bfloat16), (2.0, torch.float64)])
def test_every_engine_computes_there_or_says_why_not(
    engine: str, alpha: float | None, dtype: torch.dtype, device: str
) -> None:
    conv = nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=1, groups=2, dtype=dtype, device=device)
    layer, x = attention_from_conv(conv, alpha=alpha), torch.randn(2, 4, 7, 8).clamp(-1, 1).to(device, dtype)
    refused = ENGINES[engine].refusal(layer.values())
    if refused is None:
        layer.engine = engine
        bound = torch.tensor(certify(layer, input_range=UNITY, engine=engine).per_channel)
        output = layer(x)
        difference = (output.double() - conv(x).double()).abs().amax((0, 2, 3)).cpu()
        assert (output.device, output.dtype) == (x.device, dtype)
        assert (difference <= bound).all()
    else:
        assert engine == "sdpa"


def test_content_and_learned_scores_are_computed_and_trained_there(device: str) -> None:
    x = torch.randn(2, 2, 5, 4, device=device)
    for alpha in ALPHAS:
        layer = attention_from_conv(nn.Conv2d(2, 3, 3, padding=1, device=device), alpha=alpha)
        content = copy.deepcopy(layer)
        content.add_content(3)
        learned = copy.deepcopy(layer)
        learned.set_axis_scores(torch.randn(9, 15), torch.randn(9, 13))
        for changed in (content, learned):
            changed(x).sum().backward()
            assert {p.grad.device for p in changed.parameters() if p.grad is not None} == {x.device}


def without_measurements(report: CertifiedReport) -> dict[str, Any]:
    """A report without what was measured on an image, where each device has its own rounding."""
    data = report.to_json()
    return data | {"attention": None, "layers": [layer | {"literal": None} for layer in data["layers"]]}


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_network_is_converted_certified_and_restored_there(alpha: float | None, device: str) -> None:
    cnn, x = network(), image(device)
    elsewhere = certify_report(*convert_model(cnn, alpha=alpha))
    model, report = convert_model(cnn.to(device), alpha=alpha)
    assert devices_of(model) == {device}
    certificate = certify_network(model, input_range=UNITY, size=(19, 17))
    assert certificate == certify_network(model.cpu(), input_range=UNITY, size=(19, 17))
    difference = (model.to(device)(x).double() - cnn(x).double()).abs().max().item()
    assert difference <= (certificate.bound or 0)
    assert all(layer.own <= layer.bound for layer in compare_layers(cnn, model, [x]))
    certified = certify_report(model, report)
    assert all(sample.difference <= sample.bound for sample in certified.summary.samples.values())
    assert without_measurements(certified) == without_measurements(elsewhere)
    restored = restore_model(model, tolerance=float("inf"))
    assert devices_of(restored) == {device}
    assert all(torch.equal(restored.state_dict()[name], value) for name, value in cnn.state_dict().items())


@pytest.mark.parametrize("alpha", ALPHAS)
def test_certificates_and_measured_ranges_do_not_depend_on_the_device(alpha: float | None, device: str) -> None:
    layer, x = attention_from_conv(nn.Conv2d(3, 4, 3, padding=1), alpha=alpha), image("cpu")
    there, x_there = copy.deepcopy(layer).to(device), x.to(device)
    ranges = x.amin((0, 2, 3)), x.amax((0, 2, 3))
    expected = certify(layer, input_range=ranges)
    assert certify(there, input_range=ranges) == expected
    assert certify(there, input_range=tuple(end.to(device) for end in ranges)) == expected  # type: ignore[arg-type]
    assert certify_data(there, [x_there]) == certify_data(layer, [x])
    assert alpha_for(0.1, there, UNITY) == alpha_for(0.1, layer, UNITY)
    measured = measure_input(there, [x_there])
    assert torch.equal(measured.low.cpu(), measure_input(layer, [x]).low)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_network_saved_there_is_read_here_and_there(alpha: float | None, device: str, tmp_path: Path) -> None:
    cnn, x = network().to(device), image(device)
    model = convert_model(cnn, alpha=alpha).model
    save_converted(model, tmp_path / "saved")
    for where in ("cpu", device):
        loaded = load_converted(tmp_path / "saved", architecture=network().to(where))
        assert devices_of(loaded) == {where}
        for name, value in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name].cpu(), value.cpu())
        loaded.to(device)
        assert torch.equal(loaded(x), model(x))


COPIES: dict[str, Callable[[nn.Module, str], nn.Module]] = {
    "deepcopy": lambda model, _: copy.deepcopy(model),
    "pickle": lambda model, _: pickle.loads(pickle.dumps(model)),
    "to the CPU and back": lambda model, device: model.to("cpu").to(device),
    "to double and back": lambda model, _: model.double().float(),
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_and_moves_compute_the_same(copied: Callable[[nn.Module, str], nn.Module], device: str) -> None:
    model, x = convert_model(network().to(device), alpha=2.0).model, image(device)
    expected = model(x)
    assert torch.equal(copied(model, device)(x), expected)


@pytest.mark.parametrize(("positions", "options"), [(False, {"foreach": True}), (True, {"fused": True})])
def test_a_training_step_there_is_the_one_of_the_cpu(positions: bool, options: dict[str, bool], device: str) -> None:
    outputs = []
    model, x = convert_model(network(), alpha=2.0).model.train().double(), image("cpu").double()
    for module in model.modules():
        if isinstance(module, SelfAttention2d) and positions:
            module.train_positions()
    for where in ("cpu", device):
        there, batch = copy.deepcopy(model).to(where), x.to(where)
        optimizer = torch.optim.SGD(there.parameters(), lr=0.01, **options)
        for _ in range(3):
            optimizer.zero_grad()
            there(batch).square().sum().backward()
            optimizer.step()
        with torch.no_grad():
            outputs.append(there.eval()(batch).cpu())
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("engine", ["literal", "separable"])
def test_inference_mode_leaves_a_network_that_can_be_trained(engine: str, device: str) -> None:
    model, x = convert_model(network().to(device), alpha=2.0).model, image(device)
    set_engine(model, engine)
    with torch.inference_mode():
        expected = model(x)
    output = model(x)
    output.sum().backward()
    assert torch.equal(output, expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32:UserWarning")  # the compiler's own
@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_compiled_network_gives_what_it_gives_uncompiled(alpha: float | None, device: str) -> None:
    model, x = convert_model(network().to(device), alpha=alpha).model.eval(), image(device)
    with torch.no_grad():
        found, expected = torch.compile(model)(x).double(), model(x).double()
    bound = certify_network(model, input_range=(float(x.min()), float(x.max())), size=tuple(x.shape[2:])).bound
    assert bound is not None
    assert float((found - expected).abs().max()) <= 2 * bound  # each is that far from the CNN at most
