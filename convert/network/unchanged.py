"""Whether a network is still the same, after a step of other people's code.

A conversion has several such steps: ``copy.deepcopy``, with whatever ``__deepcopy__`` a class has; ``torch.fx``; new
layers in the places of old ones, which the network may reach in ways of its own. None of them is believed:

- without an input, ``difference`` compares a copy with its original: classes, modes, hooks, tensors, plain attributes;
  ``Before`` compares modes, keys and places before and after a change;
- with an example, ``Before`` runs both, in eval mode, from the same random numbers, and leaves each as it was. The
  layers in the places of convolutions make the convolutions' own calls then, so outputs must have the same bits.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks
from torch.nn.parameter import is_lazy

from ..context import eagerly, same_generators
from ..errors import ConversionError, OptionError, first_line
from ..inputs import call_with, named_tensors, same_values
from ..layer.layer import SelfAttention
from ..spec import Convolution
from ..subclasses.computed import in_eval_mode
from ..subclasses.readers import HOOKS, geometry
from .modules import Change, by_name
from .plan import Runs, watching_runs

_OWN = frozenset(vars(nn.Module()))  # tables of torch's own
_PLAIN = (bool, int, float, complex, str, bytes, NoneType, type, torch.dtype, torch.device)


def difference(model: nn.Module, made: nn.Module) -> str | None:
    """The first difference of a copy from its original, or None; nothing is run.

    Args:
        model: The original.
        made: The copy, which may share tensors with it and no module.
    """
    ours, theirs = (dict(each.named_modules(remove_duplicate=False)) for each in (model, made))
    if list(ours) != list(theirs):
        changed = next(iter(ours.keys() ^ theirs.keys()), "")
        return f"only one of both has the module {changed or 'of its root'}, or their order differs"
    originals = set(map(id, ours.values()))
    for name, one in ours.items():
        if (found := _difference(one, theirs[name], originals)) is not None:
            return f"{name or 'the model itself'} {found}"
    return None


def _difference(one: nn.Module, other: nn.Module, originals: set[int]) -> str | None:
    if id(other) in originals:
        return "is the very module of the original"
    if _class(one) is not _class(other):
        return f"is a {_class(other).__name__} in place of a {_class(one).__name__}"
    if one.training != other.training:
        return f"is in {_mode(other.training)} mode in place of {_mode(one.training)} mode"
    for table in HOOKS:
        ours, theirs = getattr(one, table), getattr(other, table)
        if isinstance(ours, dict) and len(ours) != len(theirs):
            return f"has {len(theirs)} hooks in place of {len(ours)} ({table})"
    for tensors in ("_parameters", "_buffers"):
        ours, theirs = getattr(one, tensors), getattr(other, tensors)
        if list(ours) != list(theirs):
            return f"has other tensors: {', '.join(sorted(ours.keys() ^ theirs.keys())) or 'in another order'}"
        for name, tensor in ours.items():
            if not _is_same_tensor(tensor, theirs[name]):
                return f"has another {name}"
    ours, theirs = vars(one), vars(other)
    for name, value in ours.items():
        if name in _OWN or name.startswith("__"):
            continue
        if name not in theirs:
            return f"has no attribute {name}"
        if isinstance(value, _PLAIN) and type(value) is type(theirs[name]) and not _equal(value, theirs[name]):
            return f"has another {name}: {theirs[name]!r:.40} in place of {value!r:.40}"
        if (theirs[name] is None) != (value is None):
            return f"has another {name}: {type(theirs[name]).__name__} in place of {type(value).__name__}"
    return None


def _equal(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)


def _class(module: nn.Module) -> type:
    """The class of a module; of each graph of ``torch.fx``, which has a class of its own, the one below."""
    kinds = type(module).__mro__
    return next(kind for kind in kinds if kind.__qualname__.rpartition(".")[2] != "GraphModuleImpl")


def _mode(training: bool) -> str:
    return "training" if training else "eval"


def _is_same_tensor(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None or one is other:
        return one is other
    if type(one) is not type(other) or one.requires_grad != other.requires_grad:
        return False
    if is_lazy(one):
        return True
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if one.is_meta:
        return True
    try:
        return same_values(one.detach(), other.detach())
    except (RuntimeError, NotImplementedError):  # of a kind of tensor that cannot be compared
        return True


@dataclass
class Before:
    """A network before a change.

    Attributes:
        modes: Mode of each module, by name.
        keys: Keys of the state dict.
        runs: Which of the watched layers ran on the example; None without an example, or if the network did not run.
        outputs: Its output tensors on the example, likewise.
        failure: Why it did not run on the example, or None.
    """

    modes: Mapping[str, bool]
    keys: frozenset[str]
    runs: Runs | None = None
    outputs: dict[str, Tensor] | None = None
    failure: str | None = None
    example: Any = field(default=None, repr=False)

    @classmethod
    def of(cls, model: nn.Module, example: Any = None, *, watched: Mapping[str, nn.Module] | None = None) -> Before:
        """Looks at a network, and runs it if there is an example.

        Args:
            model: The network, which stays as it is.
            example: As ``inputs.as_inputs`` takes it, or None.
            watched: Layers to watch, by name.

        Raises:
            OptionError: The example is no input.
        """
        before = cls({name: each.training for name, each in model.named_modules()}, _keys(model), example=example)
        if example is None:
            return before
        try:
            with watching_runs(model, watched) as runs:
                before.outputs = run_once(model, example)
            before.runs = runs
        except OptionError:
            raise
        except Exception as error:  # whatever the network's code raises
            before.failure = first_line(error)
        return before

    def check(self, model: nn.Module, changes: Sequence[Change] = (), *, loses_keys: bool = False) -> Runs | None:
        """Refuses a network that is no longer the one before.

        Args:
            model: The network after the change.
            changes: The modules that have new ones in their places.
            loses_keys: Whether the state dict may lose keys, as by the way back to convolutions or a trace.

        Returns:
            Which attention layers run on the example; None without one, or if the network did not run on it before.

        Raises:
            ConversionError: It differs; the message says in what.
        """
        problems = [*self._looks(model, by_name(changes), loses_keys=loses_keys), *_other_under_hooks(changes)]
        if problems:
            raise ConversionError(f"the network would not be the same: {'; '.join(problems)}")
        if self.outputs is None:
            return None
        try:
            with watching_runs(model) as runs:
                outputs = run_once(model, self.example)
            found = apart(self.outputs, outputs)
            if found is not None and apart(outputs, run_once(model, self.example)) is not None:
                found = None  # it does not repeat itself, so nothing can be said
        except Exception as error:  # whatever the network's code raises
            raise ConversionError(
                f"the network runs on the example, and would no longer run on it: {first_line(error)}"
            ) from error
        if found is not None:
            raise ConversionError(f"the network would not be the same: on the example, {found}")
        return runs

    def _looks(self, model: nn.Module, swapped: Mapping[str, nn.Module], *, loses_keys: bool) -> Iterator[str]:
        modules = dict(model.named_modules(remove_duplicate=False))
        for name, layer in swapped.items():
            if (model.get_submodule(name) if name in modules else None) is not layer:
                yield f"{name} does not take a new layer"
        for name, mode in self.modes.items():
            if name in modules and modules[name].training != mode:
                yield f"{name or 'its root'} would be in {_mode(not mode)} mode"
        lost = sorted(self.keys - _keys(model))
        if lost and not loses_keys:
            yield f"its state dict would lose {', '.join(lost)}"


def _other_under_hooks(changes: Sequence[Change]) -> Iterator[str]:
    """New layers that differ from the old under hooks for all modules, which may ask for a module's class."""
    if not (_global_forward_hooks or _global_forward_pre_hooks):
        return
    for names, old, new in changes:
        spec = old.spec if isinstance(old, SelfAttention) else geometry(cast(Convolution, old))
        weight = next(old.parameters())
        x = torch.ones(1, spec.in_channels, *(reach + 2 for reach in spec.reach), dtype=weight.dtype).to(weight.device)
        with contextlib.suppress(Exception):  # of hooks, which may want a whole network
            if apart(run_once(old, x), run_once(new, x)) is not None:
                yield f"a hook for all modules treats {names[0] or 'the layer'} otherwise"


