"""Spreads heads over two processes, and compares outputs, gradients and a step of training with one process.

``python -m tests.convert.export.two_processes_of_heads STORE`` starts both; STORE is a path of a file to meet at.
"""

from __future__ import annotations

import copy
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from torch.multiprocessing.spawn import spawn

from conv2attn.convert import ConversionError, SelfAttention, convert_model
from conv2attn.convert.export.head_parallel import HeadParallel
from tests.integers import with_integers

PROCESSES = 2
LAYERS: dict[str, nn.Module] = {
    "grouped": nn.Conv2d(4, 6, (2, 3), stride=(2, 1), padding=1, groups=2),
    "transposed": nn.ConvTranspose2d(4, 6, (3, 2), 2, padding=1, bias=False),
    "sequence": nn.Conv1d(4, 5, 4, dilation=2, padding="same", padding_mode="circular"),
}


def whole(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def trained(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, every gradient, that of the image, and the output after a step."""
    x = x.clone().requires_grad_(True)
    output = model(x)
    output.sum().backward()
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    gradients = [whole(parameter.grad) for parameter in parameters]
    torch.optim.SGD(model.parameters(), 0.5).step()
    return [output.detach(), whole(x.grad), *gradients, model(x).detach()]


def compare(rank: int, store: str) -> None:
    """What one of the processes does; the first prints."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=PROCESSES)
    mesh = init_device_mesh("cpu", (PROCESSES,))
    said = []
    for name, conv in LAYERS.items():
        torch.manual_seed(0)
        model = with_integers(nn.Sequential(conv))
        alone = convert_model(model).model.train()
        layer = alone.get_submodule("0")
        assert isinstance(layer, SelfAttention)
        spread = parallelize_module(copy.deepcopy(alone), mesh, {"0": HeadParallel()})
        alone.get_submodule("0").engine = "literal"  # type: ignore[assignment]
        x = torch.randint(-3, 4, (2, layer.in_channels, *(5, 7)[: layer.spec.axes])).float()
        pairs = list(zip(trained(spread, x), trained(alone, x), strict=True))
        weight: Tensor = spread.get_parameter("0.weight")
        assert isinstance(weight, DTensor)
        fewer = weight.to_local().numel() < layer.weight.numel()
        said.append(f"{name}:{'same' if fewer and all(torch.equal(*pair) for pair in pairs) else 'different'}")
    soft = convert_model(LAYERS["grouped"].double(), alpha=2.0).model
    assert isinstance(soft, SelfAttention)
    soft.train_positions()
    spread = parallelize_module(copy.deepcopy(soft), mesh, HeadParallel())
    x = torch.rand(2, 4, 5, 7, dtype=torch.float64) * 2 - 1
    pairs = list(zip(trained(spread, x), trained(soft, x), strict=True))
    # Sums of at most 2^12 products whose absolute values add up to less than 2^14, in double precision.
    close = len(pairs) == 7 and all((ours - theirs).abs().max() < 2.0**-24 for ours, theirs in pairs)
    said.append(f"soft:{'close' if close else 'different'}")
    for module in (nn.Linear(2, 2), convert_model(nn.Conv2d(2, 2, 1)).model):
        try:
            parallelize_module(module, mesh, HeadParallel())
        except ConversionError as error:
            said.append("refused:" + ("heads" if "HeadParallel needs" in str(error) else "taps"))
    if rank == 0:
        print(*said, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    spawn(compare, args=(sys.argv[1],), nprocs=PROCESSES)
