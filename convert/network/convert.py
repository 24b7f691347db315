"""Walks a model, swaps its convolutions for attention layers, and back.

1. look at every module; decide what is converted, what is skipped, what is unsupported
2. refuse, naming all problems at once, before anything is changed
3. run the model on the example, if there is one
4. copy the model, unless it is converted in place, and see that the copy is the same (``copies.py``)
5. build one new layer for each convolution, with the same parameter objects, mode and hooks
6. put it under every name the convolution had, and wherever else the model holds it (``held.py``)
7. refuse, and undo, what is not the same network as before (``unchanged.py``)
8. set alpha and the engine, and report

``name_filter`` chooses layers by patterns of their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ..arguments import as_tolerance
from ..certificate.distance import describe_distance
from ..engines import AUTO, check_engine_name
from ..errors import (
    ConversionError,
    NotAConvolutionError,
    Problem,
    SelectionError,
    UnsupportedLayerError,
)
from ..layer.checked import changeable_model, checked_model
from ..layer.construction import attention_with, conv_with, not_a_convolution
from ..layer.layer import SelfAttention
from ..layer.positions import check_alpha
from ..layer.supported import ForeignConvolution, unsupported_reason
from ..spec import Convolution
from ..subclasses.computed import value
from .calls import calls_as_modules
from .copies import copied
from .grafted import equip
from .modules import Change, changed, guard, modules_of, names_by_module, undone, unguard
from .report import LayerReport, Report
from .unchanged import Before

Filter = Callable[[nn.Module, str], bool]

NOT_SELECTED = "not selected"
_SCRIPTED = tuple(f"Conv{kind}{dimensions}d" for kind in ("", "Transpose") for dimensions in (1, 2, 3))
_QUANTIZED = torch.ao.nn.quantized.modules.conv._ConvNd


class Conversion(NamedTuple):
    """A converted model and its report.

    Examples:
        >>> model, report = c2a.convert_model(torch.nn.Conv2d(3, 8, kernel_size=3))
        >>> [layer.heads for layer in report.layers]
        [9]
    """

    model: nn.Module
    report: Report

    def __str__(self) -> str:
        """The report's table."""
        return str(self.report)

    def _repr_html_(self) -> str:
        """The report's table, as notebooks show it."""
        return self.report._repr_html_()


@dataclass(frozen=True)
class Plan:
    """Plan of a conversion: the decision for each convolution of a model.

    Attributes:
        chosen: Names of the convolutions to convert, grouped by module: a shared one has several.
        skipped: Convolutions that the filter leaves alone.
        unsupported: Convolutions that cannot be converted.
    """

    chosen: tuple[tuple[str, ...], ...]
    skipped: tuple[Problem, ...]
    unsupported: tuple[Problem, ...]


