"""Which calls of a convolution are wrong on this processor: ``docs/wrong-convolutions.md`` has the table.

    python benchmarks/wrong_convolutions.py [--seconds 20]

Torch makes each call in a forked process of its own, since some crash and some never return. Engines make their own
convolutions by ``convert.engines.convolution.convolve``, which must be right everywhere, in this process. Result and
gradients are compared with float64's; numbers are -1, 0 and 1, whose sums no precision rounds here. ``same`` must find
each call that is wrong, by its result or by its gradients.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn

from conv2attn.convert.engines.convolution import Geometry, convolve
from conv2attn.convert.sameness.same import same

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}
RIGHT, CRASHES, NEVER = "right", "crashes", "does not return"
_CALLS: tuple[Callable[..., Tensor], ...] = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED: tuple[Callable[..., Tensor], ...] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
_TIMES = 20  # a fault may depend on what freed memory holds


class Call(NamedTuple):
    """Shapes, dtype and geometry of a convolution call, and whether it adds ones as a bias.

    A transposed one has an output padding.
    """

    image: tuple[int, ...]
    kernel: tuple[int, ...]
    geometry: Geometry
    dtype: torch.dtype = torch.bfloat16
    has_bias: bool = False
    output_padding: tuple[int, ...] | None = None

    @property
    def axes(self) -> int:
        """Axes of the image beside batch and channels."""
        return len(self.image) - 2

    def bias(self, dtype: torch.dtype) -> Tensor | None:
        """Ones, where it has a bias."""
        outputs = self.kernel[0] if self.output_padding is None else self.kernel[1] * self.geometry.groups
        return torch.ones(outputs, dtype=dtype) if self.has_bias else None

    def torchs(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Torch's own call."""
        stride, padding, dilation, groups = self.geometry
        if self.output_padding is None:
            return _CALLS[self.axes - 1](x, weight, bias, stride, padding, dilation, groups)
        return _TRANSPOSED[self.axes - 1](x, weight, bias, stride, padding, self.output_padding, groups, dilation)

    def tensors(self, memory_format: torch.memory_format) -> tuple[Tensor, Tensor]:
        """Image and kernel."""
        generator = torch.Generator().manual_seed(sum(self.image))
        image, kernel = (
            torch.randint(-1, 2, shape, generator=generator).to(self.dtype) for shape in (self.image, self.kernel)
        )
        return laid_out(image, memory_format), kernel


def strided(
    stride: int | tuple[int, int] = 1, pad: int | tuple[int, int] = 0, by: int | tuple[int, int] = 1
) -> Geometry:
    """A geometry in one group: stride, zeros around the image, and pixels between taps."""
    stride, pad, by = (each if isinstance(each, tuple) else (each, each) for each in (stride, pad, by))
    return Geometry(stride, pad, by)


