"""The model card of a converted network: what it is, what is certified of it, and how to load it.

Everything in it is what ``report.json`` says, as text for people.
"""

from __future__ import annotations

from importlib import metadata

from ..certificate.wording import NO_USE
from ..files.architecture import Architecture
from ..files.report import CertifiedReport
from ..model.report import LayerReport

OURS = "<!-- Written by conv2attn from report.json; replaced whenever the network is saved. -->"

_TEXT = """{ours}

# A convolutional network as self-attention

{summary}

{count} of this network's layers are multi-head self-attention over pixels, with a quadratic relative positional
encoding. Each was constructed from a convolution's weights, by Theorem 1 of Cordonnier, Loukas and Jaggi, *On the
Relationship between Self-Attention and Convolutional Layers* (ICLR 2020,
[arXiv 1911.03584](https://arxiv.org/abs/1911.03584)):

> A multi-head self-attention layer with N_h heads of dimension D_h, output dimension D_out and a relative positional
> encoding of dimension D_p >= 3 can express any convolution of kernel size sqrt(N_h) x sqrt(N_h) and min(D_h, D_out)
> output channels.

Head h plays one kernel tap Delta_h: its probabilities are softmax(-alpha |delta - Delta_h|^2) over the pixels of the
padded input, and its values are multiplied by the kernel's slice at that tap. {parameters:,} numbers became
{attention_parameters:,}.

## Layers

| layer | geometry | heads | alpha | bound on the difference |
| --- | --- | --- | --- | --- |
{rows}

Bounds are between a layer and its convolution, on any one output, for inputs from {low:g} to {high:g}, rounding
included.{skipped}

## The whole network

{network}

## Loading

```python
from conv2attn.convert.export.hub import HubNetwork
{load}
```

`pip install "conv2attn[hub]"`, version {version}. Loading runs no code of this repository. Where nothing was trained
further, `restore_model(network.network)` gives back the convolutional network.
"""


def card_text(report: CertifiedReport, *, architecture: Architecture | None, repository: str) -> str:
    """The card's text, without the metadata above it; ``repository`` is where the network is loaded from."""
    layers = report.layers
    low, high = report.input_range
    return _TEXT.format(
        ours=OURS,
        summary=report.summary.in_words,
        count=len(layers),
        parameters=sum(layer.parameters_before for layer in layers),
        attention_parameters=sum(layer.parameters_after for layer in layers),
        rows="\n".join(map(_row, layers)),
        low=low,
        high=high,
        skipped="".join(f"\nNot converted: `{_cell(skip.name)}`, {_cell(skip.reason)}." for skip in report.skipped),
        network=_network(report),
        load=_load(architecture, repository),
        version=metadata.version("conv2attn"),
    )


def _row(layer: LayerReport) -> str:
    names = ", ".join(f"`{_cell(name) or '(the network)'}`" for name in layer.names)
    return f"| {names} | {_cell(str(layer.spec))} | {layer.heads} | {layer.alpha:g} | {_cell(layer.bound_in_words)} |"


def _network(report: CertifiedReport) -> str:
    network = report.network
    if network is None:
        return f"{NO_USE}."
    if network.bound is None:
        reasons = "; ".join(f"`{_cell(one.name) or '(the network)'}`: {_cell(one.reason)}" for one in network.unbounded)
        return f"No bound is known between its outputs and the convolutional network's: {reasons or 'see report.json'}."
    size = "x".join(map(str, network.size))
    return (
        "Bound on the difference between its outputs and the convolutional network's, for images of "
        f"{size} within that range: {network.in_words}."
    )


def _load(architecture: Architecture | None, repository: str) -> str:
    if architecture is None:
        return f"network = HubNetwork.from_pretrained({repository!r}, architecture=...)  # the CNN, as a new nn.Module"
    arguments = f", {architecture.arguments!r}" if architecture.arguments else ", {}"
    return (
        "from conv2attn.convert.files.architecture import Architecture\n\n"
        "# Building the CNN runs code of this name on your machine:\n"
        f"architecture = Architecture({architecture.spec!r}{arguments})\n"
        f"network = HubNetwork.from_pretrained({repository!r}, architecture=architecture)"
    )


def _cell(text: str) -> str:
    """Escapes a text for a table's cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("`", "'").replace("<", "&lt;")
