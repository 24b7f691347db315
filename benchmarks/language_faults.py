"""Faults that are planted into language models: what programs for serving and for training really get wrong.

Each makes a wrong copy of a model in some size, from the largest to the smallest. A copy's methods are replaced on the
instance, so that modules keep their names, as two implementations of one model have.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.convert.sameness.serving import decode, left_padded

ROTARY = ("Llama", "Qwen3", "Phi", "Mixtral", "Qwen2-MoE")
_EPS = ("eps", "variance_epsilon")
_PADDING = 5  # tokens on the left

Method = Callable[..., Any]


@dataclass(frozen=True)
class Fault:
    """A fault.

    Attributes:
        make: Makes a wrong side of a model, in a size.
        models: Those that it fits.
        sizes: What ``make`` takes, by what it is called, largest first.
        names: Parts of the name of the module at fault, one of which the report must name; none where outputs alone can
            be compared.
        words: Parts of what is said of the cause, one of which the report must say.
        tokens: In a row.
        is_length: Whether sizes are numbers of tokens in a row.
        prepare: Changes the right model first.
        is_honest: Whether it is the same function, so that "rounding" is right.
    """

    make: Callable[[nn.Module, Any], Any]
    models: tuple[str, ...]
    sizes: Mapping[str, Any]
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    tokens: int = 12
    is_length: bool = False
    prepare: Callable[[nn.Module], Any] = field(default=lambda _model: None)
    is_honest: bool = False


def _replaced(model: nn.Module, ending: str, made: Callable[[Any, Method], Method], most: int | None = None) -> Any:
    """The model with other methods ``forward`` of the modules whose names end so: of the last ``most``, or of all."""
    found = [module for name, module in model.named_modules() if name.endswith(ending)]
    if not found:
        raise ValueError(f"{type(model).__name__} has no {ending}")
    for module in found[-(most or 0) :]:
        object.__setattr__(module, "forward", made(module, module.forward))
    return model


def _attention(model: nn.Module) -> str:
    names = [name for name, _ in model.named_modules()]
    return next(kind for kind in ("self_attn", "attn") if any(one.endswith(f".{kind}") for one in names))


# Rotary positions


def _angles_in(model: nn.Module, dtype: torch.dtype) -> Any:
    def made(module: Any, _own: Method) -> Method:
        def forward(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
            angles = position_ids[..., None].to(dtype) * module.inv_freq.to(dtype)
            both = torch.cat([angles, angles], -1)
            return both.cos().to(x.dtype), both.sin().to(x.dtype)

        return forward

    return _replaced(copy.deepcopy(model), "rotary_emb", made)


def _other_base(model: nn.Module, more: float) -> Any:
    other = copy.deepcopy(model)
    for name, module in other.named_modules():
        if name.endswith("rotary_emb"):
            module.inv_freq.copy_(module.inv_freq ** (math.log(10000 * (1 + more)) / math.log(10000)))  # type: ignore[operator,union-attr]
    return other


def _interleaved(x: Tensor) -> Tensor:
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def _other_layout(model: nn.Module, layers: int) -> Any:
    """Pairs of neighbours are turned, in place of the two halves."""

    def made(module: Any, own: Method) -> Method:
        code = sys.modules[type(module).__module__]

        def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> tuple[Tensor, Tensor]:
            half = cos.shape[-1] // 2
            cos, sin = (one[..., :half].repeat_interleave(2, -1).unsqueeze(unsqueeze_dim) for one in (cos, sin))
            return q * cos + _interleaved(q) * sin, k * cos + _interleaved(k) * sin

        def forward(*args: Any, **kwargs: Any) -> Any:
            right = code.apply_rotary_pos_emb  # type: ignore[attr-defined]
            code.apply_rotary_pos_emb = turned  # type: ignore[attr-defined]
            try:
                return own(*args, **kwargs)
            finally:
                code.apply_rotary_pos_emb = right  # type: ignore[attr-defined]

        return forward

    return _replaced(copy.deepcopy(model), "self_attn", made, layers)


def _rows_of_layout(model: nn.Module, layers: int) -> Any:
    """Weights of queries and keys stored for the other layout."""
    other = copy.deepcopy(model)
    found = [module for name, module in other.named_modules() if name.endswith("self_attn")]
    for attention in found[-layers:]:
        for linear in (attention.q_proj, attention.k_proj):
            heads = linear.weight.view(-1, 2, attention.head_dim // 2, linear.weight.shape[1])
            linear.weight.data = heads.transpose(1, 2).reshape(linear.weight.shape).clone()
    return other


# Norms


def _cast_moved(model: nn.Module, norms: int | None) -> Any:
    """The weight multiplies before the cast where it did behind it, and the other way round in Gemma."""

    def made(module: Any, _own: Method) -> Method:
        def forward(x: Tensor) -> Tensor:
            real = x.float()
            scaled = real * torch.rsqrt(real.square().mean(-1, keepdim=True) + _eps(module))
            if "Gemma" in type(module).__name__:
                return scaled.to(x.dtype) * (1 + module.weight)
            return (scaled * module.weight.float()).to(x.dtype)

        return forward

    return _replaced(copy.deepcopy(model), "norm", made, norms)


def _eps(module: Any) -> float:
    return next(float(getattr(module, name)) for name in _EPS if hasattr(module, name))


def _other_eps(model: nn.Module, more: float) -> Any:
    """One norm of the last layer, as an engine's default is another."""
    other = copy.deepcopy(model)
    found = [
        m for name, m in other.named_modules() if name.endswith(("input_layernorm", "ln_1", "layer_norm", ".norm"))
    ]
    module = found[-1]
    name = next(name for name in _EPS if hasattr(module, name))
    setattr(module, name, getattr(module, name) + more)
    return other


