"""Lightning's own loader reads a CNN's checkpoint into a module that grafts its network, strictly."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import conv2attn as c2a
from conv2attn.learn.comparison import small_cnn


def test_checkpoints_of_a_cnn_and_of_its_graft_go_into_both(tmp_path: Path) -> None:
    import lightning  # seconds, in each process that collects this file

    class OfCnn(lightning.LightningModule):
        """A CNN."""

        def __init__(self) -> None:
            super().__init__()
            self.net: nn.Module = small_cnn(classes=3)

        def written(self, path: Path) -> Path:
            """Writes what a loader reads of Lightning's checkpoints."""
            torch.save({"state_dict": self.state_dict(), "pytorch-lightning_version": lightning.__version__}, path)
            return path

    class OfGraft(OfCnn):
        """The same with spare heads."""

        def __init__(self) -> None:
            super().__init__()
            self.net = c2a.graft(self.net, where=["3", "9"]).model

    x: Tensor = torch.randn(4, 1, 9, 8)
    cnn = OfCnn().eval()
    grafted = OfGraft.load_from_checkpoint(cnn.written(tmp_path / "cnn.ckpt"), strict=True).eval()
    assert torch.equal(grafted.net(x), cnn.net(x))
    for name in ("3", "9"):
        nn.init.normal_(grafted.net.get_parameter(f"{name}.spare_out"))
    trained = grafted.written(tmp_path / "graft.ckpt")
    again = OfGraft.load_from_checkpoint(trained, strict=True).eval()
    assert torch.equal(again.net(x), grafted.net(x))
    assert not torch.equal(again.net(x), cnn.net(x))
    with pytest.warns(UserWarning, match="not in the model state dict"):
        back = OfCnn.load_from_checkpoint(trained, strict=False).eval()
    assert torch.equal(back.net(x), c2a.ungraft(grafted.net, all=True).model(x))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        OfCnn.load_from_checkpoint(trained, strict=True)
    with pytest.warns(UserWarning, match="no spare heads for 3, 9"):
        again.load_state_dict(cnn.state_dict())
    assert torch.equal(again.net(x), cnn.net(x))
