"""What depends on the device by its name is listed here, each place with its reason and the test of its branches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from conv2attn.convert import SelfAttention2d, attention_from_conv
from conv2attn.convert.engines import ENGINES
from conv2attn.convert.engines.axes import AxisTable
from conv2attn.convert.engines.convolution import NARROW, Geometry, known_fault
from conv2attn.convert.engines.passes import stencils_are_fast
from conv2attn.convert.heads import regime_cache
from conv2attn.proofs.evidence.campaign.checks.bounds import engines_bound
from tests.device import PRETEND, synchronisations

ROOT = Path(__file__).parents[2]

# Where a tensor is made on the CPU (device="cpu"), whatever the default device, is no branch; nor is the meta device.
NAMES = {"cpu", "cuda", "mps", "xpu", "hpu", "hip"}
FLAGS = {"is_cpu", "is_cuda", "is_mps", "is_xpu", "is_hpu"}
MODULES = {"cuda", "cudnn", "mkldnn", "nnpack", "mps", "xpu", "hip"}

CONVERT = {
    "convert/attention/layer.py::SelfAttention._content_that_counts": "a gate is read only where that does not wait",
    "convert/certificate/network/certificate.py::_on_cpu": "a graph is exported, and bounds are computed, on the CPU",
    "convert/engines/axes.py::AxisTable.of": "a table of one call is read only where that does not wait",
    "convert/engines/convolution.py::_is_onednns": "what torch is known to compute wrongly, it does on the CPU",
    "convert/engines/literal.py::_Memory.of": "chunks of scores are as large as a CPU's caches",
    "convert/engines/passes.py::stencils_are_fast": "oneDNN convolves channel by channel fast, and only on the CPU",
    "convert/engines/sdpa.py::SdpaEngine.refusal": "fused kernels may round scores to TF32; refuses all but the CPU",
    "convert/engines/separable.py::_is_by_head": "blocks that fit a cache, chosen by reading the tables, are the CPU's",
    "convert/heads/regime_cache.py::": "the devices whose assertions always fail loudly",
    "convert/heads/regime_cache.py::asserts": "AMD's builds call their device cuda, and leave assertions out",
}
PROOFS = {
    "proofs/evidence/machine.py::describe_machine": "the GPU's name",
    "proofs/benchmark/measure.py::": "limits of what is measured",
    "proofs/benchmark/measure.py::peak_bytes": "CUDA's allocator counts its peak",
    "proofs/benchmark/measure.py::time_in_turns.clock": "a GPU is waited for before the clock is read",
    "proofs/benchmark/measure.py::settings_applied": "TF32 is a setting of CUDA's",
    "proofs/benchmark/run.py::check_device": "only these two can be measured",
    "proofs/evidence/arithmetic.py::certified_arithmetic": "settings of CUDA's",
    "proofs/evidence/campaign/run.py::run_campaign": "processes are for the CPU's cores",
}


def branches(path: Path) -> Iterator[str]:
    """The functions of a file, or the file itself, that name a device to decide something."""

    def search(node: ast.AST, name: str) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            name = f"{name}.{node.name}".removeprefix(".")
        if names_a_device(node):
            yield f"{path.relative_to(ROOT).as_posix()}::{name}"
        for child in ast.iter_child_nodes(node):
            yield from search(child, name)

    return search(ast.parse(path.read_text()), "")


def names_a_device(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in FLAGS | MODULES
    if isinstance(node, ast.Compare):
        return any(map(names_devices, [node.left, *node.comparators]))
    return isinstance(node, ast.Set | ast.Dict) and names_devices(node)


def names_devices(node: ast.AST) -> bool:
    """Whether it is a device's name, or a collection of such."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
        return any(map(names_devices, ast.iter_child_nodes(node)))
    return isinstance(node, ast.Constant) and node.value in NAMES


