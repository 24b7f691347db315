"""From a trained CNN to one that can attend: spare heads on chosen layers, W_out = 0 at first, and the way back.

1. find the layers that may carry spare heads, and the sizes of their maps on an example
2. choose: the last over the images' axes that sees enough pixels, the last of all, or those that are named
3. refuse, naming all problems at once, before anything is changed
4. make the chosen convolutions attention layers, over the very parameters, and add the heads (``layer/spare.py``)
5. refuse, and undo, what is not the same network as before, or does not run the heads (``unchanged.py``)
6. report

At step 0 outputs, gradients and buffers are the CNN's, bit for bit, for finite inputs and gradients. Every key of the
CNN's state dict keeps its name and value, and the CNN's files load strictly.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from zlib import crc32

import torch
from torch import Tensor, fx, nn

from ..arguments import Size, as_integer, check_memory, format_bytes, image_batches
from ..errors import ConversionError, Problem, UnsupportedLayerError, listed
from ..inputs import call_with, named_tensors, tensors_of
from ..layer.checked import changeable_model
from ..layer.construction import attention_with, conv_with, not_a_convolution
from ..layer.layer import SelfAttention
from ..layer.spare import TRANSPOSED, SpareHeads
from ..layer.supported import unsupported_reason
from ..spec import ConvSpec
from ..subclasses.computed import in_eval_mode
from ..subclasses.readers import geometry
from .calls import calls_as_modules
from .convert import Filter, is_convolution, matches
from .copies import copied
from .grafted import equip
from .modules import Change, changed, guard, modules_of, names_by_module, undone, unguard
from .unchanged import Before

AUTO, LAST = "auto", "last"
PIXELS = 100, 1_600  # of the map that "auto" wants: fewer say little, more cost much
COSTLY = 4_096  # pixels
UNSEEN = "without an example neither the sizes of maps nor which layers run are known: the last above 1x1 was taken"


@dataclass(frozen=True)
class GraftedLayer:
    """A layer with spare heads.

    Attributes:
        names: Its names in the model; more than one if the model shares it.
        spec: Its geometry.
        spare: Its spare heads.
        size: The largest map it sees on the example, or None without one.
        parameters: Numbers that the spare heads add.
        is_off: Whether W_out is 0, so that the layer computes what it did without them.
    """

    names: tuple[str, ...]
    spec: ConvSpec
    spare: SpareHeads
    size: Size | None
    parameters: int
    is_off: bool = True

    @classmethod
    def of(cls, names: tuple[str, ...], layer: SelfAttention, size: Size | None = None) -> GraftedLayer:
        """Describes a layer that has spare heads."""
        if layer.spare is None:
            raise ConversionError(f"the layer {names[0]} has no spare heads")
        count = sum(parameter.numel() for parameter in layer.spare_parameters())
        return cls(names, layer.spec, layer.spare, size, count, layer.spare_heads_are_off())

    @property
    def name(self) -> str:
        """The first of the names."""
        return self.names[0]

    def __str__(self) -> str:
        seen = "" if self.size is None else f", attending over {math.prod(self.size):,} pixels ({self.size})"
        layer = f"{self.name or 'the model itself'} ({self.spec})"
        return f"{layer}: {self.spare}{seen}, {self.parameters:,} new parameters"


@dataclass(frozen=True)
class GraftReport:
    """Report of a graft.

    Attributes:
        layers: The layers with new heads, in the model's order.
        notes: Remarks for the user.
    """

    layers: tuple[GraftedLayer, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join([*map(str, self.layers), *self.notes])


class Graft(NamedTuple):
    """A network with spare heads and its report."""

    model: nn.Module
    report: GraftReport

    def __str__(self) -> str:
        """The report."""
        return str(self.report)


@dataclass(frozen=True)
class UngraftReport:
    """Report of an ungraft.

    Attributes:
        removed: The layers whose heads were taken off, as they were.
        kept: The layers whose trained heads stayed.
        change: By how much the outputs changed on the data, as root mean square, beside that of the outputs; None
            without data.
    """

    removed: tuple[GraftedLayer, ...]
    kept: tuple[GraftedLayer, ...]
    change: tuple[float, float] | None = None

    def __str__(self) -> str:
        lines = [
            f"{each.name or 'the model itself'}: {each.spare} taken off; "
            + ("it was at 0, so nothing changes" if each.is_off else "it was trained, and what it computed is gone")
            for each in self.removed
        ]
        lines += [f"{each.name or 'the model itself'}: {each.spare} stays, it was trained" for each in self.kept]
        if self.change is not None:
            lines.append("outputs changed by {:.3g} (root mean square), of outputs of {:.3g}".format(*self.change))
        return "\n".join(lines)


class Ungraft(NamedTuple):
    """A network without spare heads and its report."""

    model: nn.Module
    report: UngraftReport

    def __str__(self) -> str:
        """The report."""
        return str(self.report)


@torch.inference_mode(False)
def graft(
    model: nn.Module,
    *,
    heads: int = 1,
    key_dim: int | None = None,
    value_dim: int | None = None,
    where: str | Sequence[str] = AUTO,
    beside: bool = False,
    positions: bool = False,
    example: Any = None,
    filter_fn: Filter | None = None,
    inplace: bool = False,
) -> Graft:
    """Gives chosen layers of a CNN spare heads, which add 0 until training changes their output projection.

    Only the chosen layers change their class, to ``SelfAttention``; everything else stays. An optimizer's state from
    before stays usable: the CNN's parameters come in the same order, with ``inplace`` they are the same objects, and
    ``parameter_groups`` puts the new ones last.

    Args:
        model: A CNN, or a network of ``convert_model``'s.
        heads: Spare heads of each layer.
        key_dim: Dimension of a head's queries and keys; by default half the layer's input channels, shared among heads.
        value_dim: Dimension of a head's values; by default likewise.
        where: "auto", the last convolution above 1x1 over the images' own axes that runs on ``example`` and sees 100 to
            1,600 pixels there, or comes nearest to that, as the report then says; "last", the last above 1x1 in the
            model's order; or names of layers, or patterns as ``name_filter`` takes them. Without an example "auto" is
            the last with as many axes as most convolutions of the model, and the report says so.
        beside: Put the heads beside the taps, at the layer's outputs, in place of in front of them, at its input.
        positions: Let scores read the relative position, too, with v = 0 at first.
        example: An input, as ``inputs.as_inputs`` takes it. The model is run on it before and after, in eval mode:
            outputs must hold the same numbers, and the chosen layers must run.
        filter_fn: Called with each candidate and its name; False leaves it out.
        inplace: Change the model instead of a copy. Use the returned model all the same: the root may be new.

    Returns:
        The network and the report. A map of more than 4,096 pixels is warned of.

    Raises:
        UnsupportedLayerError: Layers that cannot carry the heads, all of them, or none is found. Nothing is changed.
        MemoryLimitError: The heads take more memory than this machine has.
        ConversionError: An argument is not what it must be; the model cannot be copied, does not run on the example, or
            would not be the same network.

    Examples:
        >>> cnn, x = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()), torch.rand(2, 3, 12, 12)
        >>> model, report = c2a.graft(cnn, example=x)
        >>> torch.equal(model(x), cnn(x))
        True
        >>> model.load_state_dict(cnn.state_dict())
        <All keys matched successfully>
    """
    wanted, wrong = _numbers(heads=heads, key_dim=key_dim, value_dim=value_dim)
    model = _with_modules(changeable_model(model), example, inplace=inplace)
    try:
        # choose the layers, and name all that is wrong at once
        before, maps = _before(model, example)
        chosen, notes = _chosen(model, where, maps, filter_fn, beside=beside)
    except ConversionError as error:
        if not wrong:
            raise
        raise ConversionError("; ".join([*wrong, str(error)])) from error
    if wrong:
        raise ConversionError("; ".join(wrong))
    # refuse heads that do not fit into memory
    for names in chosen:
        _check_memory(
            names[0], _spec(model.get_submodule(names[0])), wanted, None if maps is None else maps.sizes.get(names[0])
        )
    # add the heads, to a layer in the place of each convolution
    model = model if inplace else copied(model)
    layers, pairs, changes = [], list[tuple[str, SelfAttention]](), list[Change]()
    for names in chosen:
        old = model.get_submodule(names[0])
        layer = old if isinstance(old, SelfAttention) else attention_with(old)  # type: ignore[arg-type]
        _add(layer, names[0], wanted, beside=beside, positions=positions, in_place_of_conv=layer is not old)
        changes += [] if layer is old else [Change(names, old, layer)]
        pairs.append((names[0], layer))
        layers.append(GraftedLayer.of(names, layer, None if maps is None else maps.sizes.get(names[0])))
    model = changed(model, changes)
    # refuse, and undo, what is not the same network
    try:
        _check(model, before, changes, {name for name, _ in pairs})
    except ConversionError:
        for _, layer in pairs:
            layer.remove_spare_heads()
        undone(model, changes)
        raise
    guard(model)
    equip(model)
    costs = [_cost(each) for each in layers if each.size is not None and math.prod(each.size) > COSTLY]
    for cost in costs:
        warnings.warn(cost, stacklevel=2)
    return Graft(model, GraftReport(tuple(layers), (*notes, *costs)))


@torch.inference_mode(False)
def ungraft(model: nn.Module, *, all: bool = False, data: Any = None) -> Ungraft:
    """Takes spare heads off, in a copy: those that stayed at 0, which changes nothing, bit for bit, or all.

    Args:
        model: A network with spare heads.
        all: Take off trained heads, too. What they computed is gone; the rest stays as it was trained.
        data: Batches of inputs, as ``image_batches`` takes them; the report then says how much the outputs change.

    Returns:
        The network, with convolutions in place of layers that ``graft`` made of them, and the report.

    Raises:
        ConversionError: No layer has spare heads, or the model cannot be copied.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
        >>> model, _ = c2a.graft(cnn, example=torch.rand(2, 3, 12, 12))
        >>> c2a.ungraft(model).model.state_dict().keys() == cnn.state_dict().keys()
        True
    """
    before, bare = Before.of(changeable_model(model)), copied(model)
    removed, kept, changes = [], [], list[Change]()
    for names, layer in modules_of(bare, SelfAttention).items():
        if layer.spare is None:
            continue
        found = GraftedLayer.of(names, layer)
        if not (found.is_off or all):
            kept.append(found)
            continue
        removed.append(found)
        layer.remove_spare_heads()
        if found.spare.in_place_of_conv and not_a_convolution(layer) is None:
            changes.append(Change(names, layer, conv_with(layer)))
    if not (removed or kept):
        raise ConversionError("no layer of the model has spare heads: graft(model) adds them")
    bare = changed(bare, changes)
    before.check(bare, changes, loses_keys=True)
    equip(bare)
    if not modules_of(bare, SelfAttention):
        unguard(bare)
    change = None if data is None else _change(model, bare, data)
    return Ungraft(bare, UngraftReport(tuple(removed), tuple(kept), change))


def _numbers(**given: int | None) -> tuple[dict[str, int | None], list[str]]:
    """The numbers of heads and dimensions, and what is wrong with them."""
    found, wrong = dict[str, int | None](), list[str]()
    for name, value in given.items():
        try:
            found[name] = None if value is None and name != "heads" else as_integer(value, name, least=1)
        except ConversionError as error:
            wrong.append(str(error))
    return found, wrong


def _with_modules(model: nn.Module, example: Any, *, inplace: bool) -> nn.Module:
    """The model; a graph that calls its convolutions as functions, as those of torch.export do, with modules for them.

    Raises:
        UnsupportedLayerError: No call of a graph can be a module.
        ConversionError: It cannot be copied, or would not be the same network.
    """
    is_graph = any(isinstance(each, fx.GraphModule) for each in model.modules())
    if not is_graph or names_by_module(model, _may_carry):
        return model
    made, left = calls_as_modules(copied(model, keep_tensors=inplace))
    if not names_by_module(made, _may_carry):
        if left:
            raise UnsupportedLayerError(f"nothing was grafted: {listed(list(map(str, left)), '; ')}", left)
        return model
    Before.of(model, example).check(made)
    return made


def _may_carry(module: nn.Module) -> bool:
    """Whether a module is a convolution, supported or not, or an attention layer."""
    return isinstance(module, SelfAttention) or is_convolution(module)


def _check(model: nn.Module, before: Before, changes: Sequence[Change], grafted: set[str]) -> None:
    """Refuses a network that is not the same with its spare heads, or does not run them on the example."""
    runs = before.check(model, changes)
    idle = [] if runs is None else [each for each in runs.idle(model, before.runs) if each.name in grafted]
    if idle:
        raise UnsupportedLayerError(f"nothing was grafted: {'; '.join(map(str, idle))}", idle)


def _chosen(
    model: nn.Module, where: str | Sequence[str], maps: Maps | None, filter_fn: Filter | None, *, beside: bool
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Names of the layers that get heads, and remarks; as ``graft``, it raises."""
    candidates = _candidates(model, filter_fn)
    chosen, notes = _choose(model, candidates, where, maps, beside=beside)
    problems = [each for names in chosen if (each := _problem(model, names, maps, beside=beside)) is not None]
    if problems:
        raise UnsupportedLayerError(f"nothing was grafted: {'; '.join(map(str, problems))}", problems)
    return chosen, notes


