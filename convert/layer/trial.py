"""Holds a reader against the class's own ``forward`` before a layer is converted.

Both compute the same small inputs from the same parameters, drawn at random: a reader that is wrong about an epsilon or
about one pixel of padding must not hide behind weights that are zero. Outputs, and the gradients of the input and of
every parameter, must agree bit for bit: in the exact regime the layer makes the very convolution call that the class
does. Both sides run on one thread of a CPU, since what computes a weight may add up its gradient in a part for each
thread, in any order of the parts. Done once for every configuration of a class, in every dtype and on every device that
it is met on.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from ..autocast import without_autocast
from ..spec import Convolution, ConvSpec
from ..subclasses.reader import Reader
from .read import OfSubclass, attention_read, convolution_read

_BATCH = 2
_passed: set[Hashable] = set()


def disagreement(conv: Convolution, reader: Reader) -> str | None:
    """Where a reader and a convolution's own ``forward`` differ, or None if they agree."""
    key = _configuration(conv, reader)
    if key in _passed:
        return None
    kind = type(conv).__name__
    try:
        found = _trial(conv, reader)
    except Exception as error:  # the class's and the reader's own code
        said = str(error).partition("\n")[0]
        return f"the reader of {kind} could not be held against its forward: {type(error).__name__}: {said}"
    if found is not None:
        return f"the reader of {kind} disagrees with its forward: {found}"
    _passed.add(key)
    return None


def _configuration(conv: Convolution, reader: Reader) -> Hashable:
    """All that can make two instances of a class compute differently, but the values of their parameters."""
    attributes = [
        (place, name, repr(value))
        for place, module in conv.named_modules()
        for name, value in sorted(vars(module).items())
        if not name.startswith("_")
    ]
    tensors = ((n, tuple(t.shape)) for n, t in itertools.chain(conv.named_parameters(), conv.named_buffers()))
    return type(conv), reader, *attributes, *tensors, conv.weight.dtype, str(conv.weight.device)


@torch.inference_mode(False)
@torch.enable_grad()
def _trial(conv: Convolution, reader: Reader) -> str | None:
    layer = attention_read(conv, reader)
    random = torch.Generator().manual_seed(0)
    for name in layer.origin.parameters:
        if layer._parameters[name] is not None:
            layer.register_parameter(name, nn.Parameter(_drawn(layer._parameters[name], random)))
    for name, buffer in layer._buffers.items():
        layer._buffers[name] = None if buffer is None else buffer.detach().clone()
    own = convolution_read(layer)
    with without_autocast(conv.weight.device), _one_thread():
        for size in _sizes(layer.spec):
            x = _drawn(conv.weight.new_empty(_BATCH, layer.spec.in_channels, *size), random)
            found = _difference(own, layer, x, random)
            if found is not None:
                return f"{found} for an input of {' x '.join(map(str, size))} pixels"
    return None


@contextmanager
def _one_thread() -> Iterator[None]:
    """Lets PyTorch compute on one thread, so that every sum has one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _difference(own: Convolution, layer: OfSubclass, x: Tensor, random: torch.Generator) -> str | None:
    """Which of outputs and gradients differ."""
    parameters = {"input": x.requires_grad_(), **dict(own.named_parameters())}
    expected, output = own.forward(x), layer.forward(x)
    if expected.shape != output.shape:
        return f"the output is {list(expected.shape)}, not {list(output.shape)}"
    if not _same(expected, output):
        return f"the output differs by up to {float((expected - output).detach().abs().max()):.3g}"
    cotangent = _drawn(expected, random)
    both = (torch.autograd.grad(y, list(parameters.values()), cotangent, allow_unused=True) for y in (expected, output))
    for name, wanted, got in zip(parameters, *both, strict=True):
        if (wanted is None) != (got is None):
            return f"the gradient of {name} is missing on one side"
        if wanted is not None and got is not None and not _same(wanted, got):
            return f"the gradient of {name} differs by up to {float((wanted - got).abs().max()):.3g}"
    return None


def _same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)


def _drawn(like: Tensor | None, random: torch.Generator) -> Tensor:
    """Normal numbers of a tensor's shape, dtype and device."""
    if like is None:
        raise TypeError("there is no tensor to draw")
    return torch.randn(like.shape, generator=random).to(like.detach())


def _sizes(spec: ConvSpec) -> Iterator[tuple[int, ...]]:
    """Sizes that the kernel fits into with and without padding, of different remainders by the stride on each axis."""
    for extra in (2, 5):
        along = zip(spec.reach, spec.stride, strict=True)
        yield tuple(reach + extra + (stride + 1) * axis for axis, (reach, stride) in enumerate(along))
