"""Networks by name: those that timm, torchvision and transformers register, and those that a Hub folder describes.

A registered name is built without asking, with random weights: it runs the code of an installed library and fetches
nothing. A network that would fetch something, or run other code, has a ``risk`` and needs the caller's consent.

    timm:NAME                     what ``timm.is_model`` knows; ``hf-hub:`` and ``local-dir:`` are sources, not names
    torchvision.models:NAME       what ``torchvision.models.list_models`` lists, under any of its modules
    transformers:CLASS            a ``PreTrainedModel`` of transformers itself, of the argument ``config``, a mapping

A folder of the Hugging Face Hub says in its config.json which network it holds:

    {"architectures": ["ResNetForImageClassification"], ...}    transformers: the whole file is its configuration
    {"architecture": "resnet18", "pretrained_cfg": {...}, ...}  timm, as ``timm.models.push_to_hf_hub`` writes it

Such a description becomes a specification and arguments that no longer need the folder (``described``), so that a
converted network can record how it was built. Only code of the folder's own needs the folder, and consent.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ArchitectureError, CheckpointError, TrustNeededError, close_names, first_line, importing
from ..plain import read_object

if TYPE_CHECKING:
    from torch import nn

FORM = (
    "path/to/file.py:NAME or package.module:NAME, NAME of a class or function, timm:NAME, torchvision.models:NAME or "
    "hf:FOLDER"
)
_TORCHVISION = "torchvision.models"
_FETCHES = ("pretrained", "checkpoint_path", "weights", "weights_backbone", "pretrained_backbone")
_KERNELS = ("attn_implementation", "_attn_implementation", "experts_implementation")


class Named(NamedTuple):
    """A factory that a library has registered, and why it needs consent, as the end of a sentence; else None."""

    build: Callable[..., object]
    risk: str | None = None


def named_factory(spec: str, arguments: Mapping[str, object]) -> Named | None:
    """The factory that a library has registered under a name, not called; None if the specification names code.

    Raises:
        ArchitectureError: The library is not installed or broken, or has no such network.
    """
    library, _, name = spec.partition(":")
    if library == "timm" and name != "create_model":
        return _of_timm(name, arguments)
    if library == "transformers":
        return Named(partial(_configured, pretrained_class(name)), risk_of_config(arguments.get("config")))
    if library == _TORCHVISION or library.startswith(f"{_TORCHVISION}."):
        return _of_torchvision(library, name, arguments)
    return None


def similar_names(name: str) -> list[str]:
    """Registered names similar to the last word of a name, as specifications, exact matches first."""
    name = re.split(r"[:./]", name)[-1].lower()
    listed: dict[str, str] = {}
    for library in (_TORCHVISION, "timm"):
        with suppress(Exception):  # this serves a hint in an error that is raised anyway
            listed |= {f"{library}:{known}": known for known in importlib.import_module(library).list_models()}
    close = set(difflib.get_close_matches(name, set(listed.values()), n=4))
    return sorted((spec for spec, known in listed.items() if known in close), key=lambda spec: listed[spec] != name)


def _of_timm(name: str, arguments: Mapping[str, object]) -> Named:
    timm: Any = library("timm")
    build = partial(timm.create_model, name, pretrained=False)
    if any(mark in name for mark in ":/\\"):
        return Named(build, f"makes timm fetch {name!r} from elsewhere")
    if not timm.is_model(name):
        raise ArchitectureError(f"timm has no network {name!r}{close_names(name, timm.list_models())}")
    return Named(build, _fetching(arguments))


def _of_torchvision(location: str, name: str, arguments: Mapping[str, object]) -> Named | None:
    """A registered builder, which may be named in the module that defines it; None for anything else."""
    models: Any = import_module(_TORCHVISION)
    builder = getattr(import_module(location), name, None)
    quantized = f"quantized_{name}"
    known = [models.get_model_builder(each) for each in (name, quantized) if each in models.list_models()]
    if location == _TORCHVISION and known:
        builder = known[0]
    if builder is None or builder not in known:
        return None
    taken = inspect.signature(builder).parameters
    no_weights = {key: None for key in ("weights", "weights_backbone") if key in taken}
    return Named(partial(builder, **no_weights), _fetching(arguments))


def pretrained_class(name: str) -> Any:
    """The class of this name in transformers that is built from a configuration, or an ArchitectureError."""
    transformers: Any = library("transformers", extra="hf")
    cls: Any = getattr(transformers, name, None)
    own = isinstance(cls, type) and issubclass(cls, transformers.PreTrainedModel)
    if not own or not cls.__module__.startswith("transformers.") or cls.config_class is None:
        raise ArchitectureError(f"transformers has no network {name!r}{close_names(name, dir(transformers))}")
    return cls


def _configured(cls: Any, config: Mapping[str, Any] | None = None) -> object:
    """A network of transformers with random weights; its configuration's class reads no file and reaches nobody."""
    kind = cls.config_class
    with offline():
        return cls(kind() if config is None else kind.from_dict(without_weights(config)))


