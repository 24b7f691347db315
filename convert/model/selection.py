"""Choice of layers by patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from ..errors import SelectionError
from .convert import Filter, is_convolution


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
        if not any(_matches(name, pattern) for name in names):
            shown = ", ".join(name or "'' (the model itself)" for name in names[:10])
            shown += f" and {len(names) - 10} more" if len(names) > 10 else ""
            raise SelectionError(f"the pattern {pattern!r} matches no convolution; there are {shown or 'none'}")

    def selected(_: nn.Module, name: str) -> bool:
        included = not include or any(_matches(name, pattern) for pattern in include)
        return included and not any(_matches(name, pattern) for pattern in exclude)

    return selected


def _matches(name: str, pattern: str) -> bool:
    if not pattern.startswith("re:"):
        return name == pattern or fnmatchcase(name, pattern)
    try:
        return re.fullmatch(pattern.removeprefix("re:"), name) is not None
    except (re.error, OverflowError, RecursionError) as error:  # the last two of what is too large
        raise SelectionError(f"the pattern {pattern!r} is not a regular expression: {error}") from error
