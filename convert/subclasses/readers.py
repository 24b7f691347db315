"""Readers: descriptions of what subclasses of convolutions compute, by someone who knows.

A subclass may compute anything in its ``forward``. A reader says which convolution that is: its geometry, and the
kernel that it makes of its parameters at every call. ``libraries.py`` has those of well-known classes.

What a reader says is not believed: ``disagreement`` holds it against the class's own ``forward`` before a layer is
converted. Both compute the same small inputs from the same parameters, drawn at random: a reader that is wrong about an
epsilon or about one pixel of padding must not hide behind weights that are zero. Outputs, and the gradients of the
input and of every parameter, must agree bit for bit with the call that a layer makes in the exact regime, of the
reader's geometry and weight: it is the very convolution call that the class makes. Both sides run on one thread of a
CPU, since what computes a weight may add up its gradient in a part for each thread, in any order of the parts. Done
once for every configuration of a class, in every dtype and on every device that it is met on.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ..context import without_autocast
from ..engines.convolution import own_call
from ..errors import ConversionError
from ..spec import CONVOLUTIONS, Convolution, ConvSpec
from .methods import CALLED
from .padded import spec_of


def own_weight(parts: Any) -> Tensor:
    """The weight as it is stored."""
    weight: Tensor = parts.weight
    return weight


@dataclass(frozen=True)
class Reader:
    """Reads the geometry and weights that instances of one class compute with.

    Attributes:
        spec: From an instance to its geometry; by default what PyTorch's class would make of its attributes.
        weight: From the instance's parameters, buffers and attributes, each under its own name (``parts.weight``,
            ``parts.eps``), to the weight that its ``forward`` convolves with, [``ConvSpec.weight_shape``], bit for bit;
            by default the parameter ``weight``. A function at the top of a module, if networks are to be pickled.
    """

    spec: Callable[[Any], ConvSpec] = ConvSpec.from_conv
    weight: Callable[[Any], Tensor] = own_weight


# What every module has of its own, and neither a copy of its class nor a reader needs.
HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_is_full_backward_hook",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
_TENSORS = ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")
_BATCH = 2  # inputs of a trial

_READERS: dict[type[nn.Module], Reader] = {}
_BUILT_IN: dict[str, Reader] = {}
_passed: set[Hashable] = set()  # configurations whose reader agrees


def register_reader(cls: type[Convolution], reader: Reader) -> None:
    """Makes the instances of exactly this class convertible; its subclasses stay refused.

    The reader is held against the class's own ``forward``, outputs and gradients bit for bit, for every configuration
    that is met; where they differ, the layer is refused and the message says where.

    Args:
        cls: A subclass of one of PyTorch's convolutions.
        reader: What its instances compute. One that was registered before is replaced.

    Raises:
        ConversionError: The class is not a subclass of a convolution, or the reader is no ``Reader``.

    Examples:
        >>> from conv2attn.convert import Reader
        >>> class Scaled(torch.nn.Conv2d):
        ...     def forward(self, x):
        ...         return self._conv_forward(x, 2 * self.weight, self.bias)
        >>> c2a.register_reader(Scaled, Reader(weight=lambda parts: 2 * parts.weight))
        >>> c2a.attention_from_conv(Scaled(3, 8, 3)).num_heads
        9
    """
    plain = tuple(CONVOLUTIONS.values())
    if not (isinstance(cls, type) and issubclass(cls, plain) and cls not in plain):
        raise ConversionError(f"cls must be a subclass of one of PyTorch's convolutions; got {cls!r:.100}")
    if not isinstance(reader, Reader):
        raise ConversionError(f"reader must be a Reader; got {type(reader).__name__}")
    _READERS[cls] = reader


def build_in(name: str, reader: Reader) -> None:
    """Adds the reader of a class in a library that may not be installed, by the class's qualified name."""
    _BUILT_IN[name] = reader


def reader_of(cls: type) -> Reader | None:
    """The reader of exactly this class, or None if it has none."""
    if cls in _READERS:
        return _READERS[cls]
    return _BUILT_IN.get(qualified_name(cls)) if issubclass(cls, nn.Module) else None


def geometry(conv: Convolution) -> ConvSpec:
    """The geometry of a convolution, as its reader says where it has one."""
    reader = reader_of(type(conv))
    return spec_of(conv) if reader is None else reader.spec(conv)


