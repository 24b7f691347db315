"""Builds the network that a checkpoint's weights belong to, from a name or from code that the user names.

Raises:
    ArchitectureError: By the functions here, for every specification or argument that builds no network.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import importlib.util
import inspect
import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from ..errors import ArchitectureError, OptionError, TrustNeededError, close_names, first_line, listed
from .names import FORM, PREFIX, Named, described, import_module, named_factory, of_folder, similar_names

if TYPE_CHECKING:
    from torch import Tensor, nn

# The project's own examples, which no file chooses the code of.
OWN_ARCHITECTURES = (
    *(f"conv2attn.convert.examples.networks:{name}" for name in ("plain_cnn", "residual_cnn", "mobile_cnn")),
    "conv2attn.learn.comparison:small_cnn",
)
_JSON = "a number, true, false, null, a list, an object or a quoted word"
_OWN_NAME = "_conv2attn_architecture_"  # of the module that a Python file becomes
_BASES = ("Module", "Sequential")  # of a network's class
_MOST_FILES = 50  # beside a checkpoint that are looked into
_serial = itertools.count()


@dataclass(frozen=True)
class Architecture:
    """Recipe for building a network: a factory and its arguments.

    Attributes:
        spec: ``package.module:NAME``, ``path/to/file.py:NAME`` (``imported_factory``), a registered name
            (``files/names.py``) or ``hf:FOLDER`` (``files/names.py``).
        arguments: Keyword arguments of the factory.

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
        """The file with its code: the named one, or a module's once it is imported; None if there is none."""
        location = self.spec.rpartition(":")[0]
        if _is_file(location):
            return Path(location)
        found = getattr(sys.modules.get(location), "__file__", None)
        return None if found is None else Path(found)

    def resolved(self) -> Architecture:
        """An equivalent architecture, to be stored, that does not need the folder of ``hf:FOLDER``."""
        return Architecture(*described(self.spec, self.arguments))

    @property
    def needs_trust(self) -> bool:
        """Whether a folder that names it is opened with the caller's consent only."""
        return _named(*described(self.spec, self.arguments), is_of_file=True)[1] is not None

    def build(self, *, trust: bool = False, named_by: Path | None = None) -> nn.Module:
        """Builds the network with the weights that its factory gives it.

        A network that a library has registered is built without asking. Other code runs as an import does. A caller who
        names it thereby consents to it. Where a file names it, ``trust`` is needed; and always for networks that
        fetch something or bring their own code.

        Args:
            trust: Consent to all of it.
            named_by: The file or folder that names the architecture; None if the caller does.

        Raises:
            ArchitectureError: The specification is malformed, its module, file or attribute does not exist, the
                import fails, the factory cannot be called with the arguments, fails, or returns no module.
            TrustNeededError: Consent is needed and not given; then nothing was run.
            CheckpointError: It is ``hf:FOLDER``, and the folder does not describe a network.
        """
        from torch import nn

        spec, arguments = described(self.spec, self.arguments)
        factory = _factory(spec, arguments, trust=trust, named_by=named_by)
        try:
            model = factory(**arguments)
        except (Exception, SystemExit) as error:
            takes = _arguments_of(factory) if isinstance(error, TypeError) else ""
            raise ArchitectureError(f"{spec} failed: {first_line(error)}{takes}") from error
        if not isinstance(model, nn.Module):
            raise ArchitectureError(f"{spec} returned {_with_article(model)}, not a torch.nn.Module")
        return model


def with_classes(spec: str, network: nn.Module) -> Architecture:
    """The architecture of this name, with the network's number of classes where a library's default is another."""
    plain = Architecture(spec)
    try:
        if plain.needs_trust:
            return plain
        kept, usual = network.state_dict(), _on_meta(plain)
        last = list(usual)[-1]
        if last not in kept or len(kept[last]) == len(usual[last]):
            return plain
        named = Architecture(spec, {"num_classes": len(kept[last])})
        return named if _on_meta(named)[last].shape == kept[last].shape else plain
    except Exception:  # of a library's builder, which loading will tell
        return plain


def _on_meta(architecture: Architecture) -> dict[str, Tensor]:
    import torch

    with torch.device("meta"):
        return architecture.build().state_dict()


def _factory(
    spec: str, arguments: Mapping[str, object], *, trust: bool, named_by: Path | None
) -> Callable[..., object]:
    if ":" not in spec and spec.endswith(".py"):
        own = _defined_in(Path(spec))
        which = f"one of {listed(own)}, as in {spec}:{own[-1]}" if own else f"and {spec} defines neither"
        raise ArchitectureError(f"{spec!r} names no class or function that builds the network, {which}")
    if ":" not in spec or spec.startswith("torchvision:"):
        close = similar_names(spec)
        hint = f"; close names: {', '.join(close)}" if close else f"; the form is {FORM}"
        raise ArchitectureError(f"{spec!r} does not name an architecture{hint}")
    named, risk = _named(spec, arguments, is_of_file=named_by is not None)
    if risk is not None and not trust:
        whose = f"the architecture {spec}" if named_by is None else f"{named_by} names the architecture {spec}, which"
        cure = "" if named_by is None else "trust=True runs it, architecture=MyNet() takes a network of yours instead"
        raise TrustNeededError(f"{whose} {risk}", cure=cure)
    return imported_factory(spec) if named is None else named.build


