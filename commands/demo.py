"""The main job on the embedded networks: convert, compare on held-out images, keep the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..convert.agreement.networks import Agreement, compare
from ..convert.agreement.report import certify_report
from ..convert.errors import OutputError
from ..convert.examples.images import draw_images
from ..convert.examples.networks import NETWORKS, load_example
from ..convert.files.architecture import Architecture
from ..convert.files.folder import save_converted
from ..convert.network.convert import convert_model
from ..convert.write import PAGE, check_target, file_system_errors
from ..show.page.write import make_page
from ..show.text import Table
from .terminal import Done
from .verify_network import layers_shown, networks_table

DEFAULT_FOLDER = Path("conv2attn-demo")
ENGINES = ("literal", "factored")  # the definition, and what "auto" takes
PASSES = len(NETWORKS) * (1 + len(ENGINES))  # how often each image is seen: by the CNN, and by each engine


def run_demo(folder: Path, *, count: int, seed: int, progress: Callable[[int], None]) -> Done:
    """Converts each example network into a folder in ``folder``, and runs it beside the CNN on drawn images."""
    targets = {name: folder / name for name in NETWORKS}
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file; the output is a folder")
    with file_system_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    for target in targets.values():
        check_target(target, force=True)
    images, labels = draw_images(count, seed=seed)
    found, parts, agreements = list[dict[str, Any]](), list[Table | str](), list[Agreement]()
    for name, target in targets.items():
        cnn = load_example(name)
        attention, report = convert_model(cnn)
        agreement = compare(cnn, attention, images, labels, engines=ENGINES, progress=progress)
        architecture = Architecture(f"{NETWORKS[name].__module__}:{NETWORKS[name].__name__}")
        low, high, rows, columns = float(images.min()), float(images.max()), *images.shape[2:]
        certified = certify_report(attention, report, input_range=(low, high), size=(rows, columns))
        certified = replace(certified, comparison=agreement.engines[0].layers)
        title = f"The {name} example network"
        page = make_page(attention, report, title=title, agreement=agreement, summary=certified.summary)
        save_converted(attention, target, report=certified, architecture=architecture, page=page.text, force=True)
        shown = target / PAGE
        found.append({"network": name, "folder": str(target), "page": str(shown), **asdict(agreement)})
        agreements.append(agreement)
        parts += [*layers_shown(name, agreement), networks_table(agreement)]
        parts += [f"Wrote {target}; open {shown} to look at it", ""]
    # the conclusion of all networks
    engines = [engine for agreement in agreements for engine in agreement.engines]
    layers = [layer for engine in engines for layer in engine.layers]
    beyond = sum(not layer.own <= layer.bound for layer in layers)
    agreed = min(engine.top1_agreement or 0.0 for engine in engines)
    what = f"{beyond} layers are beyond their worst case" if beyond else "every layer is within its proven worst case"
    conclusion = f"{what}, and attention gives the CNN's class for {agreed:.1%} of the images."
    parts += [f"Seed of the images: {seed}", f"In {len(agreements)} networks {conclusion}", *_NEXT]
    return Done({"seed": seed, "networks": found}, parts)


_NEXT = (
    "Next:",
    "    conv2attn show --article                               # the idea, to play with",
    "    conv2attn prove --show head-assembly                   # Theorem 1, with its proof",
    "    conv2attn convert weights.pth --arch timm:resnet18     # a network of yours",
)
