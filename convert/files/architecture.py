"""Builds the network that a checkpoint's weights belong to, from a name or from code that the user names.

Raises:
    ArchitectureError: By the functions here, for every specification or argument that builds no network.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import ArchitectureError, TrustNeededError, first_line
from .named.huggingface import PREFIX, described, of_folder
from .named.imported import FORM, imported_factory, is_file, with_article
from .named.registries import named_factory, similar_names

# The project's own examples, which no file chooses the code of.
OWN_ARCHITECTURES = (
    *(f"conv2attn.convert.examples.networks:{name}" for name in ("plain_cnn", "residual_cnn", "mobile_cnn")),
    "conv2attn.learn.melting.start:small_cnn",
    *(f"conv2attn.learn.examples.denoiser:{name}" for name in ("PageDenoiser", "PhotographDenoiser")),
)
_JSON = "a number, true, false, null, a list, an object or a quoted word"


@dataclass(frozen=True)
class Architecture:
    """Recipe for building a network: a factory and its arguments.

    Attributes:
        spec: ``package.module:factory``, ``path/to/file.py:factory`` (``named/imported.py``), a registered name
            (``named/registries.py``) or ``hf:FOLDER`` (``named/huggingface.py``).
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
        if is_file(location):
            return Path(location)
        found = getattr(sys.modules.get(location), "__file__", None)
        return None if found is None else Path(found)

    def resolved(self) -> Architecture:
        """An equivalent architecture, to be stored, that does not need the folder of ``hf:FOLDER``."""
        return Architecture(*described(self.spec, self.arguments))

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
        spec, arguments = described(self.spec, self.arguments)
        factory = _factory(spec, arguments, trust=trust, named_by=named_by)
        try:
            model = factory(**arguments)
        except (Exception, SystemExit) as error:
            raise ArchitectureError(f"{spec} failed: {first_line(error)}") from error
        if not isinstance(model, nn.Module):
            raise ArchitectureError(f"{spec} returned {with_article(model)}, not a torch.nn.Module")
        return model


def _factory(
    spec: str, arguments: Mapping[str, object], *, trust: bool, named_by: Path | None
) -> Callable[..., object]:
    """The function or class that a specification names, with the code around it imported."""
    if ":" not in spec or spec.startswith("torchvision:"):
        close = similar_names(spec)
        hint = f"; close names: {', '.join(close)}" if close else f"; the form is {FORM}"
        raise ArchitectureError(f"{spec!r} does not name an architecture{hint}")
    named = of_folder(spec) if spec.startswith(PREFIX) else named_factory(spec, arguments)
    risk = None if named is None else named.risk
    if named is None and named_by is not None and spec not in OWN_ARCHITECTURES:
        risk = "would run code that a file chose"
    if risk is not None and not trust:
        whose = f"the architecture {spec}" if named_by is None else f"{named_by} names the architecture {spec}, which"
        raise TrustNeededError(f"{whose} {risk}")
    return imported_factory(spec) if named is None else named.build


def parse_arguments(pairs: Sequence[str]) -> dict[str, object]:
    """Turns ``name=json`` pairs into keyword arguments, each name once."""
    arguments: dict[str, object] = {}
    for pair in pairs:
        name, _, text = pair.partition("=")
        if not name.isidentifier() or not text:
            raise ArchitectureError(f"the argument {pair!r} is not of the form name=json")
        if name in arguments:
            raise ArchitectureError(f"the argument {pair!r} gives {name} a second time")
        try:
            arguments[name] = json.loads(text)
        except ValueError as error:
            hint = f"{_JSON}: {name}='\"word\"'"
            raise ArchitectureError(f"the argument {pair!r} is not name=json; JSON is {hint}") from error
    return arguments
