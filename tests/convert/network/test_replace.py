"""A converted network is not written by its library's ``save_pretrained``, which would lose its attention."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from conv2attn.convert import ConversionError, convert_model, load_converted, restore_model, save_converted
from conv2attn.learn.freezing import freeze
from conv2attn.learn.melting import melt


class Pretrained(nn.Module):
    """Saves itself, as networks of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 3, (3, 2))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return y

    def save_pretrained(self, folder: Path) -> str:
        return f"saved in {folder}"


@pytest.mark.parametrize("change", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_converted_or_melted_network_refuses_and_a_cnn_does_not(change: object, tmp_path: Path) -> None:
    assert callable(change)
    cnn = Pretrained()
    save_converted(convert_model(cnn).model, tmp_path / "made")
    loaded = load_converted(tmp_path / "made", architecture=Pretrained())
    for made in (convert_model(cnn).model, melt(cnn), loaded):
        with pytest.raises(ConversionError, match="save_converted or HubNetwork keeps a converted network"):
            change(made).save_pretrained("folder")
    melted = melt(nn.Sequential(cnn), alpha=2.0)
    plain: Any
    for plain in (cnn, restore_model(convert_model(cnn).model), freeze(melted, 0.1).model.get_submodule("0")):
        assert plain.save_pretrained("folder") == "saved in folder"
