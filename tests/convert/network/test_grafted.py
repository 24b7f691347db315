"""A grafted network's own methods fold layers rightly or not at all, and a load tells once what it put back."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights

import conv2attn as c2a
from conv2attn.convert.layer.layer import SelfAttention
from tests.small_models import with_trained_heads

Copied = Callable[[nn.Module], nn.Module]
COPIES: list[Copied] = [lambda model: model, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]


class Block(nn.Module):
    """A convolution with its batch norm, as ultralytics' and timm's blocks have them."""

    def __init__(self, channels: int, features: int, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, features, width, padding=width // 2, bias=False)
        self.bn: nn.Module = nn.BatchNorm2d(features)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.bn(self.conv(x)))


class Folding(nn.Module):
    """Two blocks and two branches, with methods that fold them."""

    way: str = "weights"

    def __init__(self) -> None:
        super().__init__()
        self.first = Block(2, 4, 3)
        self.second = Block(4, 4, 3)
        self.branches = Branches()

    def forward(self, x: Tensor) -> Tensor:
        return self.branches(self.second(self.first(x)))  # type: ignore[no-any-return]

    @torch.no_grad()
    def fuse(self, verbose: bool = True) -> nn.Module:
        """Folds the blocks' batch norms: by new weights, as ultralytics, by a copy, as torch, or by new layers."""
        for block in (self.first, self.second):
            norm: Any = block.bn
            if self.way == "weights":
                block.conv.weight, block.conv.bias = fuse_conv_bn_weights(
                    block.conv.weight, None, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
                )
            else:
                block.conv = fuse_conv_bn_eval(rebuilt(block.conv) if self.way == "new" else block.conv, norm)
            block.bn = nn.Identity()
        return self


class Branches(nn.Module):
    """A 3x3 and a 1x1 convolution of one input, as RepVGG's block."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(4, 4, 3, padding=1)
        self.point: nn.Module | None = nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.wide(x) if self.point is None else self.wide(x) + self.point(x)  # type: ignore[no-any-return]

    @torch.no_grad()
    def reparameterize(self) -> None:
        """Makes one convolution of both."""
        point: Any = self.point
        self.wide.weight[..., 1:2, 1:2] += point.weight
        assert self.wide.bias is not None
        self.wide.bias += point.bias
        self.point = None


def rebuilt(conv: Any) -> nn.Conv2d:
    """A new convolution of another's geometry and weights."""
    new = nn.Conv2d(
        conv.in_channels, conv.out_channels, conv.kernel_size, padding=conv.padding, groups=conv.groups, bias=False
    )
    new.load_state_dict({"weight": conv.weight})
    return new.eval()


def images() -> Tensor:
    return torch.randn(3, 2, 8, 7, generator=torch.Generator().manual_seed(4))


def grafted(*where: str, is_trained: bool = True, **options: Any) -> Any:
    """The network in eval mode, its batch norms after some images, with spare heads on some layers."""
    cnn = Folding()
    cnn(images())
    model = c2a.graft(cnn, where=where, **options).model.eval()
    return with_trained_heads(model) if is_trained else model


def heads_of(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, SelfAttention) and module.spare]


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize("way", ["weights", "copy"])
def test_folding_a_batch_norm_into_new_weights_is_right_for_heads_in_front(
    copied: Copied, is_trained: bool, way: str
) -> None:
    model = copied(grafted("second.conv", is_trained=is_trained))
    expected = model(images())
    vars(model)["way"] = way
    assert model.fuse(verbose=False) is model  # type: ignore[operator]
    assert isinstance(model.second.bn, nn.Identity)
    assert heads_of(model) == ["second.conv"]
    torch.testing.assert_close(model(images()), expected)


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize(("way", "beside"), [("new", False), ("weights", True), ("copy", True)])
def test_folding_that_would_leave_heads_out_is_refused_and_changes_nothing(
    copied: Copied, is_trained: bool, way: str, beside: bool
) -> None:
    model = copied(grafted("second.conv", is_trained=is_trained, beside=beside))
    expected = model(images())
    vars(model)["way"] = way
    with pytest.raises(c2a.ConversionError, match="ungraft"):
        model.fuse()  # type: ignore[operator]
    assert isinstance(model.first.bn, nn.BatchNorm2d)  # type: ignore[union-attr]
    assert torch.equal(model(images()), expected)
    bare: Any = c2a.ungraft(model, all=True).model
    assert bare.fuse() is bare


@pytest.mark.parametrize("where", ["branches.point", "branches.*"])
def test_a_branch_with_heads_is_not_folded_into_another(where: str) -> None:
    model = grafted(where)
    expected = model(images())
    with pytest.raises(c2a.ConversionError, match=r"spare heads of point"):
        model.branches.reparameterize()
    assert torch.equal(model(images()), expected)


def test_methods_that_fold_other_layers_stay_those_of_the_class() -> None:
    model = grafted("second.conv")
    expected = model(images())
    model.branches.reparameterize()
    assert "reparameterize" not in vars(model.branches)
    torch.testing.assert_close(model(images()), expected)


@pytest.mark.parametrize("copied", COPIES)
def test_one_warning_of_a_load_names_all_layers_that_it_put_back(copied: Copied) -> None:
    model, cnn = copied(grafted("second.conv", "branches.*")), Folding()
    for network in (model, nn.Sequential(model)):
        with_trained_heads(model)
        state = cnn.state_dict() if network is model else nn.Sequential(cnn).state_dict()
        with pytest.warns(UserWarning, match="no spare heads for second.conv, branches.wide, branches.point: ") as told:
            network.load_state_dict(state)
        assert len(told) == 1
        assert told[0].filename == __file__ or network is not model
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.load_state_dict(cnn.state_dict())  # which puts nothing back
        model.load_state_dict(model.state_dict())
        c2a.ungraft(grafted("second.conv"), all=True).model.load_state_dict(cnn.state_dict())
