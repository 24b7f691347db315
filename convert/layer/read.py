"""The attention layer of a subclass that has a reader, and the way back to the very class.

The layer has the parameters and buffers of the convolution, under their names; its ``weight`` is what the reader makes
of them, at each call. So its state dict, its optimizer and its gradients are the convolution's. What else the
convolution was is kept: its class, and its attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..engines import AUTO
from ..errors import ConversionError
from ..spec import Convolution
from ..subclasses.reader import Reader, qualified_name
from .layer import SelfAttention, SelfAttention1d, SelfAttention2d, SelfAttention3d

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
        """What is kept of a convolution."""
        left_out = {*HOOKS, *_TENSORS, "training"}
        attributes = {name: value for name, value in vars(conv).items() if name not in left_out}
        modules = {name: module for name, module in conv._modules.items() if module is not None}
        buffers = {name: name not in conv._non_persistent_buffers_set for name in conv._buffers}
        return cls(type(conv), attributes, modules, tuple(conv._parameters), buffers, reader)

    @property
    def name(self) -> str:
        """The qualified name of its class."""
        return qualified_name(self.kind)


class OfSubclass(SelfAttention):
    """A self-attention layer whose weight is what a reader makes of its parameters.

    Args:
        conv: The convolution, whose parameters and buffers it shares.
        reader: What its class computes.
        alpha: As ``SelfAttention``'s.
        engine: As ``SelfAttention``'s.

    Attributes:
        origin: The convolution that it was.
    """

    origin: Origin

    def __init__(self, conv: Convolution, reader: Reader, *, alpha: float | None = None, engine: str = AUTO) -> None:
        weight, bias = conv.get_parameter("weight"), conv._parameters["bias"]
        super().__init__(reader.spec(conv), weight=weight, bias=bias, alpha=alpha, engine=engine)
        self.origin = Origin.of(conv, reader)
        for name, parameter in conv._parameters.items():
            if name not in self._parameters:
                self.register_parameter(name, parameter)
        for name, persistent in self.origin.buffers.items():
            self.register_buffer(name, conv._buffers[name], persistent=persistent)
        self.train(conv.training)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """As ``SelfAttention``'s; the parameter ``weight`` lies behind the property."""
        if name == "weight":
            self._parameters[name] = param
        else:
            super().register_parameter(name, param)

    if not TYPE_CHECKING:  # a property in place of a parameter, as torch's own parametrisations are

        @property
        def weight(self) -> Tensor:
            """The value projections, computed anew at each access, as the class does at each call."""
            own = {name: self._parameters[name] for name in self.origin.parameters}
            own |= {name: self._buffers[name] for name in self.origin.buffers}
            try:
                return self.origin.reader.weight(
                    SimpleNamespace(**self.origin.attributes, **self.origin.modules, **own)
                )
            except AttributeError as error:  # after which Python would take the parameter of this name instead
                raise ConversionError(f"the reader of {self.origin.kind.__name__} failed: {error}") from error

    def extra_repr(self) -> str:
        """As ``SelfAttention``'s, and which class the convolution was of."""
        return f"{super().extra_repr()}, of={self.origin.kind.__name__}"


class OfSubclass1d(OfSubclass, SelfAttention1d):
    """``OfSubclass`` over sequences."""


class OfSubclass2d(OfSubclass, SelfAttention2d):
    """``OfSubclass`` over images."""


class OfSubclass3d(OfSubclass, SelfAttention3d):
    """``OfSubclass`` over volumes or films."""


OF_SUBCLASS: dict[int, type[OfSubclass]] = {1: OfSubclass1d, 2: OfSubclass2d, 3: OfSubclass3d}


def attention_read(conv: Convolution, reader: Reader, *, alpha: float | None = None, engine: str = AUTO) -> OfSubclass:
    """The layer of a convolution that has a reader, sharing its parameters and buffers."""
    return OF_SUBCLASS[reader.spec(conv).axes](conv, reader, alpha=alpha, engine=engine)


def convolution_read(layer: OfSubclass) -> Convolution:
    """The convolution of its own class again, sharing the layer's parameters and buffers."""
    origin = layer.origin
    conv = origin.kind.__new__(origin.kind)
    nn.Module.__init__(conv)
    vars(conv).update(origin.attributes)
    for name, module in origin.modules.items():
        conv.register_module(name, module)
    for name in origin.parameters:
        conv.register_parameter(name, layer._parameters[name])
    for name, persistent in origin.buffers.items():
        conv.register_buffer(name, layer._buffers[name], persistent=persistent)
    return conv.train(layer.training)


def unreadable(conv: nn.Module) -> str | None:
    """Names what an attention layer cannot keep of a convolution, or None if it can keep all."""
    held = [name for name, module in conv._modules.items() if module is not None and module.state_dict(keep_vars=True)]
    if held:
        return f"it holds modules with tensors ({', '.join(held)}), which a reader cannot keep"
    own = [name for name in (*conv._parameters, *conv._buffers) if name not in ("weight", "bias")]
    taken = [name for name in own if name in _TAKEN or hasattr(SelfAttention, name)]
    return f"its {taken[0]} has the name of a part of the attention layer" if taken else None


_TAKEN = (
    "log_alpha",
    "alpha",
    "centers",
    "content",
    "axis_scores",
    "spec",
    "memory_limit",
    "alpha_follows_dtype",
    "origin",
)
