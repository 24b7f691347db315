"""The door to every network: from a file or a folder, and an architecture where one is needed, to a CNN.

weights and an architecture                      the CNN
a network that runs: pickled, or a program       that network
weights and the geometry of their convolutions   the convolutions alone, as a ``Layers`` tree

With it comes what is known of its attention layers, if it was converted: whoever wants them asks for ``attention()``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import as_path
from ..attention.construction import not_a_convolution
from ..attention.layer import SelfAttention
from ..certificate.distance import told_distance
from ..errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    ConversionError,
    NotAConvolutionError,
    OptionError,
    TrustNeededError,
    UnsupportedLayerError,
    first_line,
    listed,
)
from ..model.convert import convert_model, restore_model
from ..preprocessing import Preprocessing
from .architecture import Architecture
from .checkpoint import Checkpoint, Progress, find_weights, size_on_disk
from .entry import (
    LayerEntry,
    attention_named,
    expected_keys,
    holds_attention,
    layer_entries,
    only_layers,
    without_attention,
)
from .folder import LAYERS_CONTENT, Config, is_converted, read_config, read_folder
from .keys import load_into, non_finite_keys
from .layers import Layers, layer_tree
from .named.huggingface import PREFIX, is_model_folder, pretrained
from .named.preprocessors import from_folder, from_timm
from .readers import read_contents

LARGE = 2**28  # bytes of weights from which on they are not copied


@dataclass(frozen=True)
class Opening:
    """How a checkpoint is opened: the arguments of ``open_network`` that a user has a say in.

    Attributes:
        architecture: How to build the CNN, or None.
        ema: Take the moving average of the weights.
        weights: Key under which the weights lie in the checkpoint; None finds them.
        trust: Run the code that a program brings or names, or that a folder names as its architecture.
    """

    architecture: Architecture | None = None
    ema: bool = False
    weights: str | None = None
    trust: bool = False

    def open(self, path: str | Path, **options: Any) -> Network:
        """``open_network`` with these arguments and others."""
        return open_network(path, **vars(self), **options)


@dataclass(frozen=True)
class Network:
    """A network with the weights of a file or a folder.

    Attributes:
        read: The network as it was read, in eval mode: a CNN, or layers of one in a ``Layers`` tree. With a large
            checkpoint, its weights lie in the mapped file.
        checkpoint: Where the weights came from; its state dict has the network's keys.
        entries: Its attention layers, if it was converted.
        architecture: How the network was built, or None for layers alone and for a network that was given.
        preprocessing: What it was trained on, where the folder or the library that it is from says that.
        refusal: Why it is layers alone though its folder names an architecture.
        device: Where the networks that it gives are put; None leaves them.
        dtype: Precision of their floating-point weights; None leaves it.
    """

    read: nn.Module
    checkpoint: Checkpoint
    entries: tuple[LayerEntry, ...] = ()
    architecture: Architecture | None = None
    preprocessing: Preprocessing | None = None
    refusal: ConversionError | None = None
    device: str | None = "cpu"
    dtype: torch.dtype | None = None

    @property
    def is_converted(self) -> bool:
        """Whether layers of it are attention."""
        return bool(self.entries) or any(isinstance(module, SelfAttention) for module in self.read.modules())

    @property
    def is_layers(self) -> bool:
        """Whether it is layers without the network that connects them."""
        return isinstance(self.read, Layers)

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that it was read from, its code among them: none may be lost to what is written of it."""
        code = None if self.architecture is None else self.architecture.file
        return self.checkpoint.files if code is None else (*self.checkpoint.files, code)

    @property
    def non_finite(self) -> tuple[str, ...]:
        """Names of tensors with a NaN or an infinity."""
        return tuple(non_finite_keys(self.read.state_dict()))

    @property
    def notes(self) -> dict[str, str]:
        """Remarks about the weights of layers that the checkpoint describes, by their names."""
        described = self.checkpoint.convolutions.items() if self.is_layers else ()
        return {name: layer.note for name, layer in described if layer.note}

    @property
    def originals(self) -> dict[str, str]:
        """The checkpoint's names of layers, by the names that they have here, where these differ."""
        described = self.checkpoint.convolutions.items() if self.is_layers else ()
        return {name: layer.original for name, layer in described if layer.original}

    def cnn(self) -> nn.Module:
        """The CNN: as it was read, or what the network was converted from, bit for bit. It may be given once only.

        Raises:
            NotAConvolutionError: Attention layers of it compute what no convolution computes.
        """
        check_convolutions(self.entries, self.checkpoint)
        converted = any(isinstance(module, SelfAttention) for module in self.read.modules())
        return self._placed(restore_model(self.read, inplace=True) if converted else self.read)

    def attention(self) -> nn.Module:
        """The network with its attention layers as they were saved. It may be given once only.

        Raises:
            CheckpointError: The network lacks one of the layers, or it is another there.
        """
        if not self.entries:
            return self._placed(self.read)
        return self._placed(_convert_like(self.read, self.entries, self.checkpoint))

    def as_saved(self) -> nn.Module:
        """The network with its attention layers if it has some, else the CNN."""
        return self.attention() if self.is_converted else self.cnn()

    def whole(self) -> Network:
        """This network, if it can run as a whole.

        Raises:
            ArchitectureNeededError: It is layers without the network that connects them.
            TrustNeededError: So it is since building the network that its folder names takes consent.
            ArchitectureError: So it is since that network cannot be built here.
        """
        if self.is_layers:
            if self.refusal is not None:
                raise self.refusal
            raise ArchitectureNeededError(
                f"{self.checkpoint.path} describes its layers, but not how the network connects them, and the whole "
                "network is to run; that takes its architecture"
            )
        return self

    def _placed(self, model: nn.Module) -> nn.Module:
        if self.dtype is not None and any(parameter.is_complex() for parameter in model.parameters()):
            raise ConversionError(f"the network has complex weights, whose imaginary parts {self.dtype} would lose")
        try:
            device = None if self.device is None else torch.device(self.device)
            if device is not None and device.type == "meta":
                raise RuntimeError("it holds no numbers")
            return model.to(device=device, dtype=self.dtype).eval()
        except (RuntimeError, AssertionError, ImportError) as error:
            raise ConversionError(f"the device {self.device!r} cannot be used: {first_line(error)}") from error