def risk_of_config(config: object) -> str | None:
    """Why a configuration of transformers, or one inside it, needs consent; None if it does not."""
    if isinstance(config, list | tuple):
        return next((risk for each in config if (risk := risk_of_config(each)) is not None), None)
    if not isinstance(config, Mapping):
        return None
    if config.get("auto_map"):
        return f"has code of its own in the folder, {config['auto_map']!r:.200}"
    kernels = [config[key] for key in _KERNELS if isinstance(config.get(key), str)]
    places = [name for name in (*kernels, config.get("backbone")) if isinstance(name, str) and set(name) & set(":/\\")]
    if places:
        return f"makes transformers fetch {places[0]!r:.200} from elsewhere"
    return risk_of_config(list(config.values()))


def without_weights(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose backbones, too, are built with random weights."""
    own = {key: without_weights(value) if isinstance(value, Mapping) else value for key, value in config.items()}
    return own | ({"use_pretrained_backbone": False} if "use_pretrained_backbone" in own else {})


@contextmanager
def offline() -> Iterator[None]:
    """Keeps huggingface_hub, which transformers fetches with, from reaching out."""
    constants: Any = import_module("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE
    try:
        constants.HF_HUB_OFFLINE = True
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _fetching(arguments: Mapping[str, object]) -> str | None:
    asked = next((key for key in _FETCHES if arguments.get(key)), None)
    return None if asked is None else f"fetches weights, as its argument {asked} says"


_LIBRARIES = ("torchvision", "timm", "transformers", "diffusers")


def library(name: str, *, extra: str | None = None) -> ModuleType:
    """An optional library, imported."""
    if importlib.util.find_spec(name) is None:
        raise ArchitectureError(_lacking(name, None if extra is None else f'"conv2attn[{extra}]"'))
    return import_module(name)


def _lacking(library: str, install: str | None = None) -> str:
    return f"{library} is not installed: pip install {install or library}"


def import_module(name: str) -> ModuleType:
    """Imports a module by its name."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise ArchitectureError(f"{name!r} is neither a module's name nor a .py file; the form is {FORM}")
    file = f"{name.replace('.', '/')}.py"
    hint = f"; the file {file} is named {file}:NAME" if os.path.isfile(file) else ""
    package = name.partition(".")[0]
    is_lacking = package in _LIBRARIES and importlib.util.find_spec(package) is None
    lacking = _lacking(package) if is_lacking else f"there is no module {name}"
    with importing(name, ArchitectureError(f"{lacking}{hint}"), broken=ArchitectureError):
        return importlib.import_module(name)


CONFIG = "config.json"
PREFIX = "hf:"
_PERSONAL = ("_name_or_path", "transformers_version")  # where and by what it was saved, which builds nothing
_PLACES = ("url", "file", "hf_hub_id", "hf_hub_filename", "source", "state_dict")  # of a timm network's weights


def is_model_folder(path: Path) -> bool:
    """Whether a folder's config.json describes a network of transformers or timm."""
    try:
        config = read_object(path / CONFIG)
    except CheckpointError:
        return False
    return isinstance(config.get("architecture"), str) or bool(_class_names(config))


def described(spec: str, arguments: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """A specification and arguments that say the same without the folder, where it is ``hf:FOLDER``.

    Returns:
        ``transformers:CLASS`` or ``timm:NAME`` with its arguments, in which those given replace the folder's; where
        the folder has code of its own, ``hf:FOLDER`` with its absolute path. Other specifications stay.

    Raises:
        CheckpointError: The folder has no config.json that names a network.
    """
    if not spec.startswith(PREFIX):
        return spec, arguments
    folder = Path(spec.removeprefix(PREFIX))
    config = read_object(folder / CONFIG)
    if isinstance(config.get("architecture"), str):
        return f"timm:{config['architecture']}", _timm_arguments(config) | dict(arguments)
    names = _class_names(config)
    if not names:
        raise CheckpointError(f"{folder / CONFIG} names no network: it has neither architectures nor architecture")
    if config.get("auto_map"):
        return f"{PREFIX}{folder.resolve()}", arguments
    kept = {key: value for key, value in config.items() if key not in _PERSONAL}
    return f"transformers:{names[0]}", {"config": kept | dict(arguments)}


def pretrained(folder: Path, *, trust: bool = False) -> nn.Module:
    """The network of a folder of transformers with its weights, as ``from_pretrained`` loads it; nothing is fetched.

    Raises:
        TrustNeededError: Without ``trust``, of a folder with code of its own, or one that makes transformers fetch.
        CheckpointError: It holds no such network, or transformers cannot load it.
    """
    config = read_object(folder / CONFIG)
    risk = risk_of_config(config)
    if risk is not None and not trust:
        raise TrustNeededError(f"{folder} {risk}")
    try:
        with offline(), _quiet():
            cls = _own_class(folder, config) if config.get("auto_map") else pretrained_class(_class_names(config)[0])
            kind: Any = cls.config_class
            made = kind.from_dict(without_weights(config))
            model, found = cls.from_pretrained(
                str(folder), config=made, local_files_only=True, trust_remote_code=trust, output_loading_info=True
            )
    except ArchitectureError:
        raise
    except Exception as error:  # whatever transformers raises
        raise CheckpointError(f"transformers cannot load {folder}: {first_line(error)[:300]}") from error
    lacking = sorted(found["missing_keys"])
    if lacking:
        raise CheckpointError(f"{folder} lacks weights of {type(model).__name__}: {', '.join(lacking[:10])}")
    network: nn.Module = model.eval()
    return network


def of_folder(spec: str) -> Named:
    """The network that a folder's own code builds, with random weights; ``build`` runs that code."""
    folder = Path(spec.removeprefix(PREFIX))

    def build(**arguments: Any) -> object:
        config = {**read_object(folder / CONFIG), **arguments}
        cls = _own_class(folder, config)
        return cls(cls.config_class.from_dict(without_weights(config)))

    return Named(build, "has code of its own")


def _own_class(folder: Path, config: Mapping[str, Any]) -> Any:
    """The class that a folder's own module defines. This runs that module."""
    library("transformers", extra="hf")
    dynamic: Any = import_module("transformers.dynamic_module_utils")
    wanted = _class_names(config)
    places = [place for place in config["auto_map"].values() if isinstance(place, str)]
    place = next((place for place in places if place.rpartition(".")[2] in wanted), None)
    if place is None:
        raise CheckpointError(f"{folder / CONFIG} names no module for {', '.join(wanted) or 'its network'}")
    return dynamic.get_class_from_dynamic_module(place, str(folder), local_files_only=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences transformers' progress bars, which are printed even where stderr is no terminal."""
    logging: Any = import_module("transformers.utils.logging")
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _class_names(config: Mapping[str, Any]) -> list[str]:
    names = config.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _timm_arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of ``timm.create_model``: those it was built with, and its configuration without places of weights."""
    given, more = config.get("pretrained_cfg"), config.get("model_args")
    known = {key: value for key, value in dict(given or {}).items() if key not in _PLACES}
    if "num_classes" in config:  # what else stands beside pretrained_cfg only informs
        known["num_classes"] = config["num_classes"]
    return {"pretrained_cfg": known, **dict(more or {})}
