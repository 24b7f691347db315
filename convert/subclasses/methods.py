"""Methods of the convolutions' classes, and whether they are still PyTorch's own.

An extension that makes images tile, or adds low-rank updates, may replace ``forward`` or ``_conv_forward`` for a whole
class, so that every instance computes something else and none looks different. A layer in its place would not follow.
Functions that are replaced in ``torch.nn.functional`` are another matter: the layer calls them there, too.
"""

from __future__ import annotations

import sys

from torch import nn

# What a call of a convolution runs, or reads as an attribute where PyTorch has a parameter or a number.
CALLED = ("__call__", "_wrapped_call_impl", "_call_impl", "forward", "_conv_forward", "_output_padding")
_READ = ("weight", "bias", "stride", "padding", "dilation", "groups", "padding_mode", "output_padding")
_READ_BY = ("__getattribute__", "__getattr__", "_reversed_padding_repeated_twice")


def replaced_method(kind: type) -> str | None:
    """What was replaced in a class of convolutions, or in one below, as ``Conv2d.forward``; None if nothing was.

    A method is a class's own if it was compiled in the class's module, under the class's name: neither changes with
    the attributes that ``functools.wraps`` copies. What all modules have in common is not looked at, nor the methods of
    other libraries' classes, which readers are held against.
    """
    for base in kind.__mro__:
        if base in nn.Module.__mro__ or base.__module__.partition(".")[0] != "torch":
            continue
        for name in (*CALLED, *_READ, *_READ_BY):
            own = vars(base).get(name)
            if own is not None and not _is_of(own, base, name):
                return f"{base.__name__}.{name}"
    return None


def _is_of(own: object, base: type, name: str) -> bool:
    code, module = getattr(own, "__code__", None), sys.modules.get(base.__module__)
    is_there = module is not None and getattr(own, "__globals__", None) is vars(module)
    return is_there and getattr(code, "co_qualname", None) == f"{base.__qualname__}.{name}"