def _candidates(model: nn.Module, filter_fn: Filter | None) -> list[tuple[str, ...]]:
    """Names of the convolutions and attention layers that the filter leaves, in the model's order."""
    if filter_fn is not None and not callable(filter_fn):
        raise ConversionError(f"filter_fn must be a function of a module and its name; got {filter_fn!r:.80}")
    groups = names_by_module(model, _may_carry)
    if not groups:
        raise UnsupportedLayerError("nothing was grafted: the model has no convolution", [])
    left = [
        names
        for names in groups
        if filter_fn is None or any(filter_fn(model.get_submodule(names[0]), name) for name in names)
    ]
    if not left:
        raise UnsupportedLayerError(f"nothing was grafted: filter_fn leaves none of {len(groups)} layers", [])
    return left


class Maps(NamedTuple):
    """Maps that the convolutions of a network see on an example.

    Attributes:
        sizes: The largest of each layer, by its first name, in the order in which they last ran.
        axes: How many axes the images have.
        ran: First names of all that ran; of one that is called past its hooks the map is not known.
    """

    sizes: dict[str, Size]
    axes: int
    ran: frozenset[str]


def _before(model: nn.Module, example: Any) -> tuple[Before, Maps | None]:
    sizes, first, watched = dict[str, Size](), list[int](), dict[str, nn.Module]()

    def note(name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        axes = len(getattr(module, "kernel_size", ()))
        if inputs and isinstance(inputs[0], Tensor) and axes:
            first.append(axes)
            size, before = Size(*inputs[0].shape[-axes:]), sizes.pop(name, None)
            sizes[name] = max(size, before or size, key=math.prod)

    with ExitStack() as stack:
        for name, *_ in names_by_module(model, _may_carry) if example is not None else ():
            watched[name] = model.get_submodule(name)
            stack.callback(watched[name].register_forward_pre_hook(partial(note, name)).remove)
        before = Before.of(model, example, watched=watched)
    if before.failure is not None:
        raise ConversionError(f"the model does not run on the example: {before.failure}")
    if before.runs is None:
        return before, None
    axes = _image_axes(example, first[0] if first else 0, {len(size) for size in sizes.values()})
    return before, Maps(sizes, axes, frozenset(sizes) | before.runs.ran | before.runs.passed_by)


def _image_axes(example: Any, first: int, known: set[int]) -> int:
    """How many axes the images have, as the network sees them.

    Channel attention convolves along the channels of a pooled image, which are no axis of it: it must not count. The
    example's largest tensor has a batch, channels, and the axes; an image of a list has no batch. A network may add an
    axis of its own, as to a spectrogram without channels: then its first convolution has more. It may take one away, as
    where the frames of a film become a batch: then no convolution has so many.

    Args:
        example: The example.
        first: Axes of the convolution that ran first, or 0.
        known: Axes of all convolutions that ran.
    """
    is_list = not isinstance(example, Tensor | Mapping) and not all(isinstance(each, Tensor) for each in example)
    images = [each for each in tensors_of(example, "example") if each.is_floating_point()]
    dense = [(each.numel(), each.ndim - (1 if is_list else 2)) for each in images]
    most = max([first, *(axes for _, axes in sorted(dense)[-1:])])
    return max((axes for axes in known if axes <= most), default=0)


def _usual_axes(model: nn.Module) -> int:
    counts = Counter(
        len(getattr(model.get_submodule(n), "kernel_size", ())) for n, *_ in names_by_module(model, _may_carry)
    )
    return max(counts, key=lambda axes: (counts[axes], axes))


def _choose(
    model: nn.Module,
    candidates: Sequence[tuple[str, ...]],
    where: str | Sequence[str],
    maps: Maps | None,
    *,
    beside: bool,
) -> tuple[list[tuple[str, ...]], list[str]]:
    """The layers that get heads, and remarks."""
    # layers that the caller names
    if where not in (AUTO, LAST):
        return _named(candidates, [where] if isinstance(where, str) else where), []
    # the last layer that sees several pixels and can carry heads
    able = [names for names in candidates if _sees_several(model, names[0], beside=beside)]
    if not able:
        raise _none_can(model, candidates, beside=beside)
    if where == LAST:
        return [able[-1]], []
    # of those over images, the last one with a map of a good size
    axes = _usual_axes(model) if maps is None else maps.axes
    over_images = [names for names in able if len(_spec(model.get_submodule(names[0])).kernel_size) == axes]
    if not over_images:
        raise UnsupportedLayerError(
            f"nothing was grafted: no convolution above 1x1 that can be attention has the {axes} axes of the images; "
            f"those of other axes, such as {able[-1][0]}, are grafted where they are named",
            [],
        )
    if maps is None:
        return [over_images[-1]], [UNSEEN]
    by_name = {names[0]: names for names in over_images}
    low, high = PIXELS
    fitting = [name for name, size in maps.sizes.items() if name in by_name and low <= math.prod(size) <= high]
    if fitting:
        return [by_name[fitting[-1]]], []
    # or the one whose map comes nearest to that
    seen = {name: math.prod(size) for name, size in maps.sizes.items() if name in by_name and math.prod(size) > 1}
    if not seen:
        raise UnsupportedLayerError(
            "nothing was grafted: no convolution above 1x1 that can be attention sees several pixels there", []
        )
    distance = {name: max(low / pixels, pixels / high) for name, pixels in seen.items()}
    nearest = min(reversed(seen), key=distance.__getitem__)  # the last of those
    remark = f"no layer sees {low} to {high:,} pixels on the example; {nearest} comes nearest, with {seen[nearest]:,}"
    return [by_name[nearest]], [remark]


def _none_can(model: nn.Module, candidates: Sequence[tuple[str, ...]], *, beside: bool) -> UnsupportedLayerError:
    reasons = [(names[0], _reason(model.get_submodule(names[0]), beside=beside)) for names in candidates]
    problems = [Problem(name, reason) for name, reason in reasons if reason is not None]
    named = listed(list(map(str, problems)), "; ") or "the model has no convolution above 1x1"
    return UnsupportedLayerError(f"nothing was grafted: {named}", problems)


def _sees_several(model: nn.Module, name: str, *, beside: bool) -> bool:
    module = model.get_submodule(name)
    if _reason(module, beside=beside) is not None:
        return False
    return math.prod(_spec(module).kernel_size) > 1


def _named(candidates: Sequence[tuple[str, ...]], patterns: Sequence[str]) -> list[tuple[str, ...]]:
    """The layers that patterns name.

    Raises:
        UnsupportedLayerError: Patterns match nothing, all of them named.
    """
    if not isinstance(patterns, Sequence) or not all(isinstance(each, str) for each in patterns) or not patterns:
        raise ConversionError(f'where must be "auto", "last", or names of layers; got {patterns!r:.80}')
    vain = [each for each in patterns if not any(matches(name, each) for names in candidates for name in names)]
    if vain:
        shown = ", ".join(names[0] or "'' (the model itself)" for names in candidates[-10:])
        raise UnsupportedLayerError(
            f"nothing was grafted: no layer matches {', '.join(map(repr, vain))}; the last layers are {shown}", []
        )
    return [names for names in candidates if any(matches(name, each) for each in patterns for name in names)]


def _problem(model: nn.Module, names: tuple[str, ...], maps: Maps | None, *, beside: bool) -> Problem | None:
    """Why a chosen layer cannot carry heads, or None if it can."""
    reason = _reason(model.get_submodule(names[0]), beside=beside)
    if reason is None and maps is not None:
        size = maps.sizes.get(names[0])
        if names[0] not in maps.ran:
            reason = "it did not run on the example"
        elif size is not None and math.prod(size) == 1:
            reason = "its map has one pixel on the example, so there is nothing to attend to"
    return None if reason is None else Problem(names[0], reason)


def _reason(module: nn.Module, *, beside: bool) -> str | None:
    if isinstance(module, SelfAttention):
        reason = None if module.spare is None else f"it has {module.spare} already"
    else:
        reason = unsupported_reason(module)
    return TRANSPOSED if reason is None and beside and _spec(module).transposed else reason


def _spec(module: nn.Module) -> ConvSpec:
    return module.spec if isinstance(module, SelfAttention) else geometry(module)  # type: ignore[arg-type]


def _add(layer: SelfAttention, name: str, wanted: dict[str, int | None], **options: bool) -> None:
    """Adds heads to a layer, whose start depends on its name and on the global generator's seed, not on its state."""
    seed = (torch.initial_seed() ^ crc32(name.encode())) % 2**63
    layer.add_spare_heads(SpareHeads(*_widths(layer.spec, wanted), seed=seed, **options))


def _widths(spec: ConvSpec, wanted: dict[str, int | None]) -> tuple[int, int, int]:
    heads = wanted["heads"] or 1
    share = max(1, spec.in_channels // 2 // heads)
    return heads, wanted["key_dim"] or share, wanted["value_dim"] or share


def _check_memory(name: str, spec: ConvSpec, wanted: dict[str, int | None], size: Size | None) -> None:
    """Refuses heads whose weights, drawn in float64 and kept in float32, and values on one image are too many."""
    heads, key_dim, value_dim = _widths(spec, wanted)
    pixels = PIXELS[0] if size is None else math.prod(size)
    width = 2 * heads * (key_dim + value_dim)  # of queries, keys, values and outputs
    what = f"{name or 'the model itself'}: spare heads ({heads}, key width {key_dim}, value width {value_dim})"
    check_memory(width * (12 * spec.in_channels + 4 * pixels), what)


def _cost(layer: GraftedLayer) -> str:
    pixels = math.prod(layer.size or ())
    width = layer.spare.heads * (layer.spare.key_dim + layer.spare.value_dim)
    table = format_bytes(4 * layer.spare.heads * pixels**2)
    return (
        f"{layer.name or 'the model itself'}: {pixels:,} pixels look at as many, {2.0 * pixels**2 * width:.2g} FLOPs "
        f"an image; where no memory-efficient kernel runs, a table of {table} as well"
    )


@torch.no_grad()
def _change(model: nn.Module, bare: nn.Module, data: Any) -> tuple[float, float]:
    """Root mean square of the outputs' change, and of the outputs, in eval mode."""
    change = size = count = 0.0
    with in_eval_mode(model), in_eval_mode(bare):
        for images in image_batches(data):
            before, after = (named_tensors(call_with(each, images)) for each in (model, bare))
            for name, tensor in before.items():
                if tensor.is_floating_point():
                    change += float((tensor.double() - after[name].double()).square().sum())
                    size += float(tensor.double().square().sum())
                    count += tensor.numel()
    if not count:
        raise ConversionError("data has no batch")
    return (change / count) ** 0.5, (size / count) ** 0.5
