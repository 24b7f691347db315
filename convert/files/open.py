"""Opening of networks: a file or a folder, with an architecture where one is needed, becomes a CNN.

weights and an architecture                      the CNN
a network that runs: pickled, or a program       that network
weights and the geometry of their convolutions   the convolutions alone, as a ``Layers`` tree

With it comes what is known of its attention layers, if it was converted: whoever wants them asks for ``attention()``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import as_path
from ..certificate.distance import describe_distance
from ..errors import (
    ArchitectureError,
    ArchitectureNeededError,
    CheckpointError,
    ConversionError,
    NotAConvolutionError,
    OnnxNetworkError,
    OptionError,
    PickledNetworkError,
    Problem,
    TrustNeededError,
    UnsupportedLayerError,
    first_line,
    listed,
)
from ..layer.checked import passed
from ..layer.construction import not_a_convolution
from ..layer.layer import SelfAttention
from ..layer.spare import LOOKS, TRAINED_SPARE
from ..network.convert import convert_model, restore_model
from ..network.graft import ungraft
from ..network.grafted import equip
from ..network.modules import modules_of
from ..network.report import LayerRecord
from ..plain import read_object
from ..tensors import Versions, versions_of, with_versions
from ..write import CONFIG, PROGRAM, is_ours
from .architecture import Architecture
from .folder import NETWORK_CONTENT, converted_in, read_folder
from .layers import (
    Layers,
    attention_layers,
    attention_named,
    configure,
    expected_keys,
    holds_attention,
    layer_tree,
    stored_layer,
    without_attention,
)
from .loading import load_into
from .names import PREFIX, is_model_folder, pretrained
from .opening import Opening
from .preprocessing import Preprocessing, from_folder, from_timm, from_torchvision
from .readers import FLOAT_STATE, Contents, Kind, quantised, quantised_keys, read_contents, sniff
from .state import complete_state, extra_state_of, held_state, parameter_orders, tensors_of
from .weights import Checkpoint, find_weights

LARGE = 2**28  # bytes of weights from which on they are not copied


@dataclass(frozen=True)
class Network:
    """A network with the weights of a file or a folder.

    Attributes:
        checkpoint: Where the weights came from; its state dict has the network's keys, and its convolutions are those
            that can be had without the network.
        build: Makes the CNN with these weights, or the network that the file holds.
        records: Its attention layers, if it was converted.
        recipe: How to build the network, or None if that is unknown, or a network was given.
        content: NETWORK_CONTENT, or LAYERS_CONTENT for a folder that holds nothing but layers.
        described: Its preprocessing in training, where its folder describes that.
    """

    checkpoint: Checkpoint
    build: Callable[[], nn.Module]
    records: tuple[LayerRecord, ...] = ()
    recipe: Architecture | None = None
    content: str = NETWORK_CONTENT
    described: Preprocessing | None = None

    @cached_property
    def read(self) -> nn.Module:
        """The network as it was read, in eval mode: a CNN, or layers of one in a ``Layers`` tree if it cannot be built.

        With a large checkpoint, its weights lie in the mapped file.
        """
        try:
            return self.build().eval()
        except (ArchitectureNeededError, TrustNeededError, ArchitectureError):
            if not self.checkpoint.convolutions:
                raise
            return layer_tree(self.checkpoint.convolutions, self.checkpoint.state_dict)

    @property
    def is_converted(self) -> bool:
        """Whether it has attention layers."""
        held = self.checkpoint.network
        is_recorded = bool(self.records) or holds_attention(self.checkpoint.state_dict)
        return is_recorded or (held is not None and bool(modules_of(held, SelfAttention)))

    @property
    def is_layers(self) -> bool:
        """Whether it has only layers, without the network that connects them."""
        return isinstance(self.read, Layers)

    @property
    def architecture(self) -> Architecture | None:
        """The recipe of the network, or None if it has only layers."""
        return None if self.is_layers else self.recipe

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that it was read from, including its code; no output may overwrite one."""
        code = None if self.recipe is None else self.recipe.file
        return self.checkpoint.files if code is None else (*self.checkpoint.files, code)

    @property
    def preprocessing(self) -> Preprocessing | None:
        """Its preprocessing in training, where its folder or its library describes that."""
        found = self.described or from_timm(getattr(self.read, "pretrained_cfg", None))
        return found or (None if self.architecture is None else from_torchvision(self.architecture.spec))

    @property
    def non_finite(self) -> tuple[str, ...]:
        """Names of tensors with a NaN or an infinity."""
        held = tensors_of(held_state(self.read))
        numbers = {key: value for key, value in held.items() if not value.is_meta}
        numbers = {key: value.float() if value.itemsize == 1 else value for key, value in numbers.items()}
        return tuple(key for key, value in numbers.items() if not torch.isfinite(value).all())

    @property
    def notes(self) -> dict[str, str]:
        """Remarks about the weights of layers that the checkpoint describes, by their names."""
        found = self.checkpoint.convolutions
        return {name: layer.note for name, layer in found.items() if layer.note and self.is_layers}

    @property
    def originals(self) -> dict[str, str]:
        """Names of layers in the checkpoint, by their names here, where the two differ."""
        found = self.checkpoint.convolutions
        return {name: layer.original for name, layer in found.items() if layer.original and self.is_layers}

    def stored_layers(self) -> Iterator[tuple[LayerRecord, SelfAttention]]:
        """Its attention layers alone, as they were saved; weights that only the architecture can compute are zeros."""
        for record in self.records:
            yield record, stored_layer(record, self.checkpoint.state_dict, self.checkpoint.path)

    def cnn(self) -> nn.Module:
        """The CNN, bit for bit: as it was read, or as it was before the conversion. Call it once."""
        self._check_convolutions()
        return restore_model(self.read, inplace=True) if modules_of(self.read, SelfAttention) else self.read

    def cnn_state(self, *, ungraft_all: bool = False) -> dict[str, Any]:
        """The CNN's state dict, bit for bit and in its order; nothing is built where the file tells all of it.

        Extra state of its modules, which can be any object, is in it.

        Args:
            ungraft_all: Leave trained spare heads out, and what they computed.

        Raises:
            NotAConvolutionError: Layers compute what no convolution computes, or nothing is converted.
        """
        if not self.is_converted:
            raise NotAConvolutionError(
                f"{self.checkpoint.path} holds no attention layer, so there is nothing to restore; "
                f"conv2attn convert {self.checkpoint.path} makes attention of its convolutions"
            )
        if not self.records:
            if not (ungraft_all and self.spare_heads):
                return complete_state(self.cnn())
            bare = ungraft(self.read, all=True).model
            return complete_state(restore_model(bare) if modules_of(bare, SelfAttention) else bare)
        self._check_convolutions(ungraft_all=ungraft_all)
        saved = self.checkpoint
        state = {**without_attention(saved.state_dict, self.records), **saved.extra_state}
        order = [key for key in saved.order if key in state] or state.keys()
        return with_versions({key: state[key] for key in order}, saved.versions)

    def attention(self) -> nn.Module:
        """The network with its attention layers as they were saved. Call it once."""
        return _convert_like(self.read, self.records, self.checkpoint).eval() if self.records else self.read

    def as_saved(self) -> nn.Module:
        """The network with its attention layers if it has any, else the CNN."""
        return self.attention() if self.is_converted else self.cnn()

    def whole(self) -> Network:
        """This network, if it can run as a whole; else it raises why the network cannot be built."""
        if self.is_layers:
            self.build()
        return self

    @property
    def spare_heads(self) -> dict[str, bool]:
        """Names of the layers with spare heads, and whether these were trained."""
        found = {record.name: layer for record, layer in self.stored_layers()}
        if not self.records:
            found = {names[0]: layer for names, layer in modules_of(self.read, SelfAttention).items()}
        return {name: not layer.spare_heads_are_off() for name, layer in found.items() if layer.spare is not None}

    def _check_convolutions(self, *, ungraft_all: bool = False) -> None:
        """Refuses attention layers that compute what no convolution computes, all of them named."""
        problems = []
        for record, layer in self.stored_layers():
            if ungraft_all:
                layer.remove_spare_heads()
            if (reason := not_a_convolution(layer)) is not None:
                distance = describe_distance(layer) if record.kind is None else ""
                reason = LOOKS if reason == TRAINED_SPARE else reason  # the advice names the command
                problems.append(str(Problem(record.name, reason + distance)))
        if problems:
            count = f"{len(problems)} of {len(self.records)} attention layers compute what no convolution computes"
            trained = any(self.spare_heads.values())
            advice = "conv2attn restore --ungraft takes trained spare heads off" if trained else ""
            advice = advice or "conv2attn freeze turns trained positions back into convolutions"
            raise NotAConvolutionError(f"{self.checkpoint.path}: {count}: {'; '.join(problems)}; {advice}")


