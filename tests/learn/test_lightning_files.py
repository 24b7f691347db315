"""Lightning's own loader reads a CNN's checkpoint into a module that grafts its network, strictly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lightning
import pytest
import torch
from torch import Tensor, nn

import conv2attn as c2a
from conv2attn.convert.layer.layer import SelfAttention
from conv2attn.learn.comparison import small_cnn


class OfCnn(lightning.LightningModule):
    """A CNN with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.net: nn.Module = small_cnn(classes=3)

    def training_step(self, x: Tensor, _: int) -> Tensor:
        """The loss of a batch."""
        loss: Tensor = self.net(x).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class OfGraft(OfCnn):
    """The same with spare heads."""

    def __init__(self) -> None:
        super().__init__()
        self.net = c2a.graft(self.net, where=["3", "9"]).model

    def heads(self) -> Iterator[SelfAttention]:
        """The layers with spare heads."""
        return (module for module in self.net.modules() if isinstance(module, SelfAttention))


def pictures() -> Tensor:
    return torch.randn(4, 1, 9, 8, generator=torch.Generator().manual_seed(0))


def fit(module: lightning.LightningModule, path: Path, **options: object) -> Path:
    """Trains for a few steps and writes Lightning's checkpoint."""
    trainer = lightning.Trainer(
        max_steps=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=path.parent,
    )
    trainer.fit(module, torch.utils.data.DataLoader(pictures(), batch_size=2))  # type: ignore[arg-type]
    trainer.save_checkpoint(path)
    return path


@pytest.mark.filterwarnings(r"ignore:`isinstance.treespec, LeafSpec:FutureWarning", "ignore::UserWarning:lightning")
def test_checkpoints_of_a_cnn_and_of_its_graft_go_into_both(tmp_path: Path) -> None:
    cnn = OfCnn()
    file = fit(cnn, tmp_path / "cnn.ckpt")
    grafted = OfGraft.load_from_checkpoint(file, strict=True).eval()
    assert torch.equal(grafted.net(pictures()), cnn.net.eval()(pictures()))
    trained = fit(grafted.train(), tmp_path / "graft.ckpt")
    assert not any(layer.spare_heads_are_off() for layer in grafted.heads())
    again = OfGraft.load_from_checkpoint(trained, strict=True).eval()
    assert torch.equal(again.net(pictures()), grafted.net.eval()(pictures()))
    back = OfCnn.load_from_checkpoint(trained, strict=False).eval()
    assert torch.equal(back.net(pictures()), c2a.ungraft(grafted.net, all=True).model(pictures()))
    with pytest.raises(RuntimeError, match="Unexpected key"):
        OfCnn.load_from_checkpoint(trained, strict=True)
    with pytest.warns(UserWarning, match="no spare heads for 3, 9"):
        again.load_state_dict(cnn.state_dict())
    assert torch.equal(again.net(pictures()), cnn.net(pictures()))