def _defined_in(path: Path) -> list[str]:
    """Public classes and functions at the top of a Python file, which is read and not run."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, ValueError, SyntaxError) as error:
        fault = _no_file(path) if isinstance(error, OSError) else f"Python cannot parse {path}; the form is {FORM}"
        raise ArchitectureError(fault) from error
    return [
        each.name for each in body if isinstance(each, ast.ClassDef | ast.FunctionDef) and not each.name.startswith("_")
    ]


def _no_file(path: Path) -> str:
    beside = [each.name for each in path.parent.glob("*.py")] if path.parent.is_dir() else []
    near = close_names(path.name, beside)
    return f"there is no Python file {path}{near or f'; the form is {FORM}'}"


def networks_beside(path: Path) -> list[str]:
    """FILE.py:NAME of the last network's class in each Python file beside a checkpoint; the files are not run.

    Where files are there, but none with such a class, the name is open: FILE.py:NAME itself.
    """
    files = sorted(path.resolve().parent.glob("*.py"))[:_MOST_FILES]
    found = []
    for file in files:
        with suppress(OSError, ValueError, SyntaxError, RecursionError):
            networks = _network_classes(ast.parse(file.read_text(encoding="utf-8")))
            found += [f"{path.parent / file.name}:{networks[-1]}"] if networks else []
    return found or (["FILE.py:NAME"] if files else [])


def _network_classes(code: ast.Module) -> list[str]:
    """Names of the classes of networks in a file, by their bases, which may be others of the file."""
    found: list[str] = []
    for each in code.body:
        if isinstance(each, ast.ClassDef):
            bases = [ast.unparse(base) for base in each.bases]
            found += [each.name] if any(base.endswith(_BASES) or base in found for base in bases) else []
    return found


def _named(spec: str, arguments: Mapping[str, object], *, is_of_file: bool) -> tuple[Named | None, str | None]:
    """A registered network, or None, and what would happen without the caller's consent, if anything."""
    named = of_folder(spec) if spec.startswith(PREFIX) else named_factory(spec, arguments)
    if named is not None:
        return named, named.risk
    return None, "would run code that a file chose" if is_of_file and spec not in OWN_ARCHITECTURES else None


def _arguments_of(factory: Callable[..., object]) -> str:
    """The end of a sentence that says what arguments a factory takes, where that is known."""
    try:
        names = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return ""
    return f"; it takes {', '.join(map(str, names)) or 'no argument'}"


def imported_factory(spec: str) -> Callable[..., object]:
    """Imports the code around a factory and returns the factory. This runs that code.

    A file is imported afresh by each call, with its folder first on the import path meanwhile; the modules beside it
    that it imports are ordinary modules and stay imported.

    Args:
        spec: ``package.module:NAME`` or ``path/to/file.py:NAME``, split at the last colon. The name is that of a
            function or a class, or of such an attribute of a class: ``module:Class.method``.
    """
    from torch import nn

    location, _, attribute = spec.rpartition(":")
    if not location or not all(part.isidentifier() for part in attribute.split(".")):
        raise ArchitectureError(f"{spec!r} does not name an architecture; the form is {FORM}")
    module = _import_file(Path(location)) if _is_file(location) else import_module(location)
    factory = _attribute(module, attribute, location)
    if isinstance(factory, nn.Module) or not callable(factory):
        raise ArchitectureError(f"{spec} is {_with_article(factory)}, not a function or class that builds a network")
    return factory


def parse_arguments(pairs: Sequence[str]) -> dict[str, object]:
    """Turns ``name=json`` pairs into keyword arguments, each name once.

    Raises:
        OptionError: A pair is something else.
    """
    arguments: dict[str, object] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if not name.isidentifier() or not text:
            raise OptionError(f"the argument {pair!r} is not of the form name=json")
        if name in arguments:
            raise OptionError(f"the argument {pair!r} gives {name} a second time")
        try:
            arguments[name] = json.loads(text)
        except ValueError as error:
            hint = f"{_JSON}: {name}='\"word\"'"
            raise OptionError(f"the argument {pair!r} is not name=json; JSON is {hint}") from error
    return arguments


def _is_file(location: str) -> bool:
    """Whether the part of a specification before its colon is the path of a file."""
    return location.endswith(".py") or "/" in location or "\\" in location


def _with_article(value: object) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


class _FreshLoader(importlib.machinery.SourceFileLoader):
    """Compiles the file itself: cached bytecode is taken for that of a file that was changed within a second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(path: Path) -> ModuleType:
    """Imports a file under a fresh name; it stays in sys.modules, where pickle and copy look classes up."""
    if path.suffix != ".py" or not os.path.isfile(path):  # unlike Path.is_file, false for a name that is too long
        raise ArchitectureError(_no_file(path))
    name = f"{_OWN_NAME}{next(_serial)}"
    place = path.resolve()
    spec = importlib.util.spec_from_file_location(name, place, loader=_FreshLoader(name, str(place)))
    if spec is None or spec.loader is None:
        raise ArchitectureError(f"{path} cannot be imported as a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    importlib.invalidate_caches()
    sys.path.insert(0, folder)  # as ``python file.py`` does
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(name, None)
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ArchitectureError(f"importing {path} failed: {first_line(error)}") from error
    finally:
        if folder in sys.path:
            sys.path.remove(folder)
    return module


def _attribute(module: ModuleType, attribute: str, location: str) -> object:
    owner: object = module
    for part in attribute.split("."):
        try:
            owner = getattr(owner, part)
        except AttributeError as error:
            which = "" if part == attribute else f": {part} is missing"
            own = [name for name, each in vars(owner).items() if getattr(each, "__module__", None) == module.__name__]
            hint = (
                f"; it has {listed(own)}"
                if owner is module and module.__name__.startswith(_OWN_NAME) and own
                else close_names(part, dir(owner))
            )
            raise ArchitectureError(f"{location} has no {attribute}{which}{hint}") from error
    return owner
