"""Gives the functions of imported modules the code of a mutant.

A mutant whose difference lies in functions that have not run yet need not be imported anew, which takes longer than its
tests: the functions, wherever they are referred to, get the new code. The rest, such as a constant, a default value or
a function that ran while the tests were collected, has left traces that cannot be taken back.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType

Key = tuple[str, str, int]  # a function's module, its qualified name, and its first line


class Patches:
    """What can be patched in some modules.

    Made, and ``start`` called, before they are imported; ``stop`` when they and all that uses them are.

    Args:
        modules: Paths of the modules' texts, which are not mutated yet.
    """

    def __init__(self, modules: Iterable[str]) -> None:
        self._names = {str(Path(module).resolve()): module for module in modules}
        self._modules: dict[str, str | None] = {}  # of the files that code says it comes from
        self._pristine = {module: _compiled(Path(module).read_text(encoding="utf-8"), module) for module in modules}
        self._ran: set[Key] = set()
        self._functions: dict[Key, list[FunctionType]] = defaultdict(list)

    def start(self) -> None:
        """From now on, the functions that run are noted."""
        sys.settrace(self._trace)

    def stop(self) -> None:
        """Finds the functions of the modules, and notes no longer which run."""
        sys.settrace(None)
        for found in gc.get_objects():
            if type(found) is FunctionType and (module := self._module(found.__code__)):
                self._functions[_key(module, found.__code__)].append(found)

    def _trace(self, frame: FrameType, event: str, argument: object) -> None:
        if module := self._module(frame.f_code):
            self._ran.add(_key(module, frame.f_code))

    def _module(self, code: CodeType) -> str | None:
        name = code.co_filename
        if name not in self._modules:
            self._modules[name] = self._names.get(str(Path(name).resolve()))
        return self._modules[name]

    def apply(self, module: str, text: str) -> bool:
        """Gives the functions a mutant's code, and says whether that makes a module the mutant.

        Args:
            module: Its path in the tree.
            text: The mutant.

        Raises:
            SyntaxError: The mutant is no Python.
        """
        changed = list(_changed(self._pristine[module], _compiled(text, module)))
        for code in changed:
            if code is None or _key(module, code) in self._ran or not self._functions[_key(module, code)]:
                return False
        return all(self.give(module, code) for code in changed if code is not None)

    def give(self, module: str, code: CodeType) -> bool:
        """Gives the functions of a code, and those in it, their code; says whether that was possible."""
        for inner in (code, *_inside(code)):
            for function in self._functions[_key(module, inner)]:
                if function.__code__.co_freevars != inner.co_freevars:
                    return False
                function.__code__ = inner
        return True


def _compiled(text: str, module: str) -> CodeType:
    return compile(text, module, "exec", dont_inherit=True)


def _key(module: str, code: CodeType) -> Key:
    return module, code.co_qualname, code.co_firstlineno


def _changed(before: CodeType, after: CodeType) -> Iterator[CodeType | None]:
    """The functions of the second code that differ from those of the first; None if more than functions differs."""
    ours, theirs = list(_codes(before)), list(_codes(after))
    if [_key("", code) for code in ours] != [_key("", code) for code in theirs] or _own(before) != _own(after):
        yield None
        return
    for one, other in zip(ours, theirs, strict=True):
        if one == other:
            continue
        if other.co_flags & inspect.CO_OPTIMIZED:  # a function, not the body of a class
            yield other
        else:
            yield from _changed(one, other)


def _codes(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _inside(code: CodeType) -> Iterator[CodeType]:
    for inner in _codes(code):
        yield inner
        yield from _inside(inner)


def _own(code: CodeType) -> tuple[object, ...]:
    """What a module's or class's code does, beside what is in its functions."""
    constants = tuple((type(one), one) for one in code.co_consts if not isinstance(one, CodeType))
    return code.co_code, code.co_names, repr(constants)