def _keys(model: nn.Module) -> frozenset[str]:
    found: set[str] = set()
    for name, module in model.named_modules(remove_duplicate=False):
        lasting = {own: each for own, each in module._buffers.items() if own not in module._non_persistent_buffers_set}
        tensors = (own for own, each in {**module._parameters, **lasting}.items() if each is not None)
        found.update(f"{name}.{own}".removeprefix(".") for own in tensors)
    return frozenset(found)


def apart(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> str | None:
    """Where outputs differ, or None if they hold the same numbers."""
    if before.keys() != after.keys():
        return f"its outputs are {', '.join(after) or 'one'} in place of {', '.join(before) or 'one'}"
    for name, one in before.items():
        other = after[name]
        place = f"its output {name}" if name else "its output"
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{place} is {list(other.shape)}, {other.dtype}, in place of {list(one.shape)}, {one.dtype}"
        if not same_values(one, other):
            wide = torch.complex128 if one.is_complex() else torch.float64
            away, size = (float(each.abs().max()) for each in (one.to(wide) - other.to(wide), one.to(wide)))
            return f"{place} would differ by up to {away:.3g}, of values up to {size:.3g}"
    return None


def run_once(model: nn.Module, example: Any) -> dict[str, Tensor]:
    """The output tensors of a network on an example, in eval mode, by place; the network and all chance stay as is.

    Raises:
        OptionError: The example is no input.
        ConversionError: The network has layers that take their shapes from what they see.
    """
    lazy = [name for name, each in model.named_modules() if isinstance(each, LazyModuleMixin)]
    if lazy:
        raise ConversionError(f"{lazy[0]} is lazy: run the network once before")
    with _as_it_was(model), _same_chance(model), eagerly(), in_eval_mode(model):
        outputs = call_with(model, example, "example")
        with contextlib.suppress(ConversionError):  # it gives no tensor
            return {name: each.detach().clone() for name, each in named_tensors(outputs).items()}
        return {}


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Puts back buffers and attributes that a run changes, and parameters that a class's own ``train`` does."""
    saved = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    tensors: dict[int, tuple[Tensor, Tensor]] = {}
    for module, _, buffers in saved:
        parts = [*buffers.values()]
        if type(module).train is not nn.Module.train:
            parts += module.parameters()
        kept = (each for each in parts if each is not None and not each.is_meta)
        tensors |= {id(each): (each, each.detach().clone()) for each in kept if id(each) not in tensors}
    held = [
        (value, value.copy())
        for _, attributes, _ in saved
        for name, value in attributes.items()
        if name not in _OWN and type(value) in (list, dict, set, deque)
    ]
    try:
        yield
    finally:
        for module, attributes, buffers in saved:
            own = vars(module)
            for name in [name for name in own if name not in attributes]:
                del own[name]
            own.update({name: value for name, value in attributes.items() if name not in _OWN})
            if module._buffers.keys() != buffers.keys() or any(
                each is not buffers[n] for n, each in module._buffers.items()
            ):
                module._buffers.clear()
                module._buffers.update(buffers)
        for value, before in held:
            _put_back(value, before)
        with torch.no_grad():
            for tensor, before in tensors.values():
                if not same_values(tensor.detach(), before):
                    tensor.copy_(before)


def _put_back(value: Any, before: Any) -> None:
    """Gives a container the items that it had."""
    if len(value) == len(before):
        if isinstance(value, dict):
            same = all(one is other for one, other in zip(_flat(value), _flat(before), strict=True))
        elif isinstance(value, set):
            same = set(map(id, value)) == set(map(id, before))
        else:
            same = all(one is other for one, other in zip(value, before, strict=True))
        if same:
            return
    value.clear()
    (value.update if isinstance(value, dict | set) else value.extend)(before)


def _flat(items: Mapping[Any, Any]) -> Iterator[Any]:
    return itertools.chain(items.keys(), items.values())


@contextmanager
def _same_chance(model: nn.Module) -> Iterator[None]:
    """Random numbers from one seed, as often as it is used; then all generators go on where they were."""
    devices = {each.device for each in (*model.parameters(), *model.buffers()) if each.device.type == "cuda"}
    cudnn, (benchmark, deterministic) = torch.backends.cudnn, (False, False)
    if devices:
        benchmark, deterministic = cudnn.benchmark, cudnn.deterministic
    with same_generators([each.index for each in devices]):
        torch.default_generator.manual_seed(0)
        for device in devices:
            torch.cuda.default_generators[device.index].manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        if devices:
            cudnn.benchmark, cudnn.deterministic = False, True
        try:
            yield
        finally:
            if devices:
                cudnn.benchmark, cudnn.deterministic = benchmark, deterministic