def open_network(path: str | Path, opening: Opening | None = None) -> Network:
    """Opens a network in any of the supported forms.

    A network that only its file or folder describes is built when it is first used; so whoever wants its state dict or
    its layers alone needs no architecture, and no consent.

    Args:
        path: A checkpoint of any kind, of a CNN or of a converted network; a Hugging Face folder; a folder that a
            conversion wrote, or that of a run which has one.
        opening: Options for opening it.

    Raises:
        ArchitectureNeededError: When it is used: no architecture is given, and the checkpoint describes no geometry.
        CheckpointError: The file cannot be read or does not fit.
        TrustNeededError: It is a program, and not trusted.
        ArchitectureError: The network cannot be built.
        OptionError: A moving average or a key is asked for of a folder that has one set of weights.
    """
    path, opening, named_by = converted_in(Path(path)), opening or Opening(), None
    if (path / CONFIG).is_file():
        read_object(path / CONFIG)  # a broken one says so itself
    is_conversion = is_ours(path)
    if is_conversion or (opening.architecture is None and is_model_folder(path)):
        if opening.ema or opening.weights is not None:
            raise OptionError(f"{path} is a folder which keeps one set of weights")
        if is_conversion:
            return open_conversion(path, opening)
        named_by, recipe = path, Architecture(f"{PREFIX}{path}").resolved()
        if not recipe.spec.startswith("timm:"):
            # transformers' own loader knows the names that its files have for weights
            model = pretrained(path, trust=opening.trust)
            contents = read_contents(path)
            state = held_state(model)
            saved = Checkpoint(
                path, tensors_of(state), contents.sha256, files=contents.files, extra_state=extra_state_of(state)
            )
            return Network(saved, lambda: model, (), recipe, described=from_folder(path))
        opening = replace(opening, architecture=recipe)
    contents = read_contents(path, trust=opening.trust)
    if opening.architecture is None:
        return _of_file(find_weights(contents, path, opening))
    return _of_weights(contents, path, opening.architecture, opening, named_by)


