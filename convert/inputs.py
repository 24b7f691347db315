"""Inputs and outputs of a network, by their names.

Inputs go by the names of the network's arguments (``input_specs.py``). Outputs, a tensor or tensors in tuples, lists,
dictionaries and dataclasses, go by where they lie:

    {"out": a, "aux": [b, c]}        out, aux.0, aux.1
    ImageClassifierOutput(logits=a)  logits
    a                                the one tensor, whose name is empty
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from .arguments import Size, check_memory
from .errors import ConversionError, OptionError
from .input_specs import InputSpec

_CHANNELS = (3, 1, 4, 2)


def random_inputs(specs: Sequence[InputSpec], *, seed: int = 0) -> dict[str, Tensor]:
    """Random tensors for a network's inputs, by their names."""
    generator = torch.Generator().manual_seed(seed)
    return {spec.name: spec.random(generator) for spec in specs}


Given = Tensor | list[Tensor]
"""An argument of a network: a tensor, or a list of images, as detectors take it."""


def as_inputs(inputs: Any, name: str = "inputs") -> tuple[tuple[Given, ...], dict[str, Given]]:
    """Separates the arguments of a call into those by place and those by name.

    Args:
        inputs: A tensor, a sequence of arguments by place, or a mapping of arguments by name, each a tensor or a list
            of tensors. A list of images, [channels, *size] each, is taken for one argument of a network that takes
            such (``fitted``).
        name: Name of the argument that they were passed as, for the error.

    Raises:
        OptionError: It is something else, or empty.
    """
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    placed = tuple(inputs) if isinstance(inputs, Sequence) and not isinstance(inputs, str) else ()
    given = [*placed, *named.values()]
    if (
        not given
        or not all(isinstance(each, Tensor) or _is_list_of_tensors(each) for each in given)
        or not all(isinstance(key, str) and key.isidentifier() for key in named)
    ):
        raise OptionError(
            f"{name} must be a tensor, or several in a sequence or by name; got {other_than_inputs(inputs, given)}"
        )
    return placed, named


def tensors_of(inputs: Any, name: str = "inputs") -> list[Tensor]:
    """All tensors among the arguments of a call, as ``as_inputs`` takes them."""
    placed, named = as_inputs(inputs, name)
    given = ([each] if isinstance(each, Tensor) else each for each in (*placed, *named.values()))
    return [tensor for each in given for tensor in each]


def _is_list_of_tensors(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Tensor) for each in value)


def other_than_inputs(inputs: Any, parts: Sequence[Any]) -> str:
    """Description of what is no input of a network, and how to make one of it."""
    kind = type(inputs).__name__
    if hasattr(inputs, "__array__"):
        return f"{kind}: torch.as_tensor makes a tensor of it"
    if not parts:
        return f"an empty {kind}" if isinstance(inputs, Mapping | Sequence) else kind
    wrong = sorted({type(each).__name__ for each in parts if not isinstance(each, Tensor)})
    if isinstance(inputs, Sequence) and wrong == ["int"] and all(each > 0 for each in parts):
        shape = ", ".join(map(str, (1, *parts) if len(parts) == 3 else parts))
        return f"a {kind} of int: torch.zeros({shape}) makes one"
    return f"a {kind} of {', '.join(wrong)}" if wrong else f"a {kind} with the keys {list(inputs)!r:.60}"


def call_with(model: nn.Module, inputs: Any, name: str = "inputs") -> Any:
    """Calls a network in the mode that it is in, without gradients.

    Args:
        model: The network, which may write into what it is given.
        inputs: As ``as_inputs`` takes them. Floating-point tensors follow the dtype and device of its parameters.
        name: As for ``as_inputs``.

    Raises:
        OptionError: The inputs are something else.
    """
    placed, named = fitted(model, inputs, name)
    with torch.no_grad():
        try:
            return model(*placed, **named)
        except Exception:
            if named or not isinstance(inputs, list) or not _is_list_of_tensors(list(placed)):
                raise
            with contextlib.suppress(Exception):  # the error is then that of the tensors by place
                return model(list(fitted(model, inputs, name)[0]))
            raise


