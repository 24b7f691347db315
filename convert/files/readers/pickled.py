"""What PyTorch's pickles mean: state dicts, whole modules and TorchScript, in a zip archive or in the legacy form.

    zip      folder/data.pkl names storages; their numbers are the entries folder/data/KEY
    legacy   magic number, protocol, system, object, storage keys: five pickles; then each storage's length and numbers

Neither ``torch.load`` nor ``pickle`` is given the file: ``pickle_machine`` interprets it. Only the names below mean
anything; every other class or function becomes a ``StandIn``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import torch

from ...errors import CheckpointError
from .archive import Archive
from .common.limits import MAX_TENSORS, Budget
from .common.stored import OddTensor, Source, Storage
from .pickle_machine import ENTRY, VALUE, Name, Persistent, PickleMachine, StandIn, Stream, put
from .rebuilt import QUANTISED, Typed, check_notes, plain_tensor, quantised_tensor

DATA = "data.pkl"
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_LENGTH = struct.Struct("<q")
_STORAGES = {
    **{
        f"torch.{name}Storage": dtype
        for name, dtype in {
            "Double": torch.float64,
            "Float": torch.float32,
            "Half": torch.float16,
            "BFloat16": torch.bfloat16,
            "Long": torch.int64,
            "Int": torch.int32,
            "Short": torch.int16,
            "Char": torch.int8,
            "Byte": torch.uint8,
            "Bool": torch.bool,
            "ComplexDouble": torch.complex128,
            "ComplexFloat": torch.complex64,
        }.items()
    },
    "torch.storage.UntypedStorage": torch.uint8,
    "torch.UntypedStorage": torch.uint8,
}
_STORAGE = 100  # bytes that the description of a storage takes
_ORDERED = "collections.OrderedDict"
_COLLECTIONS = ("torch.Size", "builtins.set", "__builtin__.set")  # each is a copy of the list or tuple it is made from
_ODD = {
    "_rebuild_sparse_tensor": "sparse",
    "_rebuild_sparse_csr_tensor": "sparse",
    "_rebuild_nested_tensor": "nested",
    "_rebuild_meta_tensor_no_storage": "meta",
}


def read_archive(archive: Archive, root: str) -> object:
    """What the pickle of a zip archive holds, in plain data.

    Args:
        archive: The archive.
        root: The folder in it that the pickle and its storages lie in.

    Raises:
        CheckpointError: The archive is damaged, was written on a big-endian machine, or describes storages that it
            does not hold.
    """
    source = archive.source
    archive.check_byte_order(root)

    def storage(key: str, nbytes: int) -> Storage:
        found = archive.storage(f"{root}data/{key}")
        if nbytes > found.nbytes:
            raise CheckpointError(f"{source.path} has a storage {key!r} that is shorter than it declares")
        return found

    pickle = archive.storage(f"{root}{DATA}")
    start = pickle.start or 0
    return _machine(storage, source.budget).run(Stream(source, start, start + pickle.nbytes))


def read_legacy(source: Source) -> object:
    """What a file in the form before PyTorch 1.6 holds, in plain data.

    Raises:
        CheckpointError: The file is damaged, of another machine's byte order, or a pickle that torch.save did not
            write.
    """
    stream = Stream(source, 0, source.size)
    storages: dict[str, Storage] = {}

    def storage(key: str, nbytes: int) -> Storage:
        if key not in storages:
            source.budget.spend(memory=_STORAGE)
            storages[key] = Storage(source, nbytes)
        found = storages[key]
        if nbytes != found.nbytes:
            raise CheckpointError(f"{source.path} declares the storage {key!r} with two lengths")
        return found

    magic, protocol = _plain(stream), None
    if magic == _MAGIC:
        protocol = _plain(stream)
    if protocol != _PROTOCOL:
        raise CheckpointError(f"{source.path} is a pickle that torch.save did not write")
    system = _plain(stream)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise CheckpointError(f"{source.path} was written on a big-endian machine; only little-endian files are read")
    loaded = _machine(storage, source.budget).run(stream)
    keys = _plain(stream)
    if not isinstance(keys, list) or len(keys) > MAX_TENSORS:
        raise CheckpointError(f"{source.path} is damaged: its storages are not listed")
    _place(storages, keys, stream.position, source)
    return loaded


def _place(storages: dict[str, Storage], keys: list[object], position: int, source: Source) -> None:
    """Finds where the storages lie that follow the pickles, in the order of their keys."""
    sizes = {key: storage.nbytes for key, storage in storages.items()}
    for key in keys:
        if not isinstance(key, str) or key not in sizes or storages[key].start is not None:
            raise CheckpointError(f"{source.path} is damaged: a storage is listed twice or belongs to no tensor")
        (count,) = _LENGTH.unpack(source.bytes(position, _LENGTH.size))
        position += _LENGTH.size
        if count < 0 or (count == 0) != (sizes[key] == 0) or (count and sizes[key] % count):
            raise CheckpointError(f"{source.path} has a storage {key!r} that is not as long as it declares")
        storages[key].start = position
        position += sizes[key]


def _plain(stream: Stream) -> object:
    """One pickle that refers to no storage."""
    return _machine(_no_storage, stream.budget).run(stream)


def _no_storage(key: str, nbytes: int) -> Storage:
    raise CheckpointError("a pickle refers to a storage where none can be")


def _machine(storage: Callable[[str, int], Storage], budget: Budget) -> PickleMachine:
    return PickleMachine(persistent=_persistent(storage, budget), call=partial(_call, budget), budget=budget)


def _persistent(storage: Callable[[str, int], Storage], budget: Budget) -> Persistent:
    kinds: dict[str, str] = {}  # of the storages, by key: PyTorch keeps the first, and reads every tensor by it

    def persistent(pid: object) -> object:
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module":
            return pid[1]  # ("module", class, source file, source): the legacy form keeps a class's code; unread
        if not (isinstance(pid, tuple) and len(pid) in (5, 6) and pid[0] == "storage" and isinstance(pid[1], Name)):
            raise CheckpointError("its pickle refers to something that is no storage")
        key, count, view = pid[2], pid[4], pid[5:]
        if isinstance(key, str):
            if key not in kinds:
                budget.spend(memory=_STORAGE)
            if kinds.setdefault(key, pid[1].path) != pid[1].path:
                raise CheckpointError(f"its pickle says of the storage {key[:100]!r} that it is of two kinds")
        dtype = _STORAGES.get(pid[1].path) or QUANTISED.get(pid[1].path)
        if dtype is None:
            return OddTensor(f"quantized or unknown ({pid[1].path})")
        if not isinstance(key, str) or type(count) is not int or not 0 <= count < 2**59 or view not in ((), (None,)):
            raise CheckpointError("its pickle describes a storage by something that does not describe one")
        return Typed(storage(key, count * dtype.itemsize), dtype, is_quantised=pid[1].path in QUANTISED)

    return persistent


def _call(budget: Budget, function: Name, arguments: tuple[object, ...]) -> object:
    """The result of a call that a pickle asks for: a tensor, a plain container, or a stand-in."""
    path = function.path
    if path == _ORDERED:
        return _ordered(arguments, budget)
    if path in _COLLECTIONS and len(arguments) == 1:
        items = arguments[0] if isinstance(arguments[0], list | tuple) else ()
        budget.spend(memory=VALUE * len(items), steps=len(items))
        return items.copy() if isinstance(items, list) else items
    module, _, name = path.rpartition(".")
    if module not in ("torch._utils", "torch._tensor"):
        return StandIn(path)
    if name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3"):
        return plain_tensor(name, arguments)
    if name == "_rebuild_qtensor":
        return quantised_tensor(arguments)
    if name in ("_rebuild_parameter", "_rebuild_parameter_with_state"):
        check_notes(arguments[3:])
        return arguments[0] if arguments else StandIn(path)
    if name == "_rebuild_from_type_v2" and len(arguments) == 4:  # a subclass of Tensor, rebuilt as what it holds
        inner, inner_arguments = arguments[0], arguments[2]
        if isinstance(inner, Name) and isinstance(inner_arguments, tuple) and inner.path != path:
            check_notes(arguments[3:])
            return _call(budget, inner, inner_arguments)
    return OddTensor(_ODD[name]) if name in _ODD else StandIn(path)


def _ordered(arguments: tuple[object, ...], budget: Budget) -> dict[object, object] | StandIn:
    """An OrderedDict: empty, of the list of pairs that early versions of Python pickled, or of another dictionary."""
    given = arguments[0] if arguments else ()
    if not isinstance(given, dict | list | tuple):
        return StandIn(_ORDERED)
    budget.spend(memory=ENTRY * len(given), steps=len(given))  # a pickle may name one list many times
    found: dict[object, object] = {}
    for pair in given.items() if isinstance(given, dict) else given:
        if not (isinstance(pair, list | tuple) and len(pair) == 2):
            return StandIn(_ORDERED)
        put(found, *pair)
    return found