def _of_file(saved: Checkpoint) -> Network:
    """A file alone: the network that it holds, or the convolutions that it describes."""

    def build() -> nn.Module:
        if saved.network is None and (signs := quantised_keys(saved.state_dict)):
            raise quantised(saved.path, FLOAT_STATE, signs)
        if saved.network is None and not saved.convolutions and sniff(saved.path) is Kind.ONNX:
            raise CheckpointError(_without_convolutions(saved.path))
        if saved.network is None:
            if saved.convolutions:
                raise _without_network(saved.path)
            raise (PickledNetworkError if saved.unknown else ArchitectureNeededError)(_weights_alone(saved))
        return saved.network

    return Network(saved, build)


def _without_convolutions(path: Path) -> str:
    if path.name == PROGRAM and is_ours(path.parent):
        return (
            f"{path} is attention already, of the conversion {path.parent}; to run it beside its CNN, conv2attn verify "
            f"{path.parent} --original FILE takes the ONNX file that was converted"
        )
    return f"{path} is an ONNX file without convolutions, so there is nothing to convert"


def _weights_alone(saved: Checkpoint) -> str:
    path, folder = saved.path, saved.path.parent
    if saved.unknown:
        return (
            f"{path} holds a pickled network of classes whose code is not run ({listed(saved.unknown)}); its weights "
            "take the architecture of their network"
        )
    layers = "attention layers" if holds_attention(saved.state_dict) else "convolutions"
    held = [f"{key} {list(value.shape)}" for key, value in saved.state_dict.items() if value.ndim == 4]
    return (
        f"{path} holds weights, but not the strides and paddings of its {layers}, which the architecture has (weights "
        f"with 4 dimensions: {listed(held) or 'none'})"
        f"{f', which the folder {folder} describes' if is_model_folder(folder) else ''}"
    )


