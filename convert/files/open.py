"""Opening of networks: a file or a folder, with an architecture where one is needed, becomes a CNN.

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
from typing import TypeVar

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
from .checkpoint import Checkpoint, Opening, find_weights, size_on_disk
from .entry import (
    LayerEntry,
    attention_named,
    expected_keys,
    holds_attention,
    layer_entries,
    without_attention,
)
from .folder import LAYERS_CONTENT, Config, converted_in, is_converted, read_config, read_folder
from .keys import load_into, non_finite_keys
from .layers import Layers, layer_tree
from .named.huggingface import PREFIX, is_model_folder, pretrained
from .named.preprocessors import from_folder, from_timm, from_torchvision
from .readers import Contents, Progress, read_contents
from .write import PROGRAM

LARGE = 2**28  # bytes of weights from which on they are not copied
T = TypeVar("T")


@dataclass(frozen=True)
class Network:
    """A network with the weights of a file or a folder.

    Attributes:
        read: The network as it was read, in eval mode: a CNN, or layers of one in a ``Layers`` tree. With a large
            checkpoint, its weights lie in the mapped file.
        checkpoint: Where the weights came from; its state dict has the network's keys.
        entries: Its attention layers, if it was converted.
        architecture: Recipe of the network, or None for layers alone and for a network that was given.
        preprocessing: Its preprocessing in training, where its folder or library describes that.
        refusal: Why only its layers were read though its folder names an architecture.
    """

    read: nn.Module
    checkpoint: Checkpoint
    entries: tuple[LayerEntry, ...] = ()
    architecture: Architecture | None = None
    preprocessing: Preprocessing | None = None
    refusal: ConversionError | None = None

    @property
    def is_converted(self) -> bool:
        """Whether it has attention layers."""
        return bool(self.entries) or _has_attention(self.read)

    @property
    def is_layers(self) -> bool:
        """Whether it has only layers, without the network that connects them."""
        return isinstance(self.read, Layers)

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that it was read from, including its code; no output may overwrite one."""
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
        """Names of layers in the checkpoint, by their names here, where the two differ."""
        described = self.checkpoint.convolutions.items() if self.is_layers else ()
        return {name: layer.original for name, layer in described if layer.original}

    def cnn(self) -> nn.Module:
        """The CNN, bit for bit: as it was read, or as it was before the conversion. It can be requested only once.

        Raises:
            NotAConvolutionError: Attention layers of it compute what no convolution computes.
        """
        check_convolutions(self.entries, self.checkpoint)
        return restore_model(self.read, inplace=True) if _has_attention(self.read) else self.read

    def attention(self) -> nn.Module:
        """The network with its attention layers as they were saved. It can be requested only once.

        Raises:
            CheckpointError: The network lacks one of the layers, or it is another there.
        """
        return _convert_like(self.read, self.entries, self.checkpoint).eval() if self.entries else self.read

    def as_saved(self) -> nn.Module:
        """The network with its attention layers if it has any, else the CNN."""
        return self.attention() if self.is_converted else self.cnn()

    def whole(self) -> Network:
        """This network, if it can run as a whole.

        Raises:
            ArchitectureNeededError: It has only layers, without the network that connects them.
            TrustNeededError: It has only layers, since building the network that its folder names needs consent.
            ArchitectureError: It has only layers, since that network cannot be built here.
        """
        if self.is_layers:
            path, other = self.checkpoint.path, "the program that it came from"
            if path.suffix == ".onnx" or (path / PROGRAM).is_file():
                other = f"ONNX Runtime and the {PROGRAM} that conv2attn convert writes"
            raise self.refusal or ArchitectureNeededError(
                f"{path} describes its layers, but not how the network connects them; to run the whole network takes "
                f"its architecture, or {other}"
            )
        return self