def qualified_name(cls: type) -> str:
    """Where a class is defined."""
    return f"{cls.__module__}.{cls.__qualname__}"


@dataclass(frozen=True)
class Origin:
    """The attributes of a convolution beside its tensors.

    Attributes:
        kind: Its class.
        attributes: Its attributes, without tensors of the state dict and hooks.
        modules: Modules that it holds, which have no tensors.
        parameters: Names of its parameters in their order.
        buffers: Names of its buffers, each with whether it is in the state dict.
        reader: What its class computes.
    """

    kind: type[Convolution]
    attributes: Mapping[str, Any]
    modules: Mapping[str, nn.Module]
    parameters: tuple[str, ...]
    buffers: Mapping[str, bool]
    reader: Reader

    @classmethod
    def of(cls, conv: Convolution, reader: Reader) -> Origin:
        """The parts of a convolution that are kept."""
        left_out = {*HOOKS, *_TENSORS, "training"}
        attributes = {name: value for name, value in vars(conv).items() if name not in left_out}
        modules = {name: module for name, module in conv._modules.items() if module is not None}
        buffers = {name: name not in conv._non_persistent_buffers_set for name in conv._buffers}
        return cls(type(conv), attributes, modules, tuple(conv._parameters), buffers, reader)

    @property
    def name(self) -> str:
        """The qualified name of its class."""
        return qualified_name(self.kind)

    def weight(self, parameters: Mapping[str, Tensor | None], buffers: Mapping[str, Tensor | None]) -> Tensor:
        """The weight that the reader makes of tensors, as the class does at each call: [``ConvSpec.weight_shape``]."""
        own = {name: parameters[name] for name in self.parameters} | {name: buffers[name] for name in self.buffers}
        try:
            return self.reader.weight(SimpleNamespace(**self.attributes, **self.modules, **own))
        except AttributeError as error:  # after which Python would take the parameter ``weight`` of a layer instead
            raise ConversionError(f"the reader of {self.kind.__name__} failed: {error}") from error

    def remade(self, parameters: Mapping[str, Any], buffers: Mapping[str, Tensor | None]) -> Convolution:
        """The convolution of its own class again, with these very parameters and buffers."""
        conv = self.kind.__new__(self.kind)
        nn.Module.__init__(conv)
        vars(conv).update(self.attributes)
        for name, module in self.modules.items():
            conv.register_module(name, module)
        for name in self.parameters:
            conv.register_parameter(name, parameters[name])
        for name, persistent in self.buffers.items():
            conv.register_buffer(name, buffers[name], persistent=persistent)
        return conv


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
    methods = (getattr(type(conv), name, None) for name in CALLED)  # which may be replaced later
    return type(conv), reader, *methods, *attributes, *tensors, conv.weight.dtype, str(conv.weight.device)


@torch.inference_mode(False)
@torch.enable_grad()
def _trial(conv: Convolution, reader: Reader) -> str | None:
    origin, spec = Origin.of(conv, reader), reader.spec(conv)
    random = torch.Generator().manual_seed(0)
    drawn = {name: p if p is None else nn.Parameter(_drawn(p, random)) for name, p in conv._parameters.items()}
    buffers = {name: b if b is None else b.detach().clone() for name, b in conv._buffers.items()}
    own = origin.remade(drawn, buffers).train(conv.training)
    with without_autocast(conv.weight.device), _one_thread():
        for size in _sizes(spec):
            x = _drawn(conv.weight.new_empty(_BATCH, spec.in_channels, *size), random).requires_grad_()
            read = own_call(spec, x, origin.weight(own._parameters, own._buffers), own._parameters["bias"])
            found = _difference(own, x, read, random)
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


def _difference(own: Convolution, x: Tensor, output: Tensor, random: torch.Generator) -> str | None:
    parameters = {"input": x, **dict(own.named_parameters())}
    expected = own.forward(x)
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


def _drawn(like: Tensor, random: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=random, dtype=torch.float32, device="cpu").to(like.detach())


def _sizes(spec: ConvSpec) -> Iterator[tuple[int, ...]]:
    """Sizes that the kernel fits into with and without padding, of different remainders by the stride on each axis."""
    for extra in (2, 5):
        along = zip(spec.reach, spec.stride, strict=True)
        yield tuple(reach + extra + (stride + 1) * axis for axis, (reach, stride) in enumerate(along))