def _without_network(path: Path) -> ArchitectureNeededError:
    takes = "a PyTorch network takes an architecture, without batch norms if the exporter folded them into convolutions"
    if (path / PROGRAM).is_file():
        whole = f"its whole network with attention is {path / PROGRAM}, which runs by itself"
        return OnnxNetworkError(f"{path} holds the layers of an ONNX file; {whole}; {takes}")
    if path.is_file() and sniff(path) is Kind.ONNX:
        writes = f"conv2attn convert {path} writes its network with attention"
        return OnnxNetworkError(f"{path} is an ONNX file; {writes}; {takes}")
    return ArchitectureNeededError(
        f"{path} describes its layers, but not how the network connects them; to run the whole network takes its "
        "architecture"
    )


def _of_weights(
    contents: Contents, path: Path, given: nn.Module | Architecture, opening: Opening, named_by: Path | None
) -> Network:
    """Weights of a CNN or of a converted network, under any keys, in a network that is built."""
    saved, records = Checkpoint(path, {}, contents.sha256), tuple[LayerRecord, ...]()

    def fill(model: nn.Module, assign: bool) -> None:
        nonlocal saved, records
        orders = list(parameter_orders(model))
        saved = find_weights(contents, path, opening, expected=expected_keys(model), orders=orders)
        records = attention_layers(model, saved.state_dict)
        passed = _load(model, saved, records, assign, beside=saved.extra)
        state = {key: value for key, value in saved.state_dict.items() if key not in passed}
        saved = replace(saved, state_dict=state, extra=(*passed, *saved.extra), convolutions={})

    cnn = _built(given, fill, path, trust=opening.trust, named_by=named_by)
    return Network(saved, lambda: cnn, records, _recipe(given), described=from_folder(path))


def open_conversion(path: Path, opening: Opening) -> Network:
    """Opens a folder that a conversion wrote: the network that is given or that it names, or its layers alone."""
    config, saved = read_folder(path)
    is_given = opening.architecture is not None
    given = opening.architecture if is_given else config.architecture
    kinds = sorted({record.kind for record in config.layers if record.kind is not None})
    if is_given or kinds:
        saved = replace(saved, convolutions={})

    def build() -> nn.Module:
        if given is None:
            held = f"{path} holds layers of {', '.join(kinds)}, which only the architecture can make; it must be given"
            raise ArchitectureNeededError(held) if kinds else _without_network(path)
        fill = partial(_load, saved=saved, records=config.layers)
        return _built(given, fill, path, trust=opening.trust, named_by=None if is_given else path)

    return Network(saved, build, config.layers, _recipe(given), config.content, config.preprocessing)


def _recipe(given: nn.Module | Architecture | None) -> Architecture | None:
    return given.resolved() if isinstance(given, Architecture) else None


