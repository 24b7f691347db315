"""Calls of F.conv2d that torch 2.13 computes wrongly or never, or crashes on; docs/wrong-convolutions.md shows them.

Run as a program, it computes all of them with ``convolve``, and prints how many it computed. A test does so in a
process of its own, since a call that never returns must be ended, and for several sets of a CPU's instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from conv2attn.convert.engines.convolution import NARROW, Geometry, convolve, known_fault

MEMORY_FORMATS = (torch.contiguous_format, torch.channels_last)


class Call(NamedTuple):
    """Shapes, dtype and geometry of a convolution call, and whether it adds ones as a bias."""

    image: tuple[int, int, int, int]
    kernel: tuple[int, int, int, int]
    geometry: Geometry
    dtype: torch.dtype = torch.bfloat16
    has_bias: bool = False

    def tensors(self, memory_format: torch.memory_format) -> tuple[Tensor, Tensor]:
        """Image and kernel of numbers -1, 0 and 1, whose sums no precision rounds here."""
        generator = torch.Generator().manual_seed(sum(self.image))
        image, kernel = (
            torch.randint(-1, 2, shape, generator=generator).to(self.dtype) for shape in (self.image, self.kernel)
        )
        return laid_out(image, memory_format), kernel


WRONG = {
    "one strided column, depthwise": Call((2, 2, 40, 2), (6, 1, 3, 2), Geometry.of(2, (1, 3), (1, 1), groups=2)),
    "one strided column, one channel": Call((3, 1, 4, 4), (17, 1, 3, 4), Geometry.of(2, (1, 3)), torch.float32),
    "one strided column, patches": Call((2, 16, 5, 4), (1, 16, 3, 4), Geometry.of(2, (1, 4))),
    "a wide depthwise kernel": Call((1, 8, 3, 32), (8, 1, 1, 19), Geometry.of(2, padding=(0, 9), groups=8)),
    "a wide kernel": Call((1, 8, 1, 22), (2, 8, 1, 12), Geometry.of(2)),
    "a stride as wide as the kernel": Call((2, 16, 5, 8), (1, 16, 3, 4), Geometry.of(2, (1, 4))),
}
CRASHES = {
    "beyond a narrow image, biased": Call(
        (3, 3, 5, 1), (1, 3, 3, 1), Geometry.of(2, (3, 2), (2, 3), (1, 2)), torch.float32, has_bias=True
    ),
    "beyond a narrow image": Call((2, 32, 3, 1), (32, 2, 2, 1), Geometry.of(2, (3, 3), (0, 2), (1, 3), 16)),
    "beyond a narrow image, a wider kernel": Call((3, 8, 10, 1), (8, 8, 3, 4), Geometry.of(2, (1, 4), (2, 7), (2, 2))),
    "rows that see padding only": Call((1, 1, 2, 5), (16, 1, 4, 4), Geometry.of(2, (3, 3), (7, 1), (3, 1))),
}
WRONG_GRADIENTS = {
    "taps that see padding only": Call((2, 3, 6, 1), (3, 3, 1, 16), Geometry.of(2, (3, 2), (0, 15))),
    "taps that see padding only, contiguous": Call((3, 17, 4, 2), (1, 17, 4, 4), Geometry.of(2, (4, 4), (0, 3))),
    "dilated rows of wide images": Call((1, 24, 4, 43), (24, 1, 2, 7), Geometry.of(2, (1, 1), (1, 2), (3, 1), 24)),
    "a stride larger than the image": Call((1, 48, 9, 1), (48, 2, 5, 1), Geometry.of(2, (2, 2), (0, 1), (2, 3), 24)),
}
BESIDE = {
    "one tap that reads every other pixel": Call((2, 4, 8, 8), (4, 4, 1, 1), Geometry.of(2, (2, 2)), torch.float32),
    "one tap that reads every other column": Call((1, 2, 9, 8), (3, 2, 1, 1), Geometry.of(2, (1, 2)), torch.float32),
}
KNOWN = {**WRONG, **CRASHES, **WRONG_GRADIENTS, **BESIDE}


def laid_out(x: Tensor, memory_format: torch.memory_format) -> Tensor:
    """A copy with the strides of a memory format, also where one channel or column makes several formats the same."""
    return torch.empty_like(x, memory_format=memory_format).copy_(x)


def poison() -> None:
    """Fills memory that is free with NaN, so that results which are not written to the end are seen."""
    for count in (16, 64, 1024, 2**14, 2**16):
        torch.full((count,), float("nan"))


def disagreement(call: Call, memory_format: torch.memory_format) -> str | None:
    """What of a call, its result and its gradients, does not equal that of float64, if anything."""
    x, weight = (tensor.requires_grad_() for tensor in call.tensors(memory_format))
    bias = torch.ones(len(weight), dtype=call.dtype) if call.has_bias else None
    poison()
    output = convolve(x, weight, bias, call.geometry)
    upstream = torch.randint(-1, 2, output.shape, generator=torch.Generator().manual_seed(1)).to(call.dtype)
    poison()
    found = {"output": output, **_gradients(output, x, weight, upstream)}
    x64, weight64 = (tensor.detach().double().contiguous().requires_grad_() for tensor in (x, weight))
    exact = F.conv2d(x64, weight64, None if bias is None else bias.double(), *call.geometry)
    expected = {"output": exact, **_gradients(exact, x64, weight64, upstream.double())}
    wrong = [name for name in found if not torch.equal(found[name].detach().double(), expected[name].detach())]
    return ", ".join(wrong) or None


class FaultyTorch(TorchFunctionMode):
    """Torch as it is on a CPU where results that are one column wide, with a stride, are garbage."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        output = func(*args, **(kwargs or {}))
        if func is not F.conv2d or output.dtype == torch.float64:
            return output
        x, weight, _, stride, padding, dilation, groups = args
        return (
            output * float("nan")
            if known_fault(x, weight, Geometry(stride, padding, dilation, groups)) == NARROW
            else output
        )


def _gradients(output: Tensor, x: Tensor, weight: Tensor, upstream: Tensor) -> dict[str, Tensor]:
    gradients = torch.autograd.grad(output, [x, weight], upstream)
    return dict(zip(("gradient of the input", "gradient of the kernel"), gradients, strict=True))


def main() -> None:
    """Computes every call in every memory format."""
    torch.set_num_threads(1)
    count = 0
    for name, call in KNOWN.items():
        for memory_format in MEMORY_FORMATS:
            wrong = disagreement(call, memory_format)
            if wrong is not None:
                raise SystemExit(f"{name}, {memory_format}: {wrong}")
            count += 1
    print(count)


if __name__ == "__main__":
    main()
