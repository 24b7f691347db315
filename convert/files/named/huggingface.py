"""Folders of the Hugging Face Hub: which network their config.json describes, and its weights.

    {"architectures": ["ResNetForImageClassification"], ...}    transformers: the whole file is its configuration
    {"architecture": "resnet18", "pretrained_cfg": {...}, ...}  timm, as ``timm.models.push_to_hf_hub`` writes it

The description becomes a specification and arguments that need the folder no more (``described``), so that what is
made of the network can remember how it was built. Only code of the folder's own needs the folder, and consent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from ...errors import ArchitectureError, CheckpointError, TrustNeededError, first_line
from ...plain import read_object
from .registries import Named, import_module, library, offline, pretrained_class, risk_of_config, without_weights

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