@torch.inference_mode(False)
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

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
        >>> c2a.save_converted(c2a.convert_model(cnn).model, "folder")
        >>> c2a.load_converted("folder", architecture=cnn)[0].num_heads
        9
    """
    architecture = Architecture(architecture) if isinstance(architecture, str) else architecture
    if not isinstance(architecture, nn.Module | Architecture | None):
        raise ArchitectureError(f"architecture must be a network or the name of one; got {passed(architecture)}")
    network = open_conversion(converted_in(as_path(folder, "folder")), Opening(architecture, trust=trust))
    return (network.whole() if network.content == NETWORK_CONTENT else network).attention()


def placed(model: nn.Module, *, device: str, dtype: torch.dtype | None = None) -> nn.Module:
    """A network on a device, with its floating-point weights in a precision; None keeps theirs."""
    if dtype is not None and any(parameter.is_complex() for parameter in model.parameters()):
        raise ConversionError(f"the network has complex weights, whose imaginary parts {dtype} would lose")
    try:
        if torch.device(device).type == "meta":
            raise RuntimeError("it holds no numbers")
        return model.to(device=device, dtype=dtype)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ConversionError(f"the device {device!r} cannot be used, 'cpu' can: {first_line(error)}") from error


def _built(
    given: nn.Module | Architecture,
    fill: Callable[..., object],
    path: Path,
    *,
    trust: bool,
    named_by: Path | None,
) -> nn.Module:
    """The network, filled with the checkpoint's weights, which are copied unless they are large."""
    files = [file for file in (path.iterdir() if path.is_dir() else [path]) if file.is_file()]
    if isinstance(given, Architecture) and sum(file.stat().st_size for file in files) >= LARGE:
        with suppress(ArchitectureError):  # code that reads the values it draws cannot run without them
            with torch.device("meta"):
                model = given.build(trust=trust, named_by=named_by)
            fill(model, assign=True)
            if not any(tensor.is_meta for tensor in tensors_of(held_state(model)).values()):
                return model
    model = given.build(trust=trust, named_by=named_by) if isinstance(given, Architecture) else copy.deepcopy(given)
    fill(model, assign=False)
    return model


def _load(
    cnn: nn.Module,
    saved: Checkpoint,
    records: Sequence[LayerRecord],
    assign: bool,
    beside: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Loads the weights of a CNN, or those of a converted network that its CNN has, too; as ``load_into``."""
    if records:
        _match_dtypes(cnn, saved.state_dict)
    state = without_attention(saved.state_dict, records)
    is_pickled = saved.network is not None or bool(saved.unknown)
    versions = _written_by(cnn, saved) if records or is_pickled else saved.versions
    more, is_ours = saved.extra_state, bool(saved.order)
    return load_into(
        cnn, state, saved.path, assign=assign, beside=beside, versions=versions, extra_state=more, is_ours=is_ours
    )


def _convert_like(network: nn.Module, records: Sequence[LayerRecord], saved: Checkpoint) -> nn.Module:
    """Converts the layers of a CNN that were attention when it was saved, and gives them their positions and more."""
    wanted = {name: record for record in records for name in record.names}
    try:
        model, report = convert_model(
            network, filter_fn=lambda _, name: name in wanted, inplace=True, skip_unsupported=True
        )
    except UnsupportedLayerError as error:
        raise CheckpointError(f"{saved.path} does not fit the architecture: {error}") from error
    for layer in report.layers:
        configure(wanted[layer.name], attention_named(model, layer.name), saved.state_dict)
    equip(model)
    lacking = wanted.keys() - {name for layer in report.layers for name in layer.names}
    if lacking:
        raise CheckpointError(
            f"{saved.path} holds attention layers that the architecture lacks: {listed(sorted(lacking))}"
        )
    _match_dtypes(model, saved.state_dict)
    is_part, own = isinstance(model, Layers), held_state(model).keys()
    state = {key: value for key, value in saved.state_dict.items() if key in own or not is_part}
    more, is_ours = saved.extra_state, bool(saved.order)
    versions = _written_by(model, saved)
    load_into(model, state, saved.path, assign=is_part, versions=versions, extra_state=more, is_ours=is_ours)
    return model


def _written_by(model: nn.Module, saved: Checkpoint) -> Versions:
    """Versions of the classes that wrote a folder or a pickled network: those that it tells, else the model's own."""
    return {**(versions_of(model.state_dict()) or {}), **(saved.versions or {})}


def _match_dtypes(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Gives each floating-point tensor of the model the precision it was saved with."""
    for name, tensor in tensors_of(held_state(model, keep_vars=True)).items():
        if name in saved and tensor.is_floating_point() and saved[name].is_floating_point():
            tensor.data = tensor.data.to(saved[name].dtype)
