"""CNNs' files go into grafted networks by the loaders of timm, torchvision and transformers: make test-libraries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import conv2attn as c2a
from conv2attn.convert.layer.layer import SelfAttention
from tests.libraries import imported, timm_network, torchvision_network, transformers_network
from tests.small_models import with_trained_heads

pytestmark = pytest.mark.libraries
PICTURES = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32)


class Library(NamedTuple):
    """A library's network, and its own ways from and to files.

    Attributes:
        build: Makes the network.
        write: Writes a CNN to a path.
        load: Loads what was written into a network, strictly where the library does not compare keys on its own.
        where: Layers to graft.
    """

    build: Callable[[], nn.Module]
    write: Callable[[nn.Module, Path], None]
    load: Callable[[nn.Module, Path], Any]
    where: tuple[str, ...]


def load_by_timm(network: nn.Module, path: Path) -> Any:
    return imported("timm.models").load_checkpoint(network, str(path), strict=True)


def write_state(network: nn.Module, path: Path) -> None:
    torch.save(network.state_dict(), path)


def load_by_torchvision(network: nn.Module, path: Path) -> Any:
    """As its builders load what ``WeightsEnum.get_state_dict`` gives them, which reads a file so."""
    state = torch.hub.load_state_dict_from_url(path.as_uri(), model_dir=str(path.parent / "hub"), check_hash=False)
    return network.load_state_dict(state, strict=True)


def write_by_transformers(network: Any, path: Path) -> None:
    network.save_pretrained(path, max_shard_size="2KB")


def load_by_transformers(network: nn.Module, path: Path) -> Any:
    """Into a network that is there; the strict form compares the index of the shards with the network's own keys."""
    return imported("transformers.trainer_utils").load_sharded_checkpoint(network, str(path), strict=False)


LIBRARIES = {
    "timm": Library(timm_network, write_state, load_by_timm, ("layer2.0.conv2", "layer3.0.conv2")),
    "torchvision": Library(torchvision_network, write_state, load_by_torchvision, ("stage2.*.branch2.3", "conv5.0")),
    "transformers": Library(
        transformers_network,
        write_by_transformers,
        load_by_transformers,
        ("resnet.encoder.stages.1.layers.0.layer.*.convolution",),
    ),
}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> Library:
    return LIBRARIES[request.param]


def outputs(network: nn.Module) -> list[Tensor]:
    with torch.no_grad():
        return [leaf for leaf in tree_leaves(network.eval()(PICTURES)) if isinstance(leaf, Tensor)]


def heads(network: nn.Module) -> Iterator[SelfAttention]:
    return (module for module in network.modules() if isinstance(module, SelfAttention))


def grafted(library: Library, *, beside: bool = False) -> nn.Module:
    """A network with trained spare heads."""
    return with_trained_heads(c2a.graft(library.build(), where=library.where, beside=beside).model)


@pytest.mark.parametrize("beside", [False, True])
def test_a_cnn_s_file_loads_strictly_into_the_grafted_network(library: Library, beside: bool, tmp_path: Path) -> None:
    cnn, model = library.build(), grafted(library, beside=beside)
    library.write(cnn, tmp_path / "cnn")
    assert not all(map(torch.equal, outputs(model), outputs(cnn)))
    with pytest.warns(UserWarning, match="their W_out is 0 now"):
        library.load(model, tmp_path / "cnn")
    assert all(map(torch.equal, outputs(model), outputs(cnn)))


def test_a_grafted_network_s_file_gives_the_cnn_every_key_and_one_that_lacks_some_is_refused(
    library: Library, tmp_path: Path
) -> None:
    model, cnn = grafted(library), library.build()
    write_state(model, tmp_path / "grafted")
    missing, unexpected = cnn.load_state_dict(torch.load(tmp_path / "grafted"), strict=False)
    assert missing == []
    assert {key.rpartition(".")[2] for key in unexpected} >= {"spare_out", "spare_key"}
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in cnn.state_dict().items())
    state = model.state_dict()
    del state[next(key for key in state if key.endswith("spare_key"))]
    with pytest.raises(RuntimeError, match="spare_key"):
        grafted(library).load_state_dict(state)