def open_network(
    path: str | Path,
    *,
    architecture: nn.Module | Architecture | None = None,
    converted: bool = False,
    ema: bool = False,
    weights: str | None = None,
    trust: bool = False,
    device: str | None = "cpu",
    dtype: torch.dtype | None = None,
    progress: Progress | None = None,
) -> Network:
    """Opens whatever holds a network.

    Args:
        path: A checkpoint of any kind, of a CNN or of a converted network; a Hugging Face folder; or a folder that a
            conversion wrote.
        architecture: The CNN, of which a copy is used, or how to build it. None takes the network that the file holds,
            or the one that a folder names (with consent, where that takes it), or the layers by the geometry that
            the file describes.
        converted: Refuse what is no folder that a conversion wrote.
        ema: Take the moving average of the weights.
        weights: Key under which the weights lie in the checkpoint; by default they are found.
        trust: Run the code that a program brings or names, or that a folder names as its architecture.
        device: Where to; None leaves a network that is given where it is.
        dtype: Convert floating-point weights to this precision; None keeps that of the architecture, or in which a
            converted network was saved.
        progress: Called with the number of bytes of a checkpoint that were read since the last call.

    Raises:
        ArchitectureNeededError: No architecture is given, and the checkpoint describes no geometry.
        CheckpointError: The file cannot be read or does not fit.
        TrustNeededError: It is a program, and not trusted.
        ArchitectureError: The network cannot be built.
        OptionError: A moving average or a key is asked for of a folder that a conversion wrote.
        ConversionError: There is no such device here, or a dtype is asked for that complex weights do not fit.
    """
    path = Path(path)
    placed: dict[str, Any] = {"device": device, "dtype": dtype}
    if converted or is_converted(path):
        check_options(path, ema=ema, weights=weights)
        return replace(_open_converted(path, architecture, trust=trust), **placed)
    named_by = None
    if architecture is None and is_model_folder(path):
        check_options(path, ema=ema, weights=weights)
        architecture, named_by = Architecture(f"{PREFIX}{path}").resolved(), path
        if not architecture.spec.startswith("timm:"):
            return replace(_open_pretrained(path, architecture, trust=trust, progress=progress), **placed)
    contents = read_contents(path, trust=trust)
    if architecture is None:
        saved = find_weights(contents, path, ema=ema, weights=weights, progress=progress)
        return Network(_own_network(saved), saved, **placed)
    found: list[tuple[Checkpoint, tuple[LayerEntry, ...]]] = []

    def load(model: nn.Module, assign: bool) -> None:
        saved = find_weights(
            contents,
            path,
            expected=expected_keys(model),
            ema=ema,
            weights=weights,
            progress=None if found else progress,
        )
        entries = layer_entries(model, saved.state_dict)
        passed = _load(model, saved, entries, assign=assign, beside=saved.extra)
        state = {key: value for key, value in saved.state_dict.items() if key not in passed}
        found.append((replace(saved, state_dict=state, extra=(*passed, *saved.extra)), entries))

    cnn = _built(architecture, load, path, trust=trust, named_by=named_by)
    return Network(cnn, *found[-1], *_recipe(architecture, cnn, path), **placed)


