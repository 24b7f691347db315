"""Builds the network that a checkpoint's weights belong to, from code that the user names.

Raises:
    ArchitectureError: By both functions here, for every specification or argument that builds no network.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from ..errors import ArchitectureError, first_line

_FORM = "package.module:factory, path/to/file.py:factory or timm:NAME"
_JSON = "a number, true, false, null, a list, an object or a quoted word"
_serial = itertools.count()


def build_architecture(spec: str, arguments: Mapping[str, object]) -> nn.Module:
    """Calls the factory that ``spec`` names and returns the network it builds.

    This runs the user's code, as an import does. A file is imported afresh by each call, under a name of its
    own, with its folder first on the import path while it is imported; the modules beside it that it imports
    are ordinary modules and stay imported.

    Args:
        spec: ``package.module:factory`` or ``path/to/file.py:factory``, split at the last colon. The factory
            is a function or a class, or such an attribute of a class: ``module:Class.method``. ``timm:NAME`` is the
            network that ``timm.create_model`` has under that name.
        arguments: Keyword arguments of the factory.

    Raises:
        ArchitectureError: The specification is malformed, its module, file or attribute does not exist, the
            import fails, the factory cannot be called with the arguments, fails, or returns no module.
    """
    factory = _factory(spec)
    _check_arguments(factory, arguments, spec)
    try:
        model = factory(**arguments)
    except (Exception, SystemExit) as error:
        raise ArchitectureError(f"{spec} failed: {first_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise ArchitectureError(f"{spec} returned {_a(model)}, not a torch.nn.Module")
    return model


def _factory(spec: str) -> Callable[..., object]:
    """The function or class that a specification names, with the code around it imported."""
    location, _, attribute = spec.rpartition(":")
    if location == "timm" and attribute != "create_model":
        return functools.partial(_timm_factory(), attribute)
    if not location or not all(part.isidentifier() for part in attribute.split(".")):
        raise ArchitectureError(f"{spec!r} does not name an architecture; the form is {_FORM}")
    module = _import_file(Path(location)) if _is_file(location) else _import_module(location)
    factory = _attribute(module, attribute, location)
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ArchitectureError(f"{spec} is {_a(factory)}, not a function or class that builds a network")
    return factory


def _is_file(location: str) -> bool:
    return location.endswith(".py") or "/" in location or "\\" in location


def _timm_factory() -> Callable[..., object]:
    """timm's function that builds a network by its name in timm's registry."""
    if importlib.util.find_spec("timm") is None:
        raise ArchitectureError("timm:NAME needs timm, which is not installed; pip install timm")
    factory = _attribute(_import_module("timm"), "create_model", "timm")
    if not callable(factory):
        raise ArchitectureError(f"timm.create_model is {_a(factory)}, not a function that builds a network")
    return factory


def parse_arguments(pairs: Sequence[str]) -> dict[str, object]:
    """Turns ``name=json`` pairs into keyword arguments.

    Raises:
        ArchitectureError: A pair is not of that form, or a name comes twice.
    """
    arguments: dict[str, object] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if not name.isidentifier() or not text:
            raise ArchitectureError(f"the argument {pair!r} is not of the form name=json")
        if name in arguments:
            raise ArchitectureError(f"the argument {pair!r} gives {name} a second time")
        try:
            arguments[name] = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            hint = f"{_JSON}: {name}='\"word\"'"
            raise ArchitectureError(f"the argument {pair!r} is not name=json; JSON is {hint}") from error
    return arguments


def _import_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ArchitectureError(f"{name!r} is neither a module's name nor a .py file; the form is {_FORM}")
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}."):
            file = f"{name.replace('.', '/')}.py"
            hint = f"; the file {file} is named {file}:factory" if os.path.isfile(file) else ""
            raise ArchitectureError(f"there is no module {name}: {first_line(error)}{hint}") from error
        raise ArchitectureError(f"importing {name} failed: {first_line(error)}") from error


def _import_file(path: Path) -> ModuleType:
    """Imports a file under a fresh name; it stays in sys.modules, where pickle and copy look classes up."""
    if path.suffix != ".py" or not os.path.isfile(path):  # unlike Path.is_file, false for a name that is too long
        raise ArchitectureError(f"there is no Python file {path}; the form is {_FORM}")
    name = f"_conv2attn_architecture_{next(_serial)}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise ArchitectureError(f"{path} cannot be imported as a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        with _importable(path.resolve().parent):
            spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, (Exception, SystemExit)):
            raise ArchitectureError(f"importing {path} failed: {first_line(error)}") from error
        raise
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Puts the folder first on the import path, as ``python file.py`` does."""
    entry = str(folder)
    importlib.invalidate_caches()
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def _attribute(module: ModuleType, attribute: str, location: str) -> object:
    owner: object = module
    for part in attribute.split("."):
        try:
            owner = getattr(owner, part)
        except AttributeError as error:
            close = difflib.get_close_matches(part, dir(owner))
            hint = f"; close names: {', '.join(close)}" if close else ""
            raise ArchitectureError(f"{location} has no {attribute}: {part} is missing{hint}") from error
    return owner


def _check_arguments(factory: Callable[..., object], arguments: Mapping[str, object], spec: str) -> None:
    """Compares the arguments with the factory's signature, where it has one, before anything is built."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return  # some built-in callables have none: the call itself will tell
    try:
        signature.bind(**arguments)
    except TypeError as error:
        allowed = signature.replace(return_annotation=inspect.Signature.empty)
        raise ArchitectureError(f"{spec} cannot be called: {error}; it takes {allowed}") from error


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _a(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


@dataclass(frozen=True)
class Architecture:
    """How a network is built: the factory, as ``build_architecture`` takes it, and its arguments.

    Raises:
        TypeError: The factory is not a string, or the arguments are no mapping.
    """

    spec: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (isinstance(self.spec, str) and isinstance(self.arguments, Mapping)):
            raise TypeError(f"an architecture is a string and a mapping; got {self}")

    @property
    def file(self) -> Path | None:
        """The file with its code: the one that is named, or a module's once it is imported; None if there is none."""
        location = self.spec.rpartition(":")[0]
        if _is_file(location):
            return Path(location)
        found = getattr(sys.modules.get(location), "__file__", None)
        return None if found is None else Path(found)

    def build(self) -> nn.Module:
        """Builds the network, with the weights its factory gives it."""
        return build_architecture(self.spec, self.arguments)
