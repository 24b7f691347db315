"""Factories of networks in the user's own code: in a file, or in a package.

Raises:
    ArchitectureError: By both functions here, for code that is missing, fails or has no such factory.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import nn

from ...errors import ArchitectureError, close_names, first_line

FORM = "package.module:factory, path/to/file.py:factory, timm:NAME, torchvision.models:NAME or hf:FOLDER"
_serial = itertools.count()


def imported_factory(spec: str) -> Callable[..., object]:
    """Imports the code around a factory and returns the factory. This runs that code.

    A file is imported afresh by each call, with its folder first on the import path meanwhile; the modules beside it
    that it imports are ordinary modules and stay imported.

    Args:
        spec: ``package.module:factory`` or ``path/to/file.py:factory``, split at the last colon. The factory is a
            function or a class, or such an attribute of a class: ``module:Class.method``.
    """
    location, _, attribute = spec.rpartition(":")
    if not location or not all(part.isidentifier() for part in attribute.split(".")):
        raise ArchitectureError(f"{spec!r} does not name an architecture; the form is {FORM}")
    module = _import_file(Path(location)) if is_file(location) else import_module(location)
    factory = _attribute(module, attribute, location)
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ArchitectureError(f"{spec} is {with_article(factory)}, not a function or class that builds a network")
    return factory


def is_file(location: str) -> bool:
    """Whether the part of a specification before its colon is the path of a file."""
    return location.endswith(".py") or "/" in location or "\\" in location


def with_article(value: object) -> str:
    """The name of a value's class, with its article."""
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def import_module(name: str) -> ModuleType:
    """Imports a module by its name."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ArchitectureError(f"{name!r} is neither a module's name nor a .py file; the form is {FORM}")
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
        raise ArchitectureError(f"there is no Python file {path}; the form is {FORM}")
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
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ArchitectureError(f"importing {path} failed: {first_line(error)}") from error
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
            which = "" if part == attribute else f": {part} is missing"
            hint = close_names(part, dir(owner))
            raise ArchitectureError(f"{location} has no {attribute}{which}{hint}") from error
    return owner
