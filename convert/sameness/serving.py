"""A language model as it is served: sides for ``same`` that are the same function of token ids, computed another way.

    decode(model)            token by token, with a cache, in place of one pass
    one_at_a_time(model)     each row of a batch by itself
    left_padded(model, 5)    with padding in front, which the mask leaves out
    with_attention(model, "eager")   another implementation of attention

Each takes what the model takes, and gives the logits of every position; tokens are those that are given, not those that
the model would choose (teacher forcing). Models are transformers' or behave like them: they take ``input_ids``,
``attention_mask``, ``past_key_values`` and ``use_cache``, and give ``logits``.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import as_integer
from ..errors import ConversionError, OptionError

Logits = dict[str, Tensor]
PIECES = "is_in_pieces"  # attribute of functions that run a model in other pieces
_READ_ONCE = ("pixel_", "image_", "video_", "audio_")  # begin arguments that tokens of the first pass stand for


def decode(model: nn.Module, *, prefill: int = 1) -> Callable[..., Logits]:
    """The model with its cache: the first tokens in one pass, then one token after another.

    Args:
        model: A language model; of one with an encoder, the decoder is run token by token.
        prefill: Tokens of the first pass; those that stand for images or sounds must be among them.

    Returns:
        A function of ``input_ids`` [batch, tokens] (of ``decoder_input_ids``, if there is an encoder) and the model's
        other arguments, which gives {"logits": [batch, tokens, vocabulary]}.

    Raises:
        ConversionError: ``prefill`` is below 1; by the function, of a model that gives no cache.

    Examples:
        >>> model, ids = networks.language_model(), torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
        >>> c2a.same(model, c2a.decode(model, prefill=2), ids).verdict
        'rounding'
    """
    prefill, has_encoder = as_integer(prefill, "prefill", least=1), bool(_config(model, "is_encoder_decoder"))
    tokens = "decoder_input_ids" if has_encoder else "input_ids"

    @torch.no_grad()
    def run(*args: Any, **kwargs: Any) -> Logits:
        given = _named(model, args, kwargs)
        ids, mask = given.pop(tokens), given.pop("attention_mask", None)
        if has_encoder:
            reads = {name: given.pop(name) for name in ("input_ids", "input_features") if name in given}
            given["encoder_outputs"] = model.get_encoder()(**reads, **_if_given(attention_mask=mask))  # type: ignore[operator]
        past: dict[str, Any] = {}
        parts = []
        for start, end in _steps(ids.shape[1], prefill):
            seen = mask if has_encoder or mask is None else mask[:, :end]
            step = {tokens: ids[:, start:end], **_if_given(attention_mask=seen), **_positions(given, start, end)}
            found = model(**{**given, **step, **past}, use_cache=True)
            given = {name: one for name, one in given.items() if not name.startswith(_READ_ONCE)}
            past = _cache(found, model)
            parts.append(found.logits)
        return {"logits": torch.cat(parts, 1)}

    return _in_pieces(run)


def one_at_a_time(model: Callable[..., Any]) -> Callable[..., Logits]:
    """The model on each row of a batch by itself.

    Args:
        model: A language model; every tensor that it is given has the batch first.

    Returns:
        A function of the model's arguments, which gives {"logits": [batch, tokens, vocabulary]}.

    Examples:
        >>> model, ids = networks.language_model(), torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
        >>> c2a.same(model, c2a.one_at_a_time(model), ids).exit_code
        0
    """

    @torch.no_grad()
    def run(*args: Any, **kwargs: Any) -> Logits:
        given = _named(model, args, kwargs)
        count = next(len(one) for one in given.values() if isinstance(one, Tensor))
        rows = (
            {name: one[row : row + 1] if isinstance(one, Tensor) else one for name, one in given.items()}
            for row in range(count)
        )
        return {"logits": torch.cat([model(**row).logits for row in rows])}

    return _in_pieces(run)


def left_padded(model: Callable[..., Any], count: int, *, token: int = 0) -> Callable[..., Logits]:
    """The model with padding in front of every row, which its mask leaves out.

    Args:
        model: A language model without an encoder.
        count: Padding tokens.
        token: Their id.

    Returns:
        A function of ``input_ids`` [batch, tokens] and perhaps ``attention_mask``, which gives {"logits": [batch,
        tokens, vocabulary]} of the tokens that were given. Positions are counted from the first token that is not
        padding, as ``generate`` of transformers counts them, where the model takes ``position_ids``.

    Raises:
        ConversionError: ``count`` is below 1.

    Examples:
        >>> model, ids = networks.language_model(), torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
        >>> c2a.same(model, c2a.left_padded(model, 3), ids).exit_code
        0
    """
    count = as_integer(count, "count", least=1)

    @torch.no_grad()
    def run(*args: Any, **kwargs: Any) -> Logits:
        given = _named(model, args, kwargs)
        ids = given.pop("input_ids")
        mask = given.pop("attention_mask", torch.ones_like(ids))
        longer = torch.cat([torch.full_like(ids[:, :1], token).expand(-1, count), ids], 1)
        seen = torch.cat([torch.zeros_like(mask[:, :1]).expand(-1, count), mask], 1)
        places = {"position_ids": (seen.cumsum(1) - 1).clamp(min=0)} if _takes(model, "position_ids") else {}
        found = model(**{**given, **places}, input_ids=longer, attention_mask=seen)
        return {"logits": found.logits[:, count:]}

    return _in_pieces(run)


def with_attention(model: nn.Module, kind: str) -> nn.Module:
    """A copy of a model of transformers with another implementation of attention, such as "eager" or "sdpa".

    Raises:
        OptionError: The model has no choice of implementations, or not this one.

    Examples:
        >>> model, ids = networks.language_model(), torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
        >>> c2a.same(model, c2a.with_attention(model, "eager"), ids).verdict
        'rounding'
    """
    other = copy.deepcopy(model)
    if not hasattr(other, "set_attn_implementation"):
        raise OptionError(f"{type(model).__name__} has no choice of implementations of attention")
    try:
        other.set_attn_implementation(kind)  # type: ignore[operator]
    except (ImportError, ValueError) as refusal:
        raise OptionError(f"{type(model).__name__} has no attention {kind!r}: {refusal}") from None
    return other


def _in_pieces(run: Callable[..., Logits]) -> Callable[..., Logits]:
    """Marks a function whose operations are of other sizes than the model's, so that outputs alone are compared."""
    setattr(run, PIECES, True)
    return run


