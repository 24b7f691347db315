"""An interpreter of pickles that imports nothing and calls nothing that a pickle names.

``pickletools`` reads the opcodes' arguments; what they build here is plain data. A class or a function is a
``Name``; a call of it goes to a handler that knows a few names, and otherwise makes a ``StandIn``, which only
remembers. So a pickle cannot run anything, and what it builds is counted while it is built. What no checkpoint needs is
not built at all: texts and numbers longer than any name are passed over, and only texts are keys.

Python's own ``pickle.Unpickler`` is not used: with the same restrictions it still allocates what a pickle asks for
(a memo of 2^32 entries, a million sets), and calls methods of what it builds.
"""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from ...errors import CheckpointError
from .common.limits import MAX_NAME, Budget
from .common.stored import Source

_CONTAINER, ENTRY, VALUE = 88, 96, 16  # bytes that a small container, a dictionary's entry, another value take
_CHANGED = "its pickle changes a tensor, or something else that no checkpoint changes, after it was made"
_MEMO = 2**32  # numbers that no two of are hashed alike


@dataclass(frozen=True, slots=True)
class Name:
    """A class or a function that a pickle names, by module and attribute."""

    path: str


@dataclass(slots=True, eq=False)
class StandIn:
    """An object that a pickle would have built.

    Attributes:
        kind: The class or the function that would have been called.
        state: What the object would have been given as its state.
        entries: What would have been put into it by key; ``OTHER`` also stands for what would have been appended.
    """

    kind: str
    state: object = None
    entries: dict[object, object] | None = None


class _Unread:
    """Stands for a text or a number that was passed over."""


UNREAD = _Unread()
OTHER = _Unread()  # stands for all keys of a dictionary that are not texts, whose values are passed over


class _TooLongError(Exception):
    """An argument is longer than any that is needed."""


class Stream:
    """Bytes of a mapped file, as ``pickletools`` reads them.

    Args:
        source: The file.
        start: Where to begin.
        end: Where to end.

    Attributes:
        position: What is read next, counted from the file's start.
        budget: What reading may still take.
    """

    def __init__(self, source: Source, start: int, end: int) -> None:
        self._content, self._end = source.content, end
        self.position, self.budget = start, source.budget

    def opcode(self) -> int:
        """The next byte.

        Raises:
            EOFError: There is none.
        """
        position = self.position
        if position >= self._end:
            raise EOFError
        self.position = position + 1
        return self._content[position]

    def read(self, size: int) -> bytes:
        """The next bytes, fewer only at the end."""
        return self._take(min(self.position + size, self._end))

    def readline(self) -> bytes:
        """The next bytes up to the end of a line."""
        behind = self._content.find(b"\n", self.position, self._end) + 1
        return self._take(behind or self._end)

    def tell(self) -> int:
        """Where the stream stands."""
        return self.position

    def _take(self, end: int) -> bytes:
        start, self.position = self.position, end
        if end - start > MAX_NAME:
            raise _TooLongError
        return self._content[start:end]


Persistent = Callable[[object], object]
Call = Callable[[Name, tuple[object, ...]], object]


