"""A batch of CIFAR-10 in the form of Python's pickle, read by an unpickler that knows NumPy's arrays and nothing else.

The dictionary in it holds an array of bytes, "data", and a list of numbers, "labels".
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...convert.errors import CheckpointError

_KNOWN = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): np.ones(1).__reduce__()[0] for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _Arrays(pickle.Unpickler):
    """Reads arrays and plain data, and refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        """The function or class of a name."""
        if (module, name) not in _KNOWN:
            raise CheckpointError(f"it asks for {module}.{name}")
        return _KNOWN[module, name]


def read_pickled_batch(content: bytes, name: str, *, numbers: int) -> tuple[Tensor, Tensor]:
    """Images [count, numbers] of uint8 and labels [count].

    Args:
        content: The pickle.
        name: The batch's name, for errors.
        numbers: How many an image has.

    Raises:
        CheckpointError: It is damaged, or no batch of images.
    """
    try:
        batch = _Arrays(io.BytesIO(content), encoding="latin1").load()
    except CheckpointError as error:
        raise CheckpointError(f"{name} is not a batch of CIFAR-10: {error}") from error
    except Exception as error:  # of any kind, for a damaged pickle
        raise CheckpointError(f"{name} is cut short or damaged") from error
    data, labels = (batch.get("data"), batch.get("labels")) if isinstance(batch, dict) else (None, None)
    is_rows = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2 and data.shape[1] == numbers
    if not is_rows or not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise CheckpointError(f"{name} is not a batch of CIFAR-10: it holds no array of bytes with a list of labels")
    return torch.from_numpy(np.ascontiguousarray(data)), torch.tensor(labels, dtype=torch.int64)