def _steps(count: int, prefill: int) -> list[tuple[int, int]]:
    """The first and last token of each pass."""
    first = min(prefill, count)
    return [(0, first), *((place, place + 1) for place in range(first, count))]


def _cache(found: Any, model: nn.Module) -> dict[str, Any]:
    """The cache of a pass, by the name that the next one takes it by."""
    for name in ("past_key_values", "cache_params", "cache"):
        if name in list(found.keys()) and found[name] is not None:
            return {name: found[name]}
    raise ConversionError(f"{type(model).__name__} gives no cache")


def _config(model: object, name: str) -> Any:
    return getattr(getattr(model, "config", None), name, None)


def _if_given(**values: Any) -> dict[str, Any]:
    return {name: one for name, one in values.items() if one is not None}


def _positions(given: Mapping[str, Any], start: int, end: int) -> dict[str, Any]:
    found = given.get("position_ids")
    return {} if found is None else {"position_ids": found[..., start:end]}


def _called(model: object) -> Callable[..., Any]:
    return model.forward if isinstance(model, nn.Module) else model  # type: ignore[return-value]


def _takes(model: object, name: str) -> bool:
    return name in inspect.signature(_called(model)).parameters


def _named(model: object, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name."""
    return {**inspect.signature(_called(model)).bind_partial(*args).arguments, **kwargs}