def test_an_ungrafted_network_s_file_loads_strictly_into_the_cnn(library: Library, tmp_path: Path) -> None:
    bare, cnn = c2a.ungraft(grafted(library), all=True).model, library.build()
    library.write(bare, tmp_path / "bare")
    library.load(cnn, tmp_path / "bare")
    assert all(map(torch.equal, outputs(cnn), outputs(bare)))


def test_timm_builds_a_registered_graft_and_loads_a_cnn_s_file(tmp_path: Path) -> None:
    timm, registry = imported("timm"), imported("timm.models")

    def grafted_test_resnet(pretrained: bool = False, **options: Any) -> nn.Module:
        return c2a.graft(timm.create_model("test_resnet", **options), where="layer3.0.conv2", inplace=True).model

    grafted_test_resnet.__module__ = __name__
    registry.register_model(grafted_test_resnet)
    cnn = timm_network()
    write_state(cnn, tmp_path / "cnn.pth")
    options = {"num_classes": 3, "checkpoint_path": str(tmp_path / "cnn.pth")}
    model = timm.create_model("grafted_test_resnet", **options)
    assert [layer.spare is not None for layer in heads(model)] == [True]
    assert all(map(torch.equal, outputs(model), outputs(cnn)))
    again = timm.create_model("test_resnet", **options)
    assert all(map(torch.equal, outputs(again), outputs(cnn)))


def test_transformers_reads_a_folder_before_the_graft_and_is_refused_within_it(tmp_path: Path) -> None:
    """``from_pretrained`` builds its class without values, which heads of a class that grafts itself would lack."""
    cnn: Any = transformers_network()
    kind: Any = type(cnn)
    cnn.save_pretrained(tmp_path)
    model: Any = c2a.graft(kind.from_pretrained(tmp_path), where="*layers.0.layer.*.convolution").model
    assert all(map(torch.equal, outputs(model), outputs(cnn)))

    class Grafting(kind):  # type: ignore[misc]
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            c2a.graft(self, where="*layers.0.layer.*.convolution", inplace=True)

    with pytest.raises(c2a.ConversionError, match="on the meta device"):
        Grafting.from_pretrained(tmp_path)
    with pytest.raises(c2a.ConversionError, match="save_pretrained"):
        model.save_pretrained(tmp_path / "model")
    bare: Any = c2a.ungraft(model).model
    bare.save_pretrained(tmp_path / "bare")
    back, told = kind.from_pretrained(tmp_path / "bare", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert all(map(torch.equal, outputs(back), outputs(cnn)))


@pytest.mark.parametrize(
    ("name", "where", "is_kept"),
    [
        ("repvgg_a0", "stem.conv_kxk.conv", False),
        ("repvgg_a0", "stages.2.1.conv_1x1.conv", False),
        ("repvit_m0_9", "stages.2.blocks.0.token_mixer.conv.c", False),
        ("levit_128s", "stem.conv2.linear", False),
        ("repvit_m0_9", "stem.conv1.c", False),
        ("test_resnet", "layer2.0.conv2", True),
    ],
)
@pytest.mark.parametrize("is_trained", [False, True])
def test_timm_s_own_folding_keeps_heads_or_is_refused(name: str, where: str, is_kept: bool, is_trained: bool) -> None:
    cnn = imported("timm").create_model(name).eval()
    fold = imported("timm.utils.model").reparameterize_model
    model = c2a.graft(cnn, where=where).model
    for layer in heads(model):
        nn.init.constant_(layer.spare_out, 0.1 * is_trained)
    if is_kept:
        assert len(list(heads(fold(model)))) == 1
    else:
        with pytest.raises(c2a.ConversionError, match="ungraft"):
            fold(model)


def test_the_program_of_the_documents_runs(capsys: pytest.CaptureFixture[str]) -> None:
    imported("torchvision")
    text = (Path(__file__).parents[3] / "docs" / "graft.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(program, {})
    *layers, same = capsys.readouterr().out.splitlines()
    assert same == "True"
    assert ": 1 spare head (key width 128, value width 128) before the convolution" in layers[0]
