"""The tensors of the device "pretend", and what every operation on them does."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretend")
torch.pretend.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]  # type: ignore[attr-defined]  # autocast asks
torch.pretend.get_rng_state = lambda _device: torch.get_rng_state()  # type: ignore[attr-defined]  # its chance is the CPU's,
torch.pretend.set_rng_state = lambda _state, _device: None  # type: ignore[attr-defined]  # which fork_rng restores
PRETEND = torch.device("pretend", 0)

recorded: list[str] = []  # the operations for which the CPU would have waited

_COPIES = {"aten::_to_copy", "aten::copy_"}
_INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


class PretendTensor(Tensor):
    """A tensor whose memory is the CPU's and whose device is "pretend".

    It shares its storage with ``elements``, not with a copy, so views, versions, ``data_ptr`` and writes through
    ``.data`` are those of any tensor.
    """

    @staticmethod
    def __new__(cls, elements: Tensor) -> PretendTensor:
        """The tensor of the device with the memory of a tensor of the CPU."""
        return torch.Tensor._make_subclass(cls, elements, False, dispatch_device=True, device_for_backend_keys=PRETEND)

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if function is torch.ops.prim.device.default:
            return PRETEND
        if function is torch.ops.aten._has_compatible_shallow_copy_type.default:
            return all(isinstance(tensor, PretendTensor) for tensor in args)
        if function._can_decompose():  # in inference mode, where autograd has not taken the operation apart
            return function.decompose(*args, **(kwargs or {}))
        if not function.is_view:
            return _compute(function, *args, **(kwargs or {}))
        with torch.inference_mode(args[0].is_inference()):  # a view has its base's versions, or has none with it
            return _compute(function, *args, **(kwargs or {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"pretend({_elements(self)!r})"

    def tolist(self) -> Any:
        """PyTorch's own refuses subclasses before it copies to the CPU."""
        return self.cpu().tolist()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (self.detach().cpu(), isinstance(self, nn.Parameter), self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> PretendTensor:
        if id(self) not in memo:
            rebuild, state = self.__reduce_ex__(2)
            memo[id(self)] = rebuild(*state)
        return cast(PretendTensor, memo[id(self)])


def _rebuild(elements: Tensor, is_parameter: bool, requires_grad: bool) -> Tensor:
    tensor = PretendTensor(elements)
    return nn.Parameter(tensor, requires_grad) if is_parameter else tensor.requires_grad_(requires_grad)


torch.serialization.add_safe_globals([_rebuild])  # torch.load(weights_only=True) reads tensors of every device


def _elements(tensor: Tensor) -> Tensor:
    """The same memory as a tensor of the CPU."""
    elements = torch.empty(0, dtype=tensor.dtype, device="cpu")
    return elements.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _compute(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Computes on the CPU; results that are arguments, as of operations in place, stay the same objects."""
    _check_devices(function, args, kwargs)
    if _waits(function, args, kwargs):
        recorded.append(str(function))
    given = {id(tensor): tensor for tensor in _tensors((args, kwargs))}
    lent = {key: _elements(tensor) for key, tensor in given.items() if isinstance(tensor, PretendTensor)}
    of_elements = {id(elements): given[key] for key, elements in lent.items()}
    wanted = torch.device(kwargs["device"] if kwargs.get("device") is not None else PRETEND)
    if wanted.type == "pretend" and "device" in kwargs:
        kwargs["device"] = torch.device("cpu")

    results = function(
        *tree_map_only(PretendTensor, lambda tensor: lent[id(tensor)], args),
        **tree_map_only(PretendTensor, lambda tensor: lent[id(tensor)], kwargs),
    )
    for key, elements in lent.items():
        if _geometry(given[key]) != _geometry(elements):  # resized in place
            given[key].data = PretendTensor(elements)

    def give_back(result: Tensor) -> Tensor:
        if id(result) in of_elements or id(result) in given:
            return of_elements.get(id(result), result)
        return PretendTensor(result) if wanted.type == "pretend" else result

    return tree_map_only(Tensor, give_back, results)


def _geometry(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.size(), tensor.stride(), tensor.storage_offset(), tensor.untyped_storage().data_ptr()


def _name(function: Any) -> str:
    return cast(str, function._schema.name)


def _tensors(values: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def _check_devices(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raises where an operation gets tensors of both devices, as CUDA does."""
    if _name(function) in _COPIES:
        return
    operands = [args[0], *args[2:]] if _name(function) in _INDEXING else args
    tensors = list(_tensors((operands, kwargs)))
    others = [tensor for tensor in tensors if not isinstance(tensor, PretendTensor) and tensor.ndim > 0]
    if others:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found pretend:0 and {others[0].device} in {function}"
        )


def _waits(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the CPU would wait for a GPU."""
    if _name(function) in _COPIES:
        return _crosses(function, args, kwargs) and not _non_blocking(function, args, kwargs)
    if _name(function) in _INDEXING:
        return any(
            index.dtype in (torch.bool, torch.uint8) or index.device.type == "cpu" for index in _tensors(args[1])
        )
    return bool({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(function.tags))


def _crosses(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    if _name(function) == "aten::_to_copy":
        wanted = kwargs.get("device")
        return wanted is not None and torch.device(wanted).type != args[0].device.type
    return bool(args[0].device.type != args[1].device.type)


def _non_blocking(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    positional = args[2] if _name(function) == "aten::copy_" and len(args) > 2 else False
    return bool(kwargs.get("non_blocking", positional))


# Operations without a tensor of the device, as torch.zeros(..., device="pretend"), come by the device's own kernels, as
# does the copy that torch.tensor(..., device="pretend") makes below __torch_dispatch__.
_kernels = torch.library.Library("_", "IMPL")
_kernels.fallback(_compute, "PrivateUse1")
_copies = torch.library.Library("aten", "IMPL")
_copies.impl("copy_", functools.partial(_compute, torch.ops.aten.copy_.default), "PrivateUse1")