TABLE = {
    "one strided column, depthwise": Call((2, 2, 40, 2), (6, 1, 3, 2), Geometry((1, 3), (1, 1), (1, 1), 2)),
    "one strided column, one channel": Call((3, 1, 4, 4), (17, 1, 3, 4), strided((1, 3)), torch.float32),
    "one strided column, patches": Call((2, 16, 5, 4), (1, 16, 3, 4), strided((1, 4))),
    "a wide depthwise kernel": Call((1, 8, 3, 32), (8, 1, 1, 19), Geometry((1, 1), (0, 9), (1, 1), 8)),
    "a wide kernel": Call((1, 8, 1, 22), (2, 8, 1, 12), strided()),
    "a stride as wide as the kernel": Call((2, 16, 5, 8), (1, 16, 3, 4), strided((1, 4))),
    "beyond a narrow image, biased": Call(
        (3, 3, 5, 1), (1, 3, 3, 1), strided((3, 2), (2, 3), (1, 2)), torch.float32, has_bias=True
    ),
    "beyond a narrow image": Call((2, 32, 3, 1), (32, 2, 2, 1), Geometry((3, 3), (0, 2), (1, 3), 16)),
    "beyond a narrow image, a wider kernel": Call((3, 8, 10, 1), (8, 8, 3, 4), strided((1, 4), (2, 7), 2)),
    "rows that see padding only": Call((1, 1, 2, 5), (16, 1, 4, 4), strided(3, (7, 1), (3, 1))),
    "taps that see padding only": Call((2, 3, 6, 1), (3, 3, 1, 16), strided((3, 2), (0, 15))),
    "taps that see padding only, contiguous": Call((3, 17, 4, 2), (1, 17, 4, 4), strided(4, (0, 3))),
    "dilated rows of wide images": Call((1, 24, 4, 43), (24, 1, 2, 7), Geometry((1, 1), (1, 2), (3, 1), 24)),
    "a stride larger than the image": Call((1, 48, 9, 1), (48, 2, 5, 1), Geometry((2, 2), (0, 1), (2, 3), 24)),
    "one tap that reads every other pixel": Call((32, 4, 32, 32), (8, 4, 1, 1), strided(2), torch.float32),
    "a transposed volume whose outputs no tap reaches": Call(
        (2, 16, 5, 3, 7), (16, 2, 2, 2, 3), Geometry((2, 1, 2), (0, 0, 0), (1, 1, 2)), output_padding=(1, 0, 0)
    ),
    "a strided sequence": Call((2, 16, 40), (3, 16, 3), Geometry((4,), (0,), (1,))),
    "a volume dilated along its rows": Call(
        (1, 16, 4, 5, 20), (4, 16, 2, 2, 3), Geometry((1, 1, 1), (0, 2, 0), (1, 3, 1))
    ),
}


def laid_out(x: Tensor, memory_format: torch.memory_format) -> Tensor:
    """A copy with the strides of a memory format, also where one channel or column makes several formats the same.

    Sequences have one format only.
    """
    if memory_format == torch.channels_last:
        memory_format = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim, torch.contiguous_format)
    return torch.empty_like(x, memory_format=memory_format).copy_(x)


def disagreement(call: Call, memory_format: torch.memory_format, caller: str = "engines") -> str | None:
    """Names the parts of a call, result and gradients, that do not equal float64's; None if all do."""
    x, weight = (tensor.requires_grad_() for tensor in call.tensors(memory_format))
    bias = call.bias(call.dtype)
    _poison()
    output = call.torchs(x, weight, bias) if caller == "torch" else convolve(x, weight, bias, call.geometry)
    upstream = torch.randint(-1, 2, output.shape, generator=torch.Generator().manual_seed(1)).to(call.dtype)
    _poison()
    found = {"result": output, **_gradients(output, x, weight, upstream)}
    x64, weight64 = (tensor.detach().double().contiguous().requires_grad_() for tensor in (x, weight))
    exact = call.torchs(x64, weight64, call.bias(torch.float64))
    expected = {"result": exact, **_gradients(exact, x64, weight64, upstream.double())}
    wrong = [name for name in found if not torch.equal(found[name].double(), expected[name].to(call.dtype).double())]
    return ", ".join(wrong) or None


def _gradients(output: Tensor, x: Tensor, weight: Tensor, upstream: Tensor) -> dict[str, Tensor]:
    image, kernel = torch.autograd.grad(output, [x, weight], upstream)
    return {"gradient of the image": image, "gradient of the kernel": kernel}


def _poison() -> None:
    """Fills memory that is free with NaN, so that results which are not written to the end are seen."""
    for count in (16, 64, 1024, 2**14, 2**16):
        torch.full((count,), float("nan"))


class Result(nn.Module):
    """A call's result."""

    def __init__(self, call: Call, weight: Tensor) -> None:
        super().__init__()
        self.call, self.weight = call, nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        """Calls it."""
        return self.call.torchs(x, self.weight, self.call.bias(x.dtype))