class PickleMachine:
    """Interprets one pickle.

    Args:
        persistent: Gives the object for a persistent id.
        call: Gives the result of a call, or a ``StandIn`` for it.
        budget: Charged for what is built.
    """

    def __init__(self, *, persistent: Persistent, call: Call, budget: Budget) -> None:
        self._persistent, self._call, self._budget = persistent, call, budget
        self._stack: list[object] = []
        self._marks: list[list[object]] = []
        self._memo: dict[int, object] = {}

    def run(self, stream: Stream) -> object:
        """Interprets the pickle that begins where the stream stands; leaves the stream at its end.

        Raises:
            CheckpointError: The pickle builds too much, or uses an opcode that checkpoints do not.
            Exception: Of any kind, for a pickle that is damaged.
        """
        budget = self._budget
        while (code := stream.opcode()) != _STOP:
            action, read = _OPCODES[code]
            try:
                argument = None if read is None else read(stream)
            except _TooLongError:
                argument = UNREAD
            action(self, argument)
            budget.steps -= 1
            if budget.steps < 0 or budget.memory < 0:
                budget.refuse()
        budget.memory += ENTRY * len(self._memo)
        self._memo.clear()
        return self._stack.pop()

    def _push(self, value: object, memory: int = VALUE) -> None:
        self._budget.memory -= memory
        self._stack.append(value)

    def _ignore(self, _: object) -> None:
        """PROTO and FRAME say how the pickle was written."""

    def _constant(self, argument: object) -> None:
        if type(argument) is str and not _is_text(argument):
            argument = UNREAD
        self._push(argument, sys.getsizeof(argument))

    def _mark(self, _: object) -> None:
        self._budget.memory -= _CONTAINER
        self._marks.append(self._stack)
        self._stack = []

    def _pop_mark(self) -> list[object]:
        items = self._stack
        self._stack = self._marks.pop()
        self._budget.memory += _CONTAINER
        return items

    def _discard(self, _: object) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def _discard_mark(self, _: object) -> None:
        self._pop_mark()

    def _duplicate(self, _: object) -> None:
        self._push(self._stack[-1])

    def _put(self, argument: object) -> None:
        self._budget.memory -= ENTRY
        self._memo[_index(argument)] = self._stack[-1]

    def _memoize(self, _: object) -> None:
        self._put(len(self._memo))

    def _get(self, argument: object) -> None:
        self._push(self._memo[_index(argument)])

    def _empty_list(self, _: object) -> None:
        self._push([], _CONTAINER)

    def _empty_dict(self, _: object) -> None:
        self._push({}, _CONTAINER)

    def _empty_tuple(self, _: object) -> None:
        self._push(())

    def _list_of_mark(self, _: object) -> None:
        self._push(self._pop_mark(), _CONTAINER)

    def _tuple_of(self, count: int) -> None:
        items = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._push(items, _CONTAINER)

    def _tuple_of_mark(self, _: object) -> None:
        self._push(tuple(self._pop_mark()), _CONTAINER)

    def _dict_of_mark(self, _: object) -> None:
        items = self._pop_mark()
        self._push({}, _CONTAINER)
        self._set_items(items)

    def _append(self, _: object) -> None:
        self._extend([self._stack.pop()])

    def _appends(self, _: object) -> None:
        self._extend(self._pop_mark())

    def _extend(self, items: list[object]) -> None:
        target = self._stack[-1]
        if isinstance(target, StandIn):
            self._set_items([OTHER, None])
        elif isinstance(target, list):
            target.extend(items)
        else:
            raise CheckpointError(_CHANGED)

    def _set_item(self, _: object) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set_items([key, value])

    def _set_items_of_mark(self, _: object) -> None:
        self._set_items(self._pop_mark())

    def _set_items(self, items: list[object]) -> None:
        target = self._stack[-1]
        if isinstance(target, StandIn):
            target.entries = target.entries or {}
            target = target.entries
        if not isinstance(target, dict):
            raise CheckpointError(_CHANGED)
        self._budget.memory -= ENTRY * (len(items) // 2)
        for key, value in zip(items[::2], items[1::2], strict=True):
            put(target, key, value)

    def _global(self, argument: object) -> None:
        module, _, attribute = _class_name(argument).partition(" ")
        self._name(f"{module}.{attribute}")

    def _stack_global(self, _: object) -> None:
        attribute, module = self._stack.pop(), self._stack.pop()
        self._name(f"{_class_name(module)}.{_class_name(attribute)}")

    def _name(self, path: str) -> None:
        self._push(Name(path), _CONTAINER + sys.getsizeof(path))

    def _reduce(self, _: object) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._called(function, arguments)

    def _new_object(self, _: object) -> None:
        """A class's ``__new__`` alone: containers are filled by their ``__init__``, so that they are empty."""
        arguments, function = self._stack.pop(), self._stack.pop()
        self._called(function, () if isinstance(arguments, tuple) else arguments)

    def _new_object_with_keywords(self, _: object) -> None:
        self._stack.pop()
        self._new_object(None)

    def _instance(self, argument: object) -> None:
        arguments = tuple(self._pop_mark())
        self._global(argument)
        self._called(self._stack.pop(), arguments)

    def _object(self, _: object) -> None:
        function, *arguments = self._pop_mark()
        self._called(function, tuple(arguments))

    def _called(self, function: object, arguments: object) -> None:
        if not (isinstance(function, Name) and isinstance(arguments, tuple)):
            self._push(StandIn("a call of something that has no name"), _CONTAINER)
        else:
            self._push(self._call(function, arguments), _CONTAINER)

    def _persistent_of_text(self, argument: object) -> None:
        self._push(self._persistent(argument), _CONTAINER)

    def _persistent_of_stack(self, _: object) -> None:
        self._push(self._persistent(self._stack.pop()), _CONTAINER)

    def _build(self, _: object) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if isinstance(target, StandIn):
            target.state = self._merged(target.state, state)
        elif not isinstance(target, dict):  # an OrderedDict has attributes beside its entries
            raise CheckpointError(_CHANGED)

    def _merged(self, before: object, state: object) -> object:
        """What an object holds after it was given a state: a copy, beside what it was given before.

        What happens to the state afterwards does not reach the object.
        """
        if not isinstance(state, dict):
            return state
        merged = {**before, **state} if isinstance(before, dict) else state.copy()
        self._budget.spend(memory=ENTRY * len(merged), steps=len(merged))
        return merged


def put(target: dict[object, object], key: object, value: object) -> None:
    """Puts an entry into a dictionary: only texts are keys, and all others are one.

    Raises:
        CheckpointError: The key is a text that was passed over.
    """
    if key is UNREAD:
        raise CheckpointError(f"its pickle has a key that is not text, or longer than {MAX_NAME} bytes")
    is_text = isinstance(key, str)
    target[key if is_text else OTHER] = value if is_text else None


def _index(argument: object) -> int:
    if not (isinstance(argument, int) and 0 <= argument < _MEMO):
        raise CheckpointError("its pickle refers to its memo by something that is not a number below 2^32")
    return argument


def _class_name(argument: object) -> str:
    if not isinstance(argument, str):
        raise CheckpointError(f"its pickle names a class by what is not text, or longer than {MAX_NAME} bytes")
    return argument


def _is_text(content: str) -> bool:
    """Whether a text holds no half of a surrogate pair, which pickles may."""
    return content.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in content)