@pytest.mark.parametrize(("folder", "listed"), [("convert", CONVERT), ("proofs", PROOFS)])
def test_every_place_that_depends_on_the_device_is_listed(folder: str, listed: dict[str, str]) -> None:
    found = {place for path in (ROOT / folder).rglob("*.py") for place in branches(path)}
    assert found == set(listed)


@pytest.mark.parametrize(
    "text",
    ["x.is_cuda", "x.device.type == 'cpu'", "device in ('cpu', 'cuda')", "torch.cuda.synchronize()", "FAST = {'mps'}"],
)
def test_a_place_that_depends_on_the_device_is_seen(text: str) -> None:
    assert any(names_a_device(node) for node in ast.walk(ast.parse(text)))


def test_making_a_tensor_on_the_cpu_is_no_branch() -> None:
    assert not any(names_a_device(node) for node in ast.walk(ast.parse("torch.zeros(1, device='cpu')")))


def layer() -> SelfAttention2d:
    return attention_from_conv(nn.Conv2d(4, 4, 3, padding=1), alpha=8.0)


def test_a_table_of_one_call_is_in_one_block_where_reading_it_waits() -> None:
    band = torch.eye(200)
    assert len(AxisTable.of(band, 10**6, kept=False).blocks) > 1
    with synchronisations(PRETEND) as found:
        once = AxisTable.of(band.to(PRETEND), 10**6, kept=False)
    assert (len(once.blocks), found) == (1, ["aten.copy_.default"])  # of the band itself
    assert AxisTable.of(band.to(PRETEND), 10**6, kept=True).blocks == AxisTable.of(band, 10**6).blocks


def test_stencils_are_for_the_cpu() -> None:
    assert not stencils_are_fast(PRETEND, torch.float32)
    x = torch.rand(1, 4, 40, 30)
    here, there = layer(), layer().to(PRETEND)
    there.load_state_dict(here.state_dict())
    assert (there(x.to(PRETEND)).cpu() - here(x)).abs().max().item() <= engines_bound(here, x)


def test_only_convolutions_on_the_cpu_are_not_trusted() -> None:
    x, weight, geometry = torch.ones(1, 2, 5, 2), torch.ones(2, 1, 3, 2), Geometry.of(2, (1, 3), groups=2)
    assert known_fault(x, weight, geometry) == NARROW
    assert known_fault(x.to(PRETEND), weight.to(PRETEND), geometry) is None


def test_trained_positions_are_the_same_on_a_device_where_tables_are_not_read() -> None:
    x = torch.rand(1, 4, 8, 6)
    here, there = (layer().requires_grad_(True) for _ in range(2))
    there.load_state_dict(here.state_dict())
    there = there.to(PRETEND)
    assert (there(x.to(PRETEND)).cpu() - here(x)).abs().max().item() <= engines_bound(here, x)


def test_a_closed_gate_is_the_convolution_on_a_device_where_it_is_not_read() -> None:
    x = torch.rand(1, 4, 8, 6)
    here, there = layer(), layer()
    there.load_state_dict(here.state_dict())
    there.add_content(2, gated=True)
    there = there.to(PRETEND)
    with torch.no_grad():
        assert (there(x.to(PRETEND)).cpu() - here(x)).abs().max().item() <= engines_bound(here, x)


def test_the_sdpa_engine_is_for_the_cpu() -> None:
    one_hot = attention_from_conv(nn.Conv2d(4, 4, 3))
    assert ENGINES["sdpa"].refusal(one_hot) is None
    assert "TF32" in str(ENGINES["sdpa"].refusal(one_hot.to(PRETEND)))


def test_only_cuda_asserts_and_not_on_amd(monkeypatch: pytest.MonkeyPatch) -> None:
    assert regime_cache.asserts(torch.device("cuda", 1)) == (torch.version.hip is None)
    assert not any(regime_cache.asserts(torch.device(name)) for name in ("cpu", "mps", "xpu", "meta", "pretend"))
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert not regime_cache.asserts(torch.device("cuda"))