def fitted(model: nn.Module, inputs: Any, name: str = "inputs") -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copies of inputs with the dtype and on the device of a network's parameters; integers keep their dtype.

    A list of tensors is one argument where the first that the network takes is annotated as a list, as detectors' is.

    Raises:
        OptionError: As ``as_inputs``.
    """
    placed, named = _as_taken(model, *as_inputs(inputs, name))
    if _is_list_of_tensors(inputs) and _takes_list(model):
        placed = (inputs,)
    weight = next((each for each in model.parameters() if each.is_floating_point()), torch.empty(0, device="cpu"))

    def copied(given: Any) -> Any:
        if not isinstance(given, Tensor):
            return [copied(each) for each in given]
        return given.to(weight.device, weight.dtype if given.is_floating_point() else given.dtype, copy=True)

    return tuple(map(copied, placed)), {key: copied(each) for key, each in named.items()}


def _takes_list(model: nn.Module) -> bool:
    with contextlib.suppress(TypeError, ValueError):  # it has no signature
        first = next(iter(inspect.signature(model.forward).parameters.values()), None)
        annotation = None if first is None else first.annotation
        text = annotation if isinstance(annotation, str) else str(annotation)
        return re.match(r"(<class ')?(typing\.|collections\.abc\.)?(list|List|Sequence)\b", text) is not None
    return False


def _as_taken(
    model: nn.Module, placed: tuple[Given, ...], named: dict[str, Given]
) -> tuple[tuple[Given, ...], dict[str, Given]]:
    """Inputs by name as a program of torch.export takes them, which has some by place."""
    own: Any = getattr(model, "_in_spec", None)
    if not named or placed or not isinstance(model, fx.GraphModule) or own is None:
        return placed, named
    names = [str(node.target) for node in model.graph.find_nodes(op="placeholder")]
    by_place = names[: own.child(0).num_leaves]
    if not set(by_place) <= named.keys():
        return placed, named
    return tuple(named[name] for name in by_place), {key: x for key, x in named.items() if key not in by_place}


def program_shape(model: nn.Module) -> tuple[int | None, ...] | None:
    """Shape of the only input of a program of torch.export, None where an axis is open; None for other networks."""
    places = model.graph.find_nodes(op="placeholder") if isinstance(model, fx.GraphModule) else []
    taken = places[0].meta.get("val") if len(places) == 1 else None
    if not isinstance(taken, Tensor):
        return None
    return tuple(length if isinstance(length, int) else None for length in taken.shape)


def likely_channels(model: nn.Module) -> tuple[int, ...]:
    """Likely channels of a network's images: those of its first convolution; or fewer, of which its code makes more."""
    own = (getattr(each, "in_channels", None) for each in model.modules())
    return tuple(dict.fromkeys((next((each for each in own if isinstance(each, int)), 3), *_CHANNELS)))


def example_image(model: nn.Module, size: Sequence[int], *, batch: int = 1) -> Tensor:
    """Zeros that a network runs on, [batch, channels, *size], with the first likely number of channels that it takes.

    Args:
        model: The network, in eval mode.
        size: Lengths of the axes, of an image rows and columns.
        batch: How many images.

    Raises:
        MemoryLimitError: The image takes more memory than this machine has.
    """
    likely = likely_channels(model)
    chosen = likely[0]
    check_memory(4 * batch * chosen * math.prod(size), f"an image of {Size(*size)}")
    known = program_shape(model)
    if known is not None and len(known) == len(size) + 2:
        chosen, *size = (own or asked for own, asked in zip(known[1:], (chosen, *size), strict=True))
        return _zeros(model, known[0] or batch, chosen, *size)
    for channels in likely:
        with contextlib.suppress(Exception):  # of the network's code, which may raise anything
            call_with(model, torch.zeros(1, channels, *size, device="cpu"))
            chosen = channels
            break
    return _zeros(model, batch, chosen, *size)


