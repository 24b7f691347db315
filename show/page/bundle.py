"""One HTML file of a template, its styles and its program: plain JavaScript modules, joined in the order they import.

The sources are modules, which editors and linters follow. A file that is opened from a disk may not import others, so
the modules are put one behind the other in one script, each in a function that returns its exports:

    let { decoded, headAttention } = (() => { ... return { decoded, headAttention }; })();

Only exported names are shared, and a name that two modules export ends the script with a syntax error.
"""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from torch import Tensor

from ..text import scientific

_SHOW = str(__package__).rpartition(".")[0]
_IMPORT = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:(?:async )?function|class|const|let) (\w+))", re.MULTILINE)


def source(path: str) -> str:
    """The text of a file below show/, by its path there."""
    return files(_SHOW).joinpath(*path.split("/")).read_text("utf-8")


def modules(entry: str) -> list[str]:
    """The paths of a module and all that it imports, directly or not, each behind those that it imports."""
    found: list[str] = []

    def visit(path: str) -> None:
        for name in _IMPORT.findall(source(path)):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
            if imported not in found:
                visit(imported)
        found.append(path)

    visit(entry)
    return found


def script(entry: str) -> str:
    """A program as one script, from its entry module below show/."""
    return "\n\n".join(['"use strict";', *(_wrapped(source(path)) for path in modules(entry))])


def _wrapped(text: str) -> str:
    body, names = _EXPORT.sub("", _IMPORT.sub("", text)).strip(), ", ".join(_EXPORT.findall(text))
    if not names:
        return f"(() => {{\n{body}\n}})();"
    return f"let {{ {names} }} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();"


def packed(tensor: Tensor) -> str:
    """A tensor's numbers, row by row, as the base64 of their little-endian bytes."""
    array = tensor.detach().cpu().contiguous().numpy()
    return base64.b64encode(array.astype(array.dtype.newbyteorder("<")).tobytes()).decode("ascii")


def filled(template: str, *, styles: Sequence[str], entry: str, **values: Any) -> str:
    """Fills an HTML template, and inlines styles and the program; all are named by their paths below show/."""
    environment = Environment(
        loader=FunctionLoader(source),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["scientific"] = scientific
    style = Markup("\n".join(map(source, styles)))
    return environment.get_template(template).render(style=style, script=Markup(script(entry)), **values)
