"""Modules that ``help`` shows by what this library defines, without the hundred methods of ``nn.Module``."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

_OURS = __name__.partition(".")[0]


class _Listed(type):
    """Metaclass whose classes list, by ``dir`` of the class and thus by ``help``, the members of this library."""

    def __dir__(cls) -> list[str]:
        own = (base for base in cls.__mro__ if base.__module__.partition(".")[0] == _OURS)
        return sorted({name for base in own for name in vars(base)})


class ListedModule(nn.Module, metaclass=_Listed):
    """A module whose class lists the members of this library; the module itself lists all that it has."""

    def __dir__(self) -> Iterable[str]:
        held = self.__dict__, self._parameters, self._buffers, self._modules
        found = set[str]().union(*held, *(vars(base) for base in type(self).__mro__))
        return sorted(name for name in found if name.isidentifier())
