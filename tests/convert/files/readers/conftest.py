"""Names in a graph of an ONNX model, and the tensors of a file that they stand for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from conv2attn.convert.files.readers.common.stored import OddTensor, Source, StoredTensor
from conv2attn.convert.files.readers.onnx.scopes import Known, Scope, Unknown

Put = Callable[..., Known]


@pytest.fixture
def scope(tmp_path: Path) -> Scope:
    (tmp_path / "m.onnx").touch()
    return Scope(Source(tmp_path / "m.onnx"))


@pytest.fixture
def put(scope: Scope, tmp_path: Path) -> Put:
    """Defines a name as a tensor of numbers."""

    def define(name: str, value: Any, note: str | None = None) -> Any:
        found = value
        if not isinstance(value, OddTensor | Unknown):
            tensor = torch.as_tensor(value)
            (tmp_path / name).write_bytes(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
            source = Source(tmp_path / name)
            found = StoredTensor.of(source.run(0, source.size), tensor.dtype, shape=list(tensor.shape))
        known = found if isinstance(found, Unknown) else Known(f"key of {name}", found, name, note)
        scope.define(name, known)
        return known

    return define
