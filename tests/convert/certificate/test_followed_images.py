"""A network's certificate follows images of any number of axes, with a batch and without, and names what it lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from conv2attn.convert import NetworkCertificate, certify, certify_network, convert_model

CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
SIZES = {1: (9,), 2: (6, 5), 3: (4, 3, 5)}
RANGE = ((-1.0, 0.0), (0.5, 7.0))  # unlike for the two channels


class Network(nn.Module):
    """Two convolutions of channels that are unlike, each given a batch or a single image."""

    def __init__(self, axes: int, *, batch: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = (CONVOLUTIONS[axes](2, 2, 3, padding=1) for _ in range(2))
        self.batch = batch
        with torch.no_grad():
            self.first.weight[0] *= 100
            self.last.weight[:, 0] *= 1e-3

    def forward(self, x: Tensor) -> Tensor:
        """Maps [1, 2, ...] to [1, 2, ...]."""
        y: Tensor = self.last(self.first(x)) if self.batch else self.last(self.first(x[0])).unsqueeze(0)
        return y


def certified(cnn: nn.Module, axes: int) -> tuple[NetworkCertificate, float]:
    """The certificate, and the largest difference on images of the range."""
    model = convert_model(cnn.eval(), alpha=3.0).model
    x = torch.rand(5, 2, *SIZES[axes])
    low, high = (torch.tensor(ends).view(-1, *(1,) * axes) for ends in RANGE)
    with torch.no_grad():
        observed = max(float((model(one) - cnn(one)).abs().max()) for one in (low + x * (high - low)).split(1))
    return certify_network(model, input_range=RANGE, size=SIZES[axes]), observed


@pytest.mark.parametrize("axes", CONVOLUTIONS)
def test_a_layer_of_any_axes_has_its_own_certificate(axes: int) -> None:
    layer: Any = convert_model(CONVOLUTIONS[axes](2, 3, 3), alpha=3.0).model
    bound = certify(layer, input_range=RANGE).bound
    assert certify_network(layer, input_range=RANGE, size=SIZES[axes]).bound == bound


@pytest.mark.parametrize("axes", CONVOLUTIONS)
def test_channels_are_followed_apart_in_a_batch_and_together_in_a_single_image(axes: int) -> None:
    apart, seen = certified(Network(axes, batch=True), axes)
    together, also_seen = certified(Network(axes, batch=False), axes)
    assert apart.bound is not None
    assert together.bound is not None
    assert seen <= apart.bound < together.bound / 5
    assert also_seen <= together.bound


class Keeping(nn.Module):
    """A convolution, and a tensor that a list outside holds, which it reads or writes into."""

    def __init__(self, kept: Tensor, *, writes: bool) -> None:
        super().__init__()
        self.conv, self.held, self.writes = nn.Conv2d(2, 2, 3), [kept], writes

    def forward(self, x: Tensor) -> Tensor:
        """Adds to the convolution what the tensor holds, which may be more each time."""
        own = torch.zeros(1)
        own.add_(2)
        if self.writes:
            self.held[0].add_(1)
        y: Tensor = self.conv(x) + own * self.held[0]
        return y


def test_a_tensor_that_outlives_a_call_may_be_read_and_not_be_written_into() -> None:
    (read, _), (written, _) = (certified(Keeping(torch.ones(1), writes=writes), 2) for writes in (False, True))
    assert read.bound is not None
    assert written.bound is None
    assert "writes into a tensor that outlives its call" in written.unbounded[0].reason


class Unseen(nn.Module):
    """A rectified difference, computed where functions are not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.act = nn.Conv2d(2, 2, 3), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Rectifies what the convolution gives, less itself."""
        y = self.conv(x)
        with torch._C.DisableTorchFunction():
            unseen = y - y
        z: Tensor = self.act(unseen)
        return z


def test_what_was_lost_is_named_by_the_module_that_reads_it() -> None:
    certificate, _ = certified(Unseen(), 2)
    assert certificate.bound is None
    assert [problem.name for problem in certificate.unbounded] == ["act"]


class Changing(nn.Module):
    """A convolution in a module that changes what it holds while it runs."""

    def __init__(self, change: Callable[[Any], None]) -> None:
        super().__init__()
        self.conv, self.change, self.calls, self.spare = nn.Conv2d(2, 2, 3), change, 0, 1

    def forward(self, x: Tensor) -> Tensor:
        """Convolves, and changes."""
        self.change(self)
        y: Tensor = self.conv(x)
        return y


def count(module: Any) -> None:
    module.calls += 1


def lose(module: Any) -> None:
    vars(module).pop("spare", None)


@pytest.mark.parametrize(("change", "name"), [(count, "calls"), (lose, "spare")])
@pytest.mark.parametrize("inside", [False, True])
def test_a_module_that_changes_what_it_holds_has_no_bound_by_its_name(
    inside: bool, change: Callable[[Any], None], name: str
) -> None:
    cnn: nn.Module = Changing(change)
    model = convert_model(nn.Sequential(cnn) if inside else cnn).model.eval()
    certificate = certify_network(model, input_range=RANGE, size=SIZES[2])
    assert certificate.bound is None
    assert f"it changes its own {'0.' if inside else ''}{name} while it runs" in certificate.unbounded[0].reason