class Gradients(Result):
    """A call's gradients, by the operation that torch makes them with."""

    def forward(self, x: Tensor) -> Tensor:
        """Those of the sum of its outputs, of image and kernel, one after the other."""
        upstream = torch.ones_like(super().forward(x))
        stride, padding, dilation, groups = self.call.geometry
        image, kernel, _ = torch.ops.aten.convolution_backward(
            *(upstream, x, self.weight, None, stride, padding, dilation, self.call.output_padding is not None),
            *(self.call.output_padding or (0,) * self.call.axes, groups, [True, True, False]),
        )
        return torch.cat([image.flatten(), kernel.flatten()])


def said(name: str, lies: str) -> str:
    """The verdict of ``same`` on a call of the table beside the same call in float64, in this process."""
    call = TABLE[name]
    image, weight = call.tensors(MEMORY_FORMATS[lies])
    sentence = RIGHT
    for _ in range(_TIMES):
        for kind in (Result, Gradients):
            _poison()
            found = same(kind(call, weight.double()).eval(), kind(call, weight).eval(), image)
            if found.exit_code:
                return found.sentence
            sentence = found.sentence
    return sentence


def found_here(work: Callable[[str, str], str], name: str, lies: str, seconds: float) -> str:
    """The answer of a child process about a call of the table, or how the process ends."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(theirs, work, name, lies))
    process.start()
    theirs.close()
    try:
        return str(ours.recv()) if ours.poll(seconds) else NEVER
    except EOFError:
        return CRASHES
    finally:
        process.kill()
        process.join()


def _send(pipe: Any, work: Callable[[str, str], str], name: str, lies: str) -> None:
    pipe.send(work(name, lies))


def outcome(name: str, lies: str, caller: str = "torch") -> str:
    """Whether a caller computes a call of the table rightly in this process, or what is wrong."""
    wrong = (disagreement(TABLE[name], MEMORY_FORMATS[lies], caller) for _ in range(_TIMES))
    return next((f"wrong {what}" for what in wrong if what is not None), RIGHT)


def main(
    seconds: Annotated[float, typer.Option(help="Seconds that a call may take.")] = 20,
    engines: Annotated[bool, typer.Option("--engines", help="Make the engines' calls only.")] = False,
) -> None:
    """Prints a table of calls, and of what torch makes of each on this processor; the engines' own must be right."""
    torch.set_num_threads(1)
    own = [name for name, each in TABLE.items() if each.output_padding is None]  # engines make no transposed calls
    wrong = [f"{name}, {each}" for name in own for each in MEMORY_FORMATS if outcome(name, each, "engines") != RIGHT]
    print(f"Wrong as engines make them: {'; '.join(wrong) or 'none'}", flush=True)
    if not engines:
        print(f"| call ({torch.backends.cpu.get_cpu_capability()}) | {' | '.join(MEMORY_FORMATS)} |")
        print("| --- | --- | --- |")
        missed = []
        for name in TABLE:
            cells = {each: found_here(outcome, name, each, seconds) for each in MEMORY_FORMATS}
            print(f"| {name} | {' | '.join(cells.values())} |", flush=True)
            missed += [f"{name}, {each}" for each, cell in cells.items() if _is_missed(name, each, cell, seconds)]
        print(f"Wrong and not found by same: {'; '.join(missed) or 'none'}")
        wrong += missed
    raise typer.Exit(int(bool(wrong)))


def _is_missed(name: str, lies: str, cell: str, seconds: float) -> bool:
    """Whether ``same`` calls a result right that is wrong."""
    if not cell.startswith("wrong"):
        return False
    sentence = found_here(said, name, lies, 6 * seconds)
    print(f"    same, {lies}: {sentence}", flush=True)
    return sentence.startswith(("Same", "Rounding", RIGHT))


if __name__ == "__main__":
    typer.run(main)