def _open_converted(path: Path, architecture: nn.Module | Architecture | None, *, trust: bool) -> Network:
    """A folder that a conversion wrote: the network that it names, or its layers alone where that is not built."""
    config, saved = read_folder(path)
    given = architecture or config.architecture
    if given is None:
        return Network(_described(config, saved), saved, config.layers, preprocessing=config.preprocessing)
    named_by = None if architecture is not None else path
    try:
        cnn = _built(
            given,
            lambda model, assign: _load(model, saved, config.layers, assign=assign),
            path,
            trust=trust,
            named_by=named_by,
        )
    except (TrustNeededError, ArchitectureError) as error:
        if architecture is not None or any(entry.kind for entry in config.layers):
            raise
        return Network(
            _described(config, saved), saved, config.layers, preprocessing=config.preprocessing, refusal=error
        )
    recipe, preprocessing = _recipe(given, cnn, path)
    return Network(cnn, saved, config.layers, recipe, config.preprocessing or preprocessing)


def _open_pretrained(path: Path, recipe: Architecture, *, trust: bool, progress: Progress | None) -> Network:
    """A folder of transformers, whose own loader knows the names that its files have for weights."""
    model = pretrained(path, trust=trust)
    saved = find_weights(read_contents(path), path, progress=progress)
    return Network(model, replace(saved, state_dict=model.state_dict()), (), recipe, from_folder(path))


def _recipe(
    architecture: nn.Module | Architecture, cnn: nn.Module, path: Path
) -> tuple[Architecture | None, Preprocessing | None]:
    """How a network was built, to be remembered, and what it was trained on."""
    recipe = architecture.resolved() if isinstance(architecture, Architecture) else None
    config = getattr(cnn, "pretrained_cfg", None)
    found = from_folder(path) if path.is_dir() else None
    return recipe, found or (from_timm(config) if isinstance(config, Mapping) else None)


def load_converted(
    folder: str | Path, *, architecture: nn.Module | Architecture | None = None, trust: bool = False
) -> nn.Module:
    """Reads a converted model.

    Args:
        folder: What ``save_converted`` wrote.
        architecture: The CNN's architecture: a new network, or how to build one; by default the one that the folder
            names. A folder of layers alone needs none.
        trust: Build the architecture that the folder names even where that runs code that the folder chose.

    Returns:
        The converted model, in eval mode, with the weights, dtypes and engines that were saved. Layers alone are a
        module that holds each under its name, ``get_submodule(name)``.

    Raises:
        CheckpointError: The folder is not a converted model, or does not fit the architecture.
        ArchitectureNeededError: No architecture is given or named, and the folder needs one.
        TrustNeededError: The folder names an architecture that takes consent.
        ArchitectureError: The architecture cannot be built.
    """
    if not isinstance(architecture, nn.Module | Architecture | None):
        raise ArchitectureError(f"architecture must be a network or an Architecture; got {type(architecture).__name__}")
    folder = as_path(folder, "folder")
    network = open_network(folder, architecture=architecture, converted=True, trust=trust, device=None)
    if network.is_layers and read_config(folder).content != LAYERS_CONTENT:
        if network.refusal is None:
            raise ArchitectureNeededError("the folder names no architecture, and holds a network that needs one")
        raise network.refusal
    return network.attention()


def check_options(folder: Path, *, ema: bool, weights: str | None) -> None:
    """Refuses to choose among the weights of a folder that a conversion wrote.

    Raises:
        OptionError: Something is chosen.
    """
    if ema or weights is not None:
        raise OptionError(f"{folder} is a converted network, which keeps one set of weights")


def check_convolutions(entries: Sequence[LayerEntry], saved: Checkpoint) -> None:
    """Refuses attention layers that compute what no convolution computes.

    Args:
        entries: The layers.
        saved: Their weights, under their names.

    Raises:
        NotAConvolutionError: There are some, all of them named.
        CheckpointError: Values are missing, or do not fit an entry.
    """
    problems = []
    for entry in entries:
        layer = entry.attention(entry.convolution(saved.state_dict), saved.state_dict, saved.path)
        if (reason := not_a_convolution(layer)) is not None:
            distance = told_distance(layer) if entry.kind is None else ""
            problems.append(f"{entry.names[0] or 'the model itself'}: {reason}{distance}")
    if problems:
        count = f"{len(problems)} of {len(entries)} attention layers compute what no convolution computes"
        raise NotAConvolutionError(f"{saved.path}: {count}: {'; '.join(problems)}")