_CONSTANTS = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
)
_ACTIONS: dict[str, Callable[[PickleMachine, object], None]] = {
    **dict.fromkeys(_CONSTANTS, PickleMachine._constant),
    **dict.fromkeys(("PROTO", "FRAME"), PickleMachine._ignore),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), PickleMachine._put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), PickleMachine._get),
    "NONE": lambda machine, _: machine._push(None),
    "NEWTRUE": lambda machine, _: machine._push(True),
    "NEWFALSE": lambda machine, _: machine._push(False),
    "TUPLE1": lambda machine, _: machine._tuple_of(1),
    "TUPLE2": lambda machine, _: machine._tuple_of(2),
    "TUPLE3": lambda machine, _: machine._tuple_of(3),
    "MARK": PickleMachine._mark,
    "POP": PickleMachine._discard,
    "POP_MARK": PickleMachine._discard_mark,
    "DUP": PickleMachine._duplicate,
    "MEMOIZE": PickleMachine._memoize,
    "EMPTY_LIST": PickleMachine._empty_list,
    "EMPTY_SET": PickleMachine._empty_list,
    "EMPTY_DICT": PickleMachine._empty_dict,
    "EMPTY_TUPLE": PickleMachine._empty_tuple,
    "LIST": PickleMachine._list_of_mark,
    "FROZENSET": PickleMachine._list_of_mark,
    "TUPLE": PickleMachine._tuple_of_mark,
    "DICT": PickleMachine._dict_of_mark,
    "APPEND": PickleMachine._append,
    "APPENDS": PickleMachine._appends,
    "ADDITEMS": PickleMachine._appends,
    "SETITEM": PickleMachine._set_item,
    "SETITEMS": PickleMachine._set_items_of_mark,
    "GLOBAL": PickleMachine._global,
    "STACK_GLOBAL": PickleMachine._stack_global,
    "INST": PickleMachine._instance,
    "OBJ": PickleMachine._object,
    "REDUCE": PickleMachine._reduce,
    "NEWOBJ": PickleMachine._new_object,
    "NEWOBJ_EX": PickleMachine._new_object_with_keywords,
    "BUILD": PickleMachine._build,
    "PERSID": PickleMachine._persistent_of_text,
    "BINPERSID": PickleMachine._persistent_of_stack,
}


def _unknown(name: str) -> Callable[[PickleMachine, object], None]:
    def refuse(_: PickleMachine, __: object) -> None:
        raise CheckpointError(f"its pickle uses the opcode {name}, which no checkpoint needs")

    return refuse


_Reader = Callable[[Stream], object]


def _table() -> list[tuple[Callable[[PickleMachine, object], None], _Reader | None]]:
    """What each byte does as an opcode, and what reads its argument."""
    table: list[tuple[Callable[[PickleMachine, object], None], _Reader | None]] = [(_unknown("unknown"), None)] * 256
    for opcode in pickletools.opcodes:
        read = None if opcode.arg is None else cast(_Reader, opcode.arg.reader)
        table[ord(opcode.code)] = (_ACTIONS.get(opcode.name, _unknown(opcode.name)), read)
    return table


_OPCODES = _table()
_STOP = ord(b".")
