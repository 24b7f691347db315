"""Signs of quantised weights, which are not read, in the names that files have for keys, classes and operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ...errors import CheckpointError, listed

_KEY = re.compile(
    r"(^|\.)(qweight|qzeros|SCB|zero_point|weight_scale(_inv)?|weight_zero_point|_packed_params(\..*)?"
    r"|weight\.(absmax|quant_map|nested_absmax|quant_state\..*))$"
)  # what PyTorch, bitsandbytes, GPTQ and others keep beside integers
_CLASS = re.compile(r"(torch\.(ao\.)?nn\.(\w+\.)*quantized\.|bitsandbytes\.|torchao\.)(?!.*FloatFunctional$)")
_OPERATION = re.compile(r"torch\.ops\.((?:quantized\w*|torchao)\.\w+)")

FLOAT_STATE = "save the float network's state dict, or dequantise it first"
FLOAT_EXPORT = "export the float network"


def quantised_keys(keys: Iterable[str]) -> list[str]:
    """Keys of a state dict that only quantised weights have."""
    return [key for key in keys if _KEY.search(key)]


def quantised_classes(kinds: Iterable[str]) -> list[str]:
    """Classes, by qualified names, that hold quantised weights; ``FloatFunctional`` lies among them and holds none."""
    return [kind for kind in kinds if _CLASS.match(kind)]


def quantised_operations(text: str) -> list[str]:
    """Operations on quantised numbers that a program names, each once."""
    return list(dict.fromkeys(_OPERATION.findall(text)))


def quantised(path: Path, advice: str, signs: Sequence[str]) -> CheckpointError:
    """The refusal of a file with quantised weights, by the signs that tell."""
    return CheckpointError(f"{path} holds quantised weights, which are not read: {advice} ({listed(signs, '; ')})")