def _zeros(model: nn.Module, *shape: int) -> Tensor:
    (image,), _ = fitted(model, torch.zeros(shape, device="cpu"))
    found: Tensor = image
    return found


_BOXES = "pred_boxes"  # of transformers' detectors
_SCORES = ("logits", "scores", "out", "0")  # of transformers, of torchvision's segmentation; else the first of a tuple


def named_tensors(outputs: Any, network: str = "the network") -> dict[str, Tensor]:
    """Every tensor and array that a network returned, by its place; numbers, texts and None are left out.

    Args:
        outputs: What a network returned.
        network: Its name in the error.

    Raises:
        ConversionError: There is no tensor.
    """
    found: dict[str, Tensor] = {}
    _collect(outputs, "", found)
    if not found:
        raise ConversionError(f"{network} gives no tensor, but {type(outputs).__name__}")
    return found


def same_values(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one shape, dtype and device hold the same numbers; a NaN is equal to any other."""
    return torch.equal(one, other) or bool(((one == other) | ((one != one) & (other != other))).all())


def bitwise(one: Tensor, other: Any) -> bool:
    """Whether two tensors have the same bits, or NaN in the same places."""
    if not isinstance(other, Tensor) or one.shape != other.shape or one.dtype != other.dtype:
        return False
    return same_values(one, other)


def scores_of(outputs: Any) -> Tensor:
    """The scores among a network's outputs, whose largest is the network's answer.

    Args:
        outputs: What a network returned: a tensor, or one that is called ``logits``, ``scores`` or ``out``, or the
            first of a tuple or list, or the only tensor.

    Raises:
        ConversionError: No tensor is known to be the scores.
    """
    found = named_tensors(outputs)
    return found[name_of_scores(list(found))]


def name_of_scores(names: Sequence[str]) -> str:
    """The name of the scores among those of a network's tensors.

    Raises:
        ConversionError: As ``scores_of``.
    """
    if len(names) == 1:
        return names[0]
    name = next((name for name in _SCORES if name in names), None)
    if name is None:
        raise ConversionError(f"the network gives several tensors, none of them known as scores: {', '.join(names)}")
    return name


def class_scores(outputs: Any) -> Tensor:
    """The scores of whole images, [batch, classes]: the mean over pixels or boxes, if a network scores each.

    Args:
        outputs: As for ``scores_of``. Where transformers' detectors give boxes beside them, the scores are of boxes,
            [batch, boxes, classes]; those of pixels are [batch, classes, *size].

    Raises:
        ConversionError: As ``scores_of``, or the scores have no classes.
    """
    scores = scores_of(outputs)
    if scores.ndim < 2:
        raise ConversionError(f"the network gives scores {list(scores.shape)}, where [batch, classes] is needed")
    if scores.ndim == 2:
        return scores
    return scores.mean(1) if _BOXES in named_tensors(outputs) else scores.flatten(2).mean(2)


def tensor_of(value: Any) -> Any:
    """An array of numbers, NumPy's or any other library's that has ``__dlpack__``, as a tensor; else the value."""
    if isinstance(value, np.ndarray | np.generic):
        is_number = value.dtype.kind in "biufc"
        return torch.from_numpy(np.array(value, dtype=value.dtype.newbyteorder("="))) if is_number else value
    if isinstance(value, Tensor | type) or not hasattr(value, "__dlpack__"):
        return value
    return torch.utils.dlpack.from_dlpack(value).clone()


def _collect(value: Any, place: str, found: dict[str, Tensor]) -> None:
    value = tensor_of(value)
    if isinstance(value, Tensor):
        found[place] = value
        return
    for name, each in _parts(value):
        _collect(each, f"{place}.{name}" if place else str(name), found)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return zip(value._fields, value, strict=True)
    if isinstance(value, tuple | list):
        return enumerate(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    return ()