def open_network(path: str | Path, opening: Opening | None = None, *, progress: Progress = lambda _: None) -> Network:
    """Opens a network in any of the supported forms.

    Args:
        path: A checkpoint of any kind, of a CNN or of a converted network; a Hugging Face folder; a folder that a
            conversion wrote, or that of a run which has one.
        opening: Options for opening it.
        progress: Called with the number of bytes of a checkpoint that were read since the last call.

    Raises:
        ArchitectureNeededError: No architecture is given, and the checkpoint describes no geometry.
        CheckpointError: The file cannot be read or does not fit.
        TrustNeededError: It is a program, and not trusted.
        ArchitectureError: The network cannot be built.
        OptionError: A moving average or a key is asked for of a folder that has one set of weights.
    """
    path, opening = converted_in(Path(path)), opening or Opening()
    if is_converted(path):
        return _of_conversion(path, opening)
    named_by = path if opening.architecture is None and is_model_folder(path) else None
    if named_by is not None:
        check_options(path, opening)
        recipe = Architecture(f"{PREFIX}{path}").resolved()
        if not recipe.spec.startswith("timm:"):
            return _of_transformers(path, recipe, opening, progress)
        opening = replace(opening, architecture=recipe)
    contents = read_contents(path, trust=opening.trust, progress=progress)
    if opening.architecture is None:
        saved = find_weights(contents, path, opening)
        return Network(_own_network(saved), saved)
    return _of_weights(contents, path, opening.architecture, opening, named_by)


def _of_weights(
    contents: Contents, path: Path, given: nn.Module | Architecture, opening: Opening, named_by: Path | None
) -> Network:
    """Weights of a CNN or of a converted network, under any keys, in a network that is built."""

    def fill(model: nn.Module, assign: bool) -> tuple[Checkpoint, tuple[LayerEntry, ...]]:
        saved = find_weights(contents, path, opening, expected=expected_keys(model))
        entries = layer_entries(model, saved.state_dict)
        passed = _load(model, saved, entries, assign=assign, beside=saved.extra)
        state = {key: value for key, value in saved.state_dict.items() if key not in passed}
        return replace(saved, state_dict=state, extra=(*passed, *saved.extra)), entries

    cnn, (saved, entries) = _built(given, fill, path, trust=opening.trust, named_by=named_by)
    return Network(cnn, saved, entries, *_recipe(given, cnn, path))


def _of_conversion(path: Path, opening: Opening) -> Network:
    """A folder that a conversion wrote: the network that it names, or its layers alone where that is not built."""
    check_options(path, opening)
    config, saved = read_folder(path)
    is_given = opening.architecture is not None
    given = opening.architecture if is_given else config.architecture
    if given is None:
        return Network(_described(config, saved), saved, config.layers, preprocessing=config.preprocessing)

    def fill(model: nn.Module, assign: bool) -> object:
        return _load(model, saved, config.layers, assign=assign)

    try:
        cnn, _ = _built(given, fill, path, trust=opening.trust, named_by=None if is_given else path)
    except (TrustNeededError, ArchitectureError) as error:
        if is_given or any(entry.kind for entry in config.layers):
            raise
        return Network(_described(config, saved), saved, config.layers, None, config.preprocessing, error)
    recipe, preprocessing = _recipe(given, cnn, path)
    return Network(cnn, saved, config.layers, recipe, config.preprocessing or preprocessing)


def _of_transformers(path: Path, recipe: Architecture, opening: Opening, progress: Progress) -> Network:
    """A folder of transformers, whose own loader knows the names that its files have for weights."""
    model = pretrained(path, trust=opening.trust)
    contents = read_contents(path, progress=progress)
    saved = Checkpoint(path, model.state_dict(), contents.sha256, files=contents.files)
    return Network(model, saved, (), recipe, from_folder(path))


def _recipe(
    given: nn.Module | Architecture, cnn: nn.Module, path: Path
) -> tuple[Architecture | None, Preprocessing | None]:
    """The architecture to store with a network, and the preprocessing that it was trained with."""
    recipe = given.resolved() if isinstance(given, Architecture) else None
    found = from_folder(path) if path.is_dir() else None
    found = found or from_timm(getattr(cnn, "pretrained_cfg", None))
    return recipe, found or (None if recipe is None else from_torchvision(recipe.spec))


