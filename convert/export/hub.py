"""Converted networks on the Hugging Face Hub, by huggingface_hub's own conventions (the extra ``hub``).

    network = c2a.HubNetwork(converted, built_by="torchvision.models:resnet18")
    network.save_pretrained("folder")                      # or network.push_to_hub("user/name")
    network = c2a.HubNetwork.from_pretrained("user/name")

A repository holds what ``save_converted`` writes, and a model card. What is loaded is read as any folder of ours is:
tensors and JSON, never code.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from ..agreement.report import CertifiedReport, certify_report
from ..errors import ToolError, importing
from ..files.architecture import Architecture
from ..files.folder import save_converted
from ..files.open import load_converted
from ..layer.checked import checked_model
from ..listed import ListedModule
from ..network.report import Report
from ..write import CONFIG, REPORT, WEIGHTS

with importing("huggingface_hub", ToolError('the Hub needs huggingface_hub: pip install "conv2attn[hub]"')):
    from huggingface_hub import ModelCard, ModelHubMixin, snapshot_download

_CARD = "README.md"
_OURS = "<!-- Written by conv2attn from report.json; replaced whenever the network is saved. -->"
_TEXT = """{ours}

# A convolutional network as self-attention

{summary}

Each layer was constructed from a convolution's weights by Theorem 1 of [arXiv 1911.03584](https://arxiv.org/abs/1911.03584).
`report.json` has every layer's geometry, heads, alpha, and the bound on its difference from the convolution.

```python
{load}
```

`pip install "conv2attn[hub]"`, version {version}. No code of this repository is run.
"""


class HubNetwork(
    ListedModule,
    ModelHubMixin,
    library_name="conv2attn",
    tags=["self-attention", "convolution", "positional-encoding", "arxiv:1911.03584"],
):
    """A converted network with ``save_pretrained``, ``from_pretrained`` and ``push_to_hub``.

    Args:
        network: A network with attention layers.
        built_by: How its CNN is built, for those who load it: a name as ``--arch`` takes it, or a recipe.

    Attributes:
        network: As above; ``forward`` is its.
        built_by: As above.

    Examples:
        >>> model, _ = c2a.convert_model(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()))
        >>> c2a.HubNetwork(model).eval()(torch.zeros(1, 3, 8, 8)).shape
        torch.Size([1, 8, 6, 6])
    """

    def __init__(self, network: nn.Module, *, built_by: Architecture | str | None = None) -> None:
        super().__init__()
        self.network = checked_model(network, "network")
        self.built_by = Architecture(built_by) if isinstance(built_by, str) else built_by

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the network."""
        return self.network(*args, **kwargs)

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """As in huggingface_hub; what cannot be saved leaves the folder as it was.

        Raises:
            OutputError: As ``save_converted``.
        """
        config = Path(save_directory) / CONFIG
        before = config.read_bytes() if config.is_file() else None
        try:
            done: str | None = super().save_pretrained(save_directory, **options)
        except BaseException:
            if before is not None:
                config.write_bytes(before)  # huggingface_hub removes it first
            raise
        return done

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """The card: the report's summary, and how to load the network."""
        return self._card(certify_report(self.network, Report.of(self.network)), kwargs.get("repo_id"))

    def _card(self, report: CertifiedReport, repository: str | None) -> ModelCard:
        about, load = self._hub_mixin_info.model_card_data.to_yaml(), _loading(self.built_by, repository or "USER/NAME")
        text = _TEXT.format(ours=_OURS, summary=report.summary.in_words, load=load, version=version("conv2attn"))
        return ModelCard(f"---\n{about}\n---\n\n{text}")

    def _save_pretrained(self, save_directory: Path) -> None:
        """Writes our files and the card beside whatever else is there; a card that is not ours stays.

        Raises:
            OutputError: As ``save_converted``; then no file of it is there.
        """
        folder = Path(save_directory)
        report = certify_report(self.network, Report.of(self.network))
        card = folder / _CARD
        with TemporaryDirectory(prefix=".conv2attn-", dir=folder) as temporary:
            made = Path(temporary) / "made"
            save_converted(self.network, made, report=report, architecture=self.built_by)
            if not card.exists() or _OURS in card.read_text(encoding="utf-8", errors="replace"):
                self._card(report, None).save(made / _CARD)
            for path in sorted(made.iterdir()):
                os.replace(path, folder / path.name)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        architecture: nn.Module | Architecture | str | None = None,
        **options: Any,
    ) -> HubNetwork:
        """Reads a folder or a repository.

        Args:
            model_id: A folder here, or a repository of the Hub.
            revision: As in huggingface_hub; so are the four that follow.
            cache_dir: Likewise.
            force_download: Likewise.
            local_files_only: Likewise.
            token: Likewise.
            architecture: The CNN as a new network, or how to build one; ``load_converted`` says when it is needed.
            **options: None are known.

        Raises:
            TypeError: An option that is not known.
            ConversionError: As ``load_converted``.
        """
        if options:
            raise TypeError(f"from_pretrained has no option {', '.join(sorted(options))}")
        folder = model_id
        if not os.path.isdir(model_id):
            folder = snapshot_download(
                repo_id=model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=[CONFIG, WEIGHTS, REPORT],
            )
        built_by = None if isinstance(architecture, nn.Module) else architecture
        return cls(load_converted(folder, architecture=architecture), built_by=built_by)


def _loading(built_by: Architecture | None, repository: str) -> str:
    found = f"from conv2attn import HubNetwork\n\nnetwork = HubNetwork.from_pretrained({repository!r}, architecture="
    if built_by is None:
        return f"{found}...)  # the CNN, as a new nn.Module"
    made = f"Architecture({built_by.spec!r}, {dict(built_by.arguments)!r})"
    return f"from conv2attn.convert.files.architecture import Architecture\n{found}{made})"