def _described(config: Config, saved: Checkpoint) -> nn.Module:
    """The convolutions that the attention layers of a folder were made from, alone."""
    kinds = sorted({entry.kind for entry in config.layers if entry.kind is not None})
    if kinds:
        raise ArchitectureNeededError(
            f"{saved.path} holds layers of {', '.join(kinds)}, which only the architecture can make; it must be given"
        )
    state = saved.state_dict
    return layer_tree({name: entry.described(name, state) for entry in config.layers for name in entry.names}, state)


def _own_network(saved: Checkpoint) -> nn.Module:
    """The network that a checkpoint holds, or the convolutions that it describes, alone."""
    if saved.network is not None:
        return saved.network.eval()
    if not saved.convolutions or holds_attention(saved.state_dict):
        raise ArchitectureNeededError(_what_is_needed(saved))
    return layer_tree(saved.convolutions, saved.state_dict)


def _what_is_needed(saved: Checkpoint) -> str:
    held = [f"{key} {list(value.shape)}" for key, value in saved.state_dict.items() if value.ndim == 4]
    whose = "attention layers" if holds_attention(saved.state_dict) else "convolutions"
    return (
        f"{saved.path} holds weights, but not the strides and paddings of its {whose} (weights with 4 dimensions: "
        f"{listed(held) or 'none'}); that takes the architecture of their network"
    )


def _built(
    architecture: nn.Module | Architecture,
    load: Callable[[nn.Module, bool], object],
    path: Path,
    *,
    trust: bool,
    named_by: Path | None,
) -> nn.Module:
    """The network with the checkpoint's weights, copied unless they are large."""
    if isinstance(architecture, nn.Module):
        model = copy.deepcopy(architecture)
        load(model, False)
        return model.eval()
    if size_on_disk(path) >= LARGE:
        with suppress(ArchitectureError):  # code that reads the values it draws cannot run without them
            with torch.device("meta"):
                model = architecture.build(trust=trust, named_by=named_by)
            load(model, True)
            if not any(tensor.is_meta for tensor in model.state_dict().values()):
                return model.eval()
    model = architecture.build(trust=trust, named_by=named_by)
    load(model, False)
    return model.eval()


def _load(
    cnn: nn.Module,
    saved: Checkpoint,
    entries: Sequence[LayerEntry],
    *,
    assign: bool,
    beside: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Loads the weights of a CNN, or those of a converted network that its CNN has, too; as ``load_into``."""
    if entries:
        _match_dtypes(cnn, saved.state_dict)
    state = without_attention(saved.state_dict, entries)
    return load_into(cnn, state, saved.path, assign=assign, beside=beside)


def _convert_like(network: nn.Module, entries: Sequence[LayerEntry], saved: Checkpoint) -> nn.Module:
    """Converts the layers of a CNN that were attention when it was saved, and gives them their positions and more.

    Raises:
        CheckpointError: The network lacks one of the layers, or it is another there.
        EngineError: There is no such engine.
    """
    wanted = {name: entry for entry in entries for name in entry.names}
    try:
        model, report = convert_model(
            network, filter_fn=lambda _, name: name in wanted, inplace=True, skip_unsupported=True
        )
    except UnsupportedLayerError as error:
        raise CheckpointError(f"{saved.path} does not fit the architecture: {error}") from error
    for layer in report.layers:
        wanted[layer.name].configure(attention_named(model, layer.name), saved.state_dict)
    lacking = wanted.keys() - {name for layer in report.layers for name in layer.names}
    if lacking:
        raise CheckpointError(
            f"{saved.path} holds attention layers that the architecture lacks: {listed(sorted(lacking))}"
        )
    _match_dtypes(model, saved.state_dict)
    state = only_layers(saved.state_dict, entries) if isinstance(model, Layers) else saved.state_dict
    load_into(model, state, saved.path, assign=isinstance(model, Layers))
    return model


def _match_dtypes(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Gives each floating-point tensor of the model the precision it was saved with."""
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in saved and tensor.is_floating_point() and saved[name].is_floating_point():
            tensor.data = tensor.data.to(saved[name].dtype)