def load_converted(
    folder: str | Path, *, architecture: nn.Module | Architecture | str | None = None, trust: bool = False
) -> nn.Module:
    """Reads a converted model.

    Args:
        folder: Folder that ``save_converted`` wrote.
        architecture: The CNN's architecture: a new network, or how to build one, or its name; by default the one that
            the folder names. A folder of layers alone needs none.
        trust: Build the architecture that the folder names even where that runs code that the folder chose.

    Returns:
        The converted model, in eval mode, with the weights, dtypes and engines that were saved. Layers alone are a
        module that holds each under its name, ``get_submodule(name)``.

    Raises:
        CheckpointError: The folder is not a converted model, or does not fit the architecture.
        ArchitectureNeededError: No architecture is given or named, and the folder needs one.
        TrustNeededError: The folder names an architecture that needs consent.
        ArchitectureError: The architecture cannot be built.
    """
    architecture = Architecture(architecture) if isinstance(architecture, str) else architecture
    if not isinstance(architecture, nn.Module | Architecture | None):
        raise ArchitectureError(f"architecture must be a network or an Architecture; got {type(architecture).__name__}")
    folder = converted_in(as_path(folder, "folder"))
    config = read_config(folder)
    network = open_network(folder, Opening(architecture, trust=trust))
    if network.is_layers and config.content != LAYERS_CONTENT:
        needed = ArchitectureNeededError("the folder names no architecture, and holds a network that needs one")
        raise network.refusal or needed
    return network.attention()


def placed(model: nn.Module, *, device: str, dtype: torch.dtype | None = None) -> nn.Module:
    """A network on a device, with its floating-point weights in a precision; None keeps theirs.

    Raises:
        ConversionError: There is no such device here, or complex weights would lose their imaginary parts.
    """
    if dtype is not None and any(parameter.is_complex() for parameter in model.parameters()):
        raise ConversionError(f"the network has complex weights, whose imaginary parts {dtype} would lose")
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("it holds no numbers")
        return model.to(device=device, dtype=dtype)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ConversionError(f"the device {device!r} cannot be used: {first_line(error)}") from error


def check_options(folder: Path, opening: Opening) -> None:
    """Refuses to choose among the weights of a folder that has one set of them.

    Raises:
        OptionError: Something is chosen.
    """
    if opening.ema or opening.weights is not None:
        raise OptionError(f"{folder} is a folder which keeps one set of weights")


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
        layer = entry.layer(saved.state_dict, saved.path)
        if (reason := not_a_convolution(layer)) is not None:
            distance = told_distance(layer) if entry.kind is None else ""
            problems.append(f"{entry.names[0] or 'the model itself'}: {reason}{distance}")
    if problems:
        count = f"{len(problems)} of {len(entries)} attention layers compute what no convolution computes"
        advice = "conv2attn freeze turns trained positions back into convolutions"
        raise NotAConvolutionError(f"{saved.path}: {count}: {'; '.join(problems)}; {advice}")


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
    is_attention = holds_attention(saved.state_dict)
    if not saved.convolutions or is_attention:
        folder = saved.path.parent
        held = [f"{key} {list(value.shape)}" for key, value in saved.state_dict.items() if value.ndim == 4]
        raise ArchitectureNeededError(
            f"{saved.path} holds weights, but not the strides and paddings of its "
            f"{'attention layers' if is_attention else 'convolutions'} (weights with 4 dimensions: "
            f"{listed(held) or 'none'}); that takes the architecture of their network"
            f"{f', which the folder {folder} describes' if is_model_folder(folder) else ''}"
        )
    return layer_tree(saved.convolutions, saved.state_dict)


def _built(
    given: nn.Module | Architecture,
    fill: Callable[[nn.Module, bool], T],
    path: Path,
    *,
    trust: bool,
    named_by: Path | None,
) -> tuple[nn.Module, T]:
    """The network with the checkpoint's weights, copied unless they are large, and what filling it with them gave."""
    if isinstance(given, nn.Module):
        model = copy.deepcopy(given)
        return model.eval(), fill(model, False)
    if size_on_disk(path) >= LARGE:
        with suppress(ArchitectureError):  # code that reads the values it draws cannot run without them
            with torch.device("meta"):
                model = given.build(trust=trust, named_by=named_by)
            found = fill(model, True)
            if not any(tensor.is_meta for tensor in model.state_dict().values()):
                return model.eval(), found
    model = given.build(trust=trust, named_by=named_by)
    return model.eval(), fill(model, False)


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
    is_part, own = isinstance(model, Layers), model.state_dict().keys()
    state = {key: value for key, value in saved.state_dict.items() if key in own or not is_part}
    load_into(model, state, saved.path, assign=is_part)
    return model


def _has_attention(model: nn.Module) -> bool:
    return any(isinstance(module, SelfAttention) for module in model.modules())


def _match_dtypes(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Gives each floating-point tensor of the model the precision it was saved with."""
    for name, tensor in model.state_dict(keep_vars=True).items():
        if name in saved and tensor.is_floating_point() and saved[name].is_floating_point():
            tensor.data = tensor.data.to(saved[name].dtype)