# Masks, scale, attention


def _masked(model: nn.Module, seen: Callable[[Tensor], Tensor], layers: int) -> Any:
    def made(_module: Any, own: Method) -> Method:
        def forward(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
            count = hidden_states.shape[1]
            allowed = seen(torch.ones(count, count, dtype=torch.bool).tril())
            mask = torch.zeros(count, count, dtype=hidden_states.dtype)
            mask = mask.masked_fill(~allowed, torch.finfo(mask.dtype).min).expand(len(hidden_states), 1, -1, -1)
            return own(hidden_states, *args, **{**kwargs, "attention_mask": mask})

        return forward

    return _replaced(copy.deepcopy(model), f".{_attention(model)}", made, layers)


def _ahead(allowed: Tensor) -> Tensor:
    return torch.ones_like(allowed).tril(1)


def _one_ahead(allowed: Tensor) -> Tensor:
    allowed[-2, -1] = True
    return allowed


def _without_first(allowed: Tensor) -> Tensor:
    allowed[-1, 0] = False
    return allowed


def _other_window(model: nn.Module, more: int) -> Any:
    other = copy.deepcopy(model)
    other.config.sliding_window += more  # type: ignore[operator,union-attr]
    return other


def _other_scale(model: nn.Module, more: float) -> Any:
    other = copy.deepcopy(model)
    ending = f".{_attention(model)}"
    [m for name, m in other.named_modules() if name.endswith(ending)][-1].scaling *= 1 + more  # type: ignore[operator]
    return other


def _without_norms(model: nn.Module, endings: tuple[str, ...]) -> Any:
    other = copy.deepcopy(model)
    for name, module in list(other.named_modules()):
        for ending in endings:
            if name.endswith(".self_attn") and hasattr(module, ending):
                setattr(module, ending, nn.Identity())
    return other


def _untied(model: nn.Module, more: float) -> Any:
    """The head has its own weights, which moved a little since they were tied."""
    other = copy.deepcopy(model)
    own = other.lm_head.weight  # type: ignore[union-attr]
    drawn = torch.randn(own.shape, generator=torch.Generator().manual_seed(3)).to(own.dtype)  # type: ignore[arg-type,union-attr]
    other.lm_head.weight = nn.Parameter(own * (1 + more * drawn), requires_grad=False)  # type: ignore[union-attr,operator]
    return other


# Caches and positions


def _given(model: nn.Module, change: Callable[[dict[str, Any]], dict[str, Any]]) -> nn.Module:
    """A copy whose arguments by name are changed."""
    other = copy.deepcopy(model)
    own = other.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        return own(*args, **{**kwargs, **change(kwargs)})

    object.__setattr__(other, "forward", forward)
    return other


def _behind_the_prompt(model: nn.Module, most: int, change: Callable[[Tensor, int], dict[str, Any]]) -> Any:
    """A model with a cache whose arguments are changed where ``most`` tokens follow: by their ids, and those cached."""

    def changed(kwargs: dict[str, Any]) -> dict[str, Any]:
        past = kwargs.get("past_key_values", kwargs.get("cache"))
        before = 0 if past is None else past.get_seq_length()
        return change(kwargs["input_ids"], before) if before else {}

    return decode(_given(model, changed), prefill=12 - most)


def _late(model: nn.Module, most: int) -> Any:
    """Behind the prompt, positions are one too late; ``most`` tokens are behind it."""
    return _behind_the_prompt(model, most, lambda ids, before: {"position_ids": torch.full_like(ids, before + 1)})


def _lost(model: nn.Module, most: int) -> Any:
    """The cache's first entry is not seen; ``most`` tokens are behind the prompt."""

    def unseen(ids: Tensor, before: int) -> dict[str, Any]:
        mask = torch.ones(len(ids), before + 1, dtype=torch.long)
        mask[:, 0] = 0
        return {"attention_mask": mask, "position_ids": torch.full_like(ids, before)}

    return _behind_the_prompt(model, most, unseen)


def _absolute(model: nn.Module, count: int) -> Any:
    """Positions are counted from the first token, padding or not."""

    def counted(kwargs: dict[str, Any]) -> dict[str, Any]:
        ids = kwargs["input_ids"]
        return {"position_ids": torch.arange(ids.shape[1]).expand_as(ids)}

    return left_padded(_given(model, counted), count)


# Experts


def _swapped(model: nn.Module, layers: int) -> Any:
    other = copy.deepcopy(model)
    for experts in [m for name, m in other.named_modules() if name.endswith(".experts")][-layers:]:
        for weight in experts.parameters():
            weight.data = weight.data[[1, 0, *range(2, len(weight))]].clone()
    return other


def _tied_scores(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if name.endswith(".gate"):
            module.weight.data[1] = module.weight.data[0]  # type: ignore[operator,union-attr]


def _first_of_ties(model: nn.Module, _size: None) -> Any:
    """Of experts whose scores tie, the first ones are chosen; torch.topk takes the last ones on this machine."""

    def made(module: Any, _own: Method) -> Method:
        def forward(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            logits = nn.functional.linear(x.reshape(-1, x.shape[-1]), module.weight)
            shares = logits.float().softmax(-1)
            values, places = torch.sort(shares, dim=-1, descending=True, stable=True)
            values, places = values[:, : module.top_k], places[:, : module.top_k]
            if getattr(module, "norm_topk_prob", True):
                values = values / values.sum(-1, keepdim=True)
            return logits, values if "Mixtral" in type(module).__name__ else values.to(x.dtype), places

        return forward

    return _replaced(copy.deepcopy(model), ".gate", made)


_SHARES = {"10 %": 1e-1, "1 %": 1e-2, "0.1 %": 1e-3, "0.01 %": 1e-4}
_MASKS = ("Llama", "GPT-2", "Mixtral")
_FALLS = {"every layer": 0, "the last layer": 1}
_BEHIND = {"6 tokens": 6, "1 token": 1}

FAULTS: dict[str, Fault] = {
    "RoPE's angles in bfloat16": Fault(
        lambda model, _tokens: _angles_in(model, torch.bfloat16),
        ROTARY,
        {"512 tokens": 512, "64 tokens": 64, "12 tokens": 12},
        ("rotary_emb",),
        ("bfloat16",),
        is_length=True,
    ),
    "RoPE's base": Fault(_other_base, ("Llama", "Qwen3", "Phi"), _SHARES, ("rotary_emb",), ("inv_freq",)),
    "RoPE's layout, in code": Fault(_other_layout, ROTARY[:2] + ROTARY[3:], _FALLS, ("self_attn",)),
    "RoPE's layout, of weights": Fault(_rows_of_layout, ROTARY, _FALLS, ("q_proj", "k_proj"), ("weight",)),
    "the norm's cast moved": Fault(_cast_moved, ("Llama", "Qwen3", "Gemma 3"), {"all": None, "the last": 1}, ("norm",)),
    "eps": Fault(
        _other_eps,
        ("Llama", "Gemma 3", "GPT-2", "T5", "Mamba"),
        {"1e-3 more": 1e-3, "1e-5 more": 1e-5, "1e-6 more": 1e-6},
        ("norm", "ln_"),
        ("in B",),
    ),
    "the mask sees one token ahead": Fault(
        lambda model, size: _masked(model, *size),
        _MASKS,
        {"all tokens": (_ahead, 0), "one token": (_one_ahead, 0), "one token, the last layer": (_one_ahead, 1)},
        ("attn",),
        ("mask", "causal"),
    ),
    "the mask hides the first token": Fault(
        lambda model, size: _masked(model, *size),
        _MASKS,
        {"one token": (_without_first, 0), "one token, the last layer": (_without_first, 1)},
        ("attn",),
        ("mask", "causal"),
    ),
    "the cache's positions one late": Fault(_late, ("Llama", "Gemma 3", "GPT-2"), _BEHIND),
    "the cache's first entry unseen": Fault(_lost, ("Llama", "GPT-2", "Mixtral"), _BEHIND),
    "the sliding window one longer": Fault(
        lambda model, _tokens: _other_window(model, 1),
        ("Gemma 3",),
        {"24 tokens": 24, "12 tokens": 12, "9 tokens": 9},
        ("model", "self_attn"),
        ("other", "mask"),
        is_length=True,
    ),
    "the sliding window one shorter": Fault(
        lambda model, _tokens: _other_window(model, -1),
        ("Gemma 3",),
        {"24 tokens": 24, "12 tokens": 12, "8 tokens": 8},
        ("model", "self_attn"),
        ("other", "mask"),
        is_length=True,
    ),
    "the scale": Fault(_other_scale, ("Llama", "GPT-2"), _SHARES, ("attn",), ("scale",)),
    "QK norm left out": Fault(
        _without_norms,
        ("Qwen3", "Gemma 3"),
        {"of queries and keys": ("q_norm", "k_norm"), "of keys": ("k_norm",)},
        ("q_norm", "k_norm"),
    ),
    "the tied head untied": Fault(_untied, ("Gemma 3", "GPT-2", "T5"), _SHARES, ("lm_head",), ("weight",)),
    "experts in another order": Fault(_swapped, ("Mixtral", "Qwen2-MoE"), _FALLS, ("experts",), ("gate_up_proj",)),
    "of tied experts the first": Fault(
        _first_of_ties, ("Mixtral", "Qwen2-MoE"), {"all": None}, ("gate",), prepare=_tied_scores
    ),
    "positions count padding": Fault(_absolute, ("GPT-2",), {"5 tokens": 5, "1 token": 1}),
    "positions count padding, RoPE": Fault(_absolute, ("Llama", "Gemma 3"), {"5 tokens": 5}, is_honest=True),
}
