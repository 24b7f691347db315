"""What ``same`` says of an engine: of its outputs as a callable, and of its values as a file that was recorded.

All rules are the library's. As a callable, the engine is a black box that runs again at inputs nearby. As a file, it
has its results inside by the names of modules, which the engine gives as further outputs of the same network: from
them, ``same`` tells where the two part, and whether results err to one side.
"""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import conv2attn as c2a
from benchmarks.engines.port import Call
from conv2attn.convert.programs.noise import Precision
from conv2attn.convert.sameness.nearby import Averaged
from conv2attn.convert.sameness.units import ALL, Unit
from conv2attn.convert.sameness.verdict import Sameness

FLOAT32 = Unit("float32", Precision(), 2.0**-24)
UNITS = (FLOAT32, *ALL)
STORED = {"float16 stored": torch.float16, "bfloat16 stored": torch.bfloat16}


@dataclass(frozen=True)
class Judged:
    """What is said of an engine's outputs.

    Attributes:
        verdict: In words.
        ratio: The largest difference, in units of float32's typical rounding.
        unit: The one that explains it, or was tried; "" for none.
        unit_ratio: The largest difference, in units of its typical rounding; None for none.
        averaged: How much of it is the same at inputs nearby, where a coarser unit was tried.
        sentence: The verdict.
        report: All that is said.
    """

    verdict: str
    ratio: float
    unit: str
    unit_ratio: float | None
    averaged: Averaged | None
    sentence: str
    report: str


@dataclass(frozen=True)
class Inside:
    """What is said of an engine's values.

    Attributes:
        inside_verdict: In words.
        inside_sentence: The verdict.
        recorded_in: The type that values were recorded in, and the network was compared in.
        inside_ratio: The largest difference of an output, in units of that type's typical rounding.
        values: The number of values that were recorded, or why there are none.
        where: Places where the two part.
        bias: Modules that err to one side, with their mean error.
    """

    inside_verdict: str
    inside_sentence: str
    recorded_in: str
    inside_ratio: float
    values: int | str
    where: tuple[str, ...]
    bias: tuple[str, ...]


def judged(network: nn.Module, call: Call, inputs: Tensor) -> Judged:
    """What is said of an engine that is called.

    Args:
        network: What the engine should compute.
        call: The engine's, of the same inputs.
        inputs: Those of the comparison.
    """
    found = c2a.same(network, lambda x: call(x).float(), inputs)
    averaged = found.averaged
    unit, ratio = _unit(found, averaged)
    return Judged(found.verdict, found.ratio, unit, ratio, averaged, found.sentence, " ".join(found.lines()))


def _unit(found: Sameness, averaged: Averaged | None) -> tuple[str, float | None]:
    if found.verdict in ("rounding", "biased rounding", "same bits"):
        return FLOAT32.name, found.ratio
    return ("", None) if averaged is None else (averaged.unit, averaged.ratio)


class Tapped(nn.Module):
    """A network that gives the results of its modules, too.

    Args:
        network: The network.
        names: Of the modules.
    """

    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self.names = network, names
        self._kept: dict[str, Tensor] = {}
        for name in names:
            network.get_submodule(name).register_forward_hook(
                partial(self._keep, name)
            )  # which copies refer to themselves

    def _keep(self, name: str, module: nn.Module, args: object, output: Tensor) -> None:
        self._kept[name] = output

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """The output, then the results of the modules."""
        self._kept.clear()
        output = self.network(x)
        return (output, *(self._kept[name] for name in self.names))


def modules(network: nn.Module) -> tuple[str, ...]:
    """The names of the modules whose results are tapped: those that hold parameters of their own, and GELU.

    What a module of a single operation without parameters gives, as ``ReLU``, is often fused into another's.
    """
    found = []
    for name, one in network.named_modules():
        has_own = any(True for _ in one.parameters(recurse=False))
        if name and (has_own or isinstance(one, nn.GELU)) and not isinstance(one, nn.Embedding):
            found.append(name)
    return tuple(found)


def inside(
    network: nn.Module, calls: tuple[Tensor, ...], names: tuple[str, ...], inputs: Tensor, declared: str
) -> Inside:
    """What is said of an engine's values, in a file.

    Args:
        network: What the engine should compute.
        calls: The engine's output, and the results of its modules.
        names: Of these modules.
        inputs: Those of the comparison.
        declared: The unit that the engine declares. Where it stores all values in half precision, they are recorded in
            it, beside the network in it.
    """
    dtype = STORED.get(declared, torch.float32)
    if any(not torch.equal(one.to(dtype).to(one.dtype), one) for one in calls):
        dtype = torch.float32
    network = copy.deepcopy(network).to(dtype)
    given = inputs.to(dtype) if inputs.is_floating_point() else inputs
    tensors = {"input": given, "output": calls[0].to(dtype)}
    tensors |= {name: one.to(dtype) for name, one in zip(names, calls[1:], strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "engine.safetensors"
        save_file({name: one.contiguous().clone() for name, one in tensors.items()}, path)
        found = c2a.same(network, path)
    where = tuple(str(one) for one in found.where)
    bias = tuple(f"{one.name}: {one.mean:.2f} +- {one.error:.2f} {one.way}" for one in found.bias)
    in_type = str(dtype).removeprefix("torch.")
    return Inside(found.verdict, found.sentence, in_type, found.ratio, len(names), where, bias)
