"""Trains a converted network in two processes, by DDP and FSDP2, and in one, and compares every number.

``python -m tests.convert.export.two_processes STORE`` starts both; STORE is a path of a file that they meet at.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from conv2attn.convert import convert_model, graft

PROCESSES, STEPS, RATE = 2, 3, 0.05


def converted(alpha: float | None) -> nn.Module:
    """Two layers whose positions are trained too."""
    model: nn.Module = convert_model(cnn(), alpha=alpha).model
    return model.requires_grad_(True)


def grafted(*, beside: bool) -> nn.Module:
    """Two layers with spare heads at 0."""
    return graft(cnn(), where=["0", "2"], heads=2, positions=beside, beside=beside).model


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, (3, 2), stride=2))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "exact": partial(converted, None),
    "soft": partial(converted, 2.0),
    "front": partial(grafted, beside=False),
    "beside": partial(grafted, beside=True),
}


def data_parallel(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)


def sharded(model: nn.Module) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh  # seconds, which who collects tests need not spend
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (PROCESSES,))
    for layer in (model.get_submodule("0"), model.get_submodule("2")):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


WAYS = {"ddp": data_parallel, "fsdp2": sharded}


def trained(model: nn.Module, parts: list[Tensor]) -> tuple[dict[str, Tensor], Tensor]:
    """The state after some steps on these parts of a batch, and the output for the first."""
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for part in parts:
            (model(part).square().mean() / len(parts)).backward()
        optimizer.step()
    state: dict[str, Any] = model.state_dict()
    whole = {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in state.items()}
    return {name.removeprefix("module."): value for name, value in whole.items()}, model(parts[0]).detach()


def compare(rank: int, store: str) -> None:
    """What one of the processes does; the first prints."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    batch = torch.randn(2 * PROCESSES, 3, 9, 12, generator=torch.Generator().manual_seed(7))
    parts = list(batch.split(2))
    for way, wrap in WAYS.items():
        for name, network in NETWORKS.items():
            state, output = trained(wrap(network()), [parts[rank]])
            expected, _ = trained(network(), parts)
            same = state.keys() == expected.keys() and all(torch.equal(state[key], expected[key]) for key in state)
            alone = network()
            alone.load_state_dict(expected)
            same = same and torch.equal(output, alone(parts[rank]))
            start = network().state_dict()
            moved = not any(
                torch.equal(state[key], start[key]) for key in start if key.endswith(("weight", "spare_out"))
            )
            if rank == 0:
                print(f"{way}:{name}:{'same' if same and moved else 'different'}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(compare, args=(sys.argv[1],), nprocs=PROCESSES)