@torch.inference_mode(False)
def convert_model(
    model: nn.Module,
    *,
    filter_fn: Filter | None = None,
    alpha: float | None = None,
    engine: str = AUTO,
    inplace: bool = False,
    skip_unsupported: bool = False,
    trace: bool = False,
    example: Any = None,
) -> Conversion:
    """Replaces the convolutions of a model by self-attention layers that compute the same function.

    These are ``nn.Conv1d``, ``nn.Conv2d``, ``nn.Conv3d`` and their transposed forms, exactly these classes, and those
    that have a reader (``register_reader``). Convolutions called as functions (``F.conv2d``) are seen with ``trace``.
    Mode, device, dtype, requires_grad, hooks and sharing stay as they are.

    Args:
        model: Any model; a root that is itself a convolution is replaced as well.
        filter_fn: Called with each convolution and its fully qualified name; False leaves it alone.
        alpha: Sharpness, see ``attention_from_conv``.
        engine: Engine of the layers, see ``SelfAttention``.
        inplace: Change the model instead of a copy. Use the returned model all the same: the root may be new.
        skip_unsupported: Leave convolutions that cannot be converted as they are, instead of refusing.
        trace: Convert calls too: those in the code of the model's modules, which ``torch.fx`` traces, and those in a
            graph, such as ``torch.export.export(...).module()``. Each becomes a module of its own (``calls.py``), and
            ``restore_model`` gives back an ``nn.Conv2d`` in its place. The returned model is then a new one; with
            ``inplace`` it has the parameters of the old.
        example: An input, as ``inputs.as_inputs`` takes it. The model is run on it before and after, in eval mode; the
            layers make the convolutions' own calls then, also where alpha or another engine is given, so that outputs
            must have the same bits. The report says which layers did not run on it; without an example that is unknown.

    Returns:
        The converted model and the report.

    Raises:
        UnsupportedLayerError: Layers that cannot be converted, all of them, or nothing to convert. The model is
            then unchanged.
        ConversionError: alpha is not positive and finite, there is no such engine, the model is not an ``nn.Module``
            in Python, cannot be copied, or is wrapped for training on several devices; or it would not be the same
            network. The model is then unchanged, too.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1))
        >>> model, report = c2a.convert_model(cnn, filter_fn=lambda layer, name: name == "0")
        >>> type(model[0]).__name__, type(model[2]).__name__
        ('SelfAttention2d', 'Conv2d')
    """
    original, calls = changeable_model(model), tuple[Problem, ...]()
    model = original
    if trace:
        model, calls = calls_as_modules(copied(model, keep_tensors=inplace))
        inplace = True  # the copy
    # decide, and refuse before anything is changed
    plan = plan_conversion(model, filter_fn=filter_fn)
    plan = replace_fields(plan, unsupported=plan.unsupported + calls)
    if plan.unsupported and not skip_unsupported:
        raise UnsupportedLayerError(_sentence(plan.unsupported), plan.unsupported)
    if not plan.chosen:
        raise UnsupportedLayerError(f"nothing would be converted: {_emptiness(model, plan)}", plan.unsupported)
    check_engine_name(engine)
    for names in plan.chosen:
        check_alpha(alpha, cast(Tensor, value(model.get_submodule(names[0]), "weight")).dtype)
    if trace:
        Before.of(original, example).check(model, loses_keys=True)
    # run the network as it is, then put layers into the places of its convolutions
    watched = {names[0]: model.get_submodule(names[0]) for names in plan.chosen}
    watched |= {names[0]: layer for names, layer in modules_of(model, SelfAttention).items()}
    before = Before.of(model, example, watched=watched)
    model = model if inplace else copied(model)
    changes = [_change(model, names) for names in plan.chosen]
    model = changed(model, changes)
    # refuse, and undo, what is not the same network
    try:
        runs = before.check(model, changes)
    except ConversionError:
        undone(model, changes)
        raise
    # only now alpha and the engine, with which bits may differ
    reports = []
    for names, _, layer in changes:
        if isinstance(layer, SelfAttention):
            if alpha is not None:
                layer.set_positions(alpha=alpha)
            layer.engine = engine
            reports.append(LayerReport.of(names, layer))
    guard(model)
    idle = None
    if example is not None:
        idle = (Problem("", f"was not run: {before.failure}"),) if runs is None else runs.idle(model, before.runs)
    return Conversion(model, Report(tuple(reports), plan.skipped + plan.unsupported, idle))


@torch.inference_mode(False)
def restore_model(model: nn.Module, *, tolerance: float | None = None, inplace: bool = False) -> nn.Module:
    """Gives back the CNN: every self-attention layer becomes the convolution it computes, bit for bit.

    Args:
        model: A converted model, perhaps trained further.
        tolerance: Largest accepted difference for soft attention, see ``conv_from_attention``.
        inplace: Change the model instead of a copy. Use the returned model all the same.

    Raises:
        NotAConvolutionError: Layers that compute what no convolution computes, all of them, or no attention
            layer at all. The model is then unchanged.
        ConversionError: The model cannot be copied.

    Examples:
        >>> cnn = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU())
        >>> c2a.restore_model(c2a.convert_model(cnn).model)
        Sequential(
          (0): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
          (1): ReLU()
        )
    """
    tolerance = as_tolerance(tolerance)
    layers = modules_of(changeable_model(model), SelfAttention)
    if not layers:
        raise NotAConvolutionError("the model has no self-attention layer to restore: convert_model(model) makes them")
    problems = [
        str(Problem(names[0], reason + describe_distance(layer)))
        for names, layer in layers.items()
        if (reason := not_a_convolution(layer, tolerance=tolerance)) is not None
    ]
    if problems:
        count = f"{len(problems)} of {len(layers)} attention layers compute what no convolution computes"
        raise NotAConvolutionError(f"{count}: {'; '.join(problems)}")
    before = Before.of(model)
    model = model if inplace else copied(model)
    changes = [Change(names, layer, conv_with(layer)) for names, layer in modules_of(model, SelfAttention).items()]
    model = changed(model, changes)
    try:
        before.check(model, changes, loses_keys=True)
    except ConversionError:
        undone(model, changes)
        raise
    unguard(model)
    equip(model)
    return model


