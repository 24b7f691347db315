"""Bugs of ports, planted in what an engine converts, as large as so many times the noise of the unit it rounds in.

A fault has a strength from 0, where the network is right, to 1 and beyond. Its effect on the outputs grows with the
strength, which is found in float64.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.engines.judged import UNITS
from benchmarks.engines.networks import WIDTH, Attention, Case, LlamaAttention, LlamaModel, RmsNorm
from conv2attn.convert.programs.float64 import Lifted
from conv2attn.convert.programs.noise import Noise, Noisy
from conv2attn.convert.programs.program import Program

TIMES = (1, 3, 10, 30)
_NORMS = (nn.BatchNorm2d, nn.LayerNorm, RmsNorm)
_CLOSE = 0.03  # of the effect that is wanted
_STEPS = 40


class _Gelu(nn.Module):
    """GELU, with a share of its approximation by tanh."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        exact = F.gelu(x)
        return exact + self.share * (F.gelu(x, approximate="tanh") - exact)


class _Padded(nn.Module):
    """A convolution whose image has, beyond its border, a share of the nearest pixel instead of 0."""

    def __init__(self, own: nn.Conv2d, share: float) -> None:
        super().__init__()
        self.own, self.share = own, share

    def forward(self, x: Tensor) -> Tensor:
        inside = F.pad(torch.ones_like(x[:1, :1]), (1, 1, 1, 1))
        edge = F.pad(x, (1, 1, 1, 1), mode="replicate")
        weights = inside + self.share * (1 - inside)
        return F.conv2d(edge * weights, self.own.weight, self.own.bias, self.own.stride, 0, 1, self.own.groups)


def _eps(network: nn.Module, strength: float) -> None:
    for module in network.modules():
        if isinstance(module, _NORMS):
            module.eps += strength * 1e-2


def _replaced(network: nn.Module, kind: type[nn.Module], made: Callable[[nn.Module], nn.Module]) -> None:
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, kind):
                setattr(module, name, made(child).eval())


def _gelu(network: nn.Module, strength: float) -> None:
    _replaced(network, nn.GELU, lambda _: _Gelu(strength))


def _padding(network: nn.Module, strength: float) -> None:
    first = next(one for one in network.modules() if _is_padded(one))
    _replaced(network, nn.Conv2d, lambda one: _Padded(one, strength) if one is first else one)  # type: ignore[arg-type]


def _channel(network: nn.Module, strength: float) -> None:
    """A channel in the middle of the network has another scale."""
    layers = [one for one in network.modules() if isinstance(one, nn.Conv2d | nn.Linear)]
    layers[len(layers) // 2].weight.data[1] *= 1 + strength


def _alpha(network: nn.Module, strength: float) -> None:
    """Scores of attention have another factor: queries are scaled, as all engines read weights."""
    for module in network.modules():
        if isinstance(module, Attention):
            module.qkv.weight.data[:WIDTH] *= 1 + strength
            module.qkv.bias.data[:WIDTH] *= 1 + strength
        if isinstance(module, LlamaAttention):
            module.q_proj.weight.data *= 1 + strength


def _rope(network: nn.Module, strength: float) -> None:
    """Angles of rotary positions have another base."""
    for module in network.modules():
        if isinstance(module, LlamaModel):
            module.turn(module.BASE * (1 + strength))


def _has(*kinds: type[nn.Module]) -> Callable[[nn.Module], bool]:
    return lambda network: any(isinstance(one, kinds) for one in network.modules())


def _is_padded(one: nn.Module) -> bool:
    return isinstance(one, nn.Conv2d) and any(one.padding)


class TooSmallError(ValueError):
    """A fault of any strength has a smaller effect."""


@dataclass(frozen=True)
class Fault:
    """A bug of ports.

    Attributes:
        plant: Puts it into a network, with a strength.
        fits: Whether a network has what it is planted in.
    """

    plant: Callable[[nn.Module, float], None]
    fits: Callable[[nn.Module], bool]


FAULTS = {
    "eps": Fault(_eps, lambda _: True),
    "GELU by tanh": Fault(_gelu, _has(nn.GELU)),
    "padding": Fault(_padding, lambda network: any(map(_is_padded, network.modules()))),
    "one channel": Fault(_channel, lambda _: True),
    "alpha": Fault(_alpha, _has(Attention, LlamaAttention)),
    "RoPE": Fault(_rope, _has(LlamaModel)),
}


@torch.no_grad()
def planted(case: Case, fault: str, times: float, declared: str) -> tuple[nn.Module, float]:
    """A network with a fault, and the fault's strength.

    Args:
        case: The network.
        fault: Its name.
        times: Its effect, in root mean squares of the typical rounding of the unit.
        declared: The unit's name.

    Raises:
        TooSmallError: No strength has so large an effect.
    """
    unit = next((one for one in UNITS if one.name == declared), UNITS[0])
    program = Program.of_run(case.network, (case.inputs,))
    truth = Lifted(program).outputs((case.inputs,), {})[""]
    noisy = Noisy(program, Noise(unit.precision, 0)).outputs((case.inputs,), {})[""]
    wanted = times * float((noisy - truth).square().mean().sqrt())

    right = copy.deepcopy(case.network).double()
    given = case.inputs.double() if case.inputs.is_floating_point() else case.inputs

    def wrong(strength: float) -> nn.Module:
        network = copy.deepcopy(case.network)
        FAULTS[fault].plant(network, strength)
        return network

    def effect(strength: float) -> float:
        found = wrong(strength).double()(given)
        return float((found - right(given)).square().mean().sqrt())

    strength = 1e-4
    for _ in range(_STEPS):
        found = effect(strength)
        if abs(found / wanted - 1) < _CLOSE:
            return wrong(strength).float(), strength
        strength *= min(max(wanted / found, 1e-2), 1e2)
    raise TooSmallError(f"no strength of {fault} is {times} times the noise of {declared}")