def _change(model: nn.Module, names: tuple[str, ...]) -> Change:
    """A convolution, and the layer in its place, which makes the convolution's own call."""
    conv = model.get_submodule(names[0])
    return Change(names, conv, attention_with(cast(Convolution, conv)))


def plan_conversion(model: nn.Module, *, filter_fn: Filter | None = None) -> Plan:
    """Decides what becomes of each convolution of a model, and changes nothing."""
    if filter_fn is not None and not callable(filter_fn):
        raise ConversionError(
            f"filter_fn must be a function of a module and its name; got {filter_fn!r:.80}; "
            "conv2attn.convert.network.convert.name_filter makes one of patterns"
        )
    chosen, skipped, unsupported = [], [], []
    for names in names_by_module(checked_model(model), is_convolution):
        module = model.get_submodule(names[0])
        selected = [filter_fn is None or filter_fn(module, name) for name in names]
        reason = unsupported_reason(module)
        if not any(selected):
            skipped.append(Problem(names[0], NOT_SELECTED))
        elif reason is not None:
            unsupported.append(Problem(names[0], reason))
        elif not all(selected):
            unsupported.append(Problem(names[0], f"shared by {', '.join(names)}, of which only some are selected"))
        else:
            chosen.append(names)
    return Plan(tuple(chosen), tuple(skipped), tuple(unsupported))


def is_convolution(module: nn.Module) -> bool:
    """Whether a module is a convolution of any kind and dimension, supported or not."""
    known = isinstance(module, _ConvNd | _QUANTIZED | ForeignConvolution)
    kind = type(module)
    is_deformed = kind.__name__ == "DeformConv2d" and kind.__module__.startswith("torchvision.")
    return known or is_deformed or getattr(module, "original_name", None) in _SCRIPTED


def _sentence(problems: Sequence[Problem]) -> str:
    count = "1 layer" if len(problems) == 1 else f"{len(problems)} layers"
    return f"{count} cannot be converted: {'; '.join(map(str, problems))}"


def _emptiness(model: nn.Module, plan: Plan) -> str:
    if plan.unsupported:
        return _sentence(plan.unsupported)
    if plan.skipped:
        return f"none of the model's {len(plan.skipped)} convolutions is selected"
    made = len(modules_of(model, SelfAttention))
    if made:
        return f"the model holds {made} attention layer{'s' * (made != 1)} already, and no convolution"
    return "the model has no convolution"


def name_filter(model: nn.Module, *, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> Filter:
    """A ``filter_fn`` for ``convert_model`` from patterns.

    A pattern is a layer's fully qualified name, a glob over it ("layer4.*"), or a regular expression for all of it
    ("re:layer[34].*conv2").

    Args:
        model: The model whose layers are meant.
        include: A layer must match one of these; none means all layers.
        exclude: A layer must match none of these.

    Raises:
        SelectionError: A pattern is no regular expression, or matches no convolution of the model.
    """
    names = [name for name, module in model.named_modules(remove_duplicate=False) if is_convolution(module)]
    for pattern in (*include, *exclude):
        if not any(matches(name, pattern) for name in names):
            shown = ", ".join(name or "'' (the model itself)" for name in names[:10])
            shown += f" and {len(names) - 10} more" if len(names) > 10 else ""
            raise SelectionError(f"the pattern {pattern!r} matches no convolution; there are {shown or 'none'}")

    def selected(_: nn.Module, name: str) -> bool:
        included = not include or any(matches(name, pattern) for pattern in include)
        return included and not any(matches(name, pattern) for pattern in exclude)

    return selected


def matches(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern, as ``name_filter`` takes it."""
    if not pattern.startswith("re:"):
        return name == pattern or fnmatchcase(name, pattern)
    try:
        return re.fullmatch(pattern.removeprefix("re:"), name) is not None
    except (re.error, OverflowError, RecursionError) as error:  # the last two of what is too large
        raise SelectionError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
