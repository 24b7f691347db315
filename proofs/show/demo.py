"""The main job on the embedded networks: convert, compare on held-out images, keep the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ...convert.errors import OutputError
from ...convert.examples.images import HELD_OUT_SEED, draw_images
from ...convert.examples.networks import NETWORKS
from ...convert.examples.pretrained import load_example
from ...convert.files.architecture import Architecture
from ...convert.files.folder import save_converted
from ...convert.files.report import certify_report
from ...convert.files.write import PAGE, check_target
from ...convert.model.convert import convert_model
from ..evidence.agreement import Agreement, compare
from ..evidence.tables import agreement_shown
from ..terminal.table import Table
from .page.write import viewer_page

DEFAULT_FOLDER = Path("conv2attn-demo")
DEFAULT_IMAGES = 1000
ENGINES = ("literal", "factored")  # the definition, and what "auto" takes
PASSES = len(NETWORKS) * (1 + len(ENGINES))  # how often each image is seen: by the CNN, and by each engine


@dataclass(frozen=True)
class DemoResult:
    """The demo's result for one network.

    Attributes:
        network: Name of the example network.
        folder: Folder of its attention.
        agreement: The comparison.
    """

    network: str
    folder: Path
    agreement: Agreement

    @property
    def page(self) -> Path:
        """Path of its page."""
        return self.folder / PAGE

    def to_json(self) -> dict[str, Any]:
        """The result as plain data."""
        return {"network": self.network, "folder": str(self.folder), "page": str(self.page), **asdict(self.agreement)}


@dataclass(frozen=True)
class Demo:
    """The demo's results.

    Attributes:
        seed: Seed of the images.
        results: One for each network.
    """

    seed: int
    results: tuple[DemoResult, ...]
    exit_code: ClassVar[int] = 0

    def to_json(self) -> dict[str, Any]:
        """The demo as plain data."""
        return {"seed": self.seed, "networks": [result.to_json() for result in self.results]}

    def shown(self) -> Iterator[Table | str]:
        """The demo as tables and lines."""
        for result in self.results:
            yield from agreement_shown(result.network, result.agreement)
            yield from (f"Wrote {result.folder}; open {result.page} to look at it", "")
        yield f"Seed of the images: {self.seed}"


def run_demo(
    folder: Path,
    *,
    count: int = DEFAULT_IMAGES,
    seed: int = HELD_OUT_SEED,
    progress: Callable[[int], None] = lambda _: None,
) -> Demo:
    """Converts each example network and runs it beside the CNN, in the literal and the factored engine.

    Args:
        folder: Where the converted networks go, a folder each; earlier ones are replaced.
        count: Images to draw.
        seed: Seed of the images; the default ones were not used in training.
        progress: Called with the number of images that one network has just seen, ``PASSES * count`` in all.

    Raises:
        OutputError: The folder cannot be written.
    """
    targets = {name: folder / name for name in NETWORKS}
    with _prepared(folder, targets):
        images, labels = draw_images(count, seed=seed)
        results = []
        for name, target in targets.items():
            cnn = load_example(name)
            attention, report = convert_model(cnn)
            agreement = compare(cnn, attention, images, labels, engines=ENGINES, progress=progress)
            architecture = Architecture(f"{NETWORKS[name].__module__}:{NETWORKS[name].__name__}")
            low, high, rows, columns = float(images.min()), float(images.max()), *images.shape[2:]
            certified = certify_report(attention, report, input_range=(low, high), size=(rows, columns))
            certified = replace(certified, comparison=agreement.engines[0].layers)
            title = f"The {name} example network"
            page = viewer_page(attention, report, title=title, agreement=agreement, summary=certified.summary)
            save_converted(attention, target, report=certified, architecture=architecture, page=page, force=True)
            results.append(DemoResult(name, target, agreement))
    return Demo(seed, tuple(results))


@contextmanager
def _prepared(folder: Path, targets: dict[str, Path]) -> Iterator[None]:
    """Makes sure, before the work, that its result can be written; a new folder that stays empty is removed again."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        for target in targets.values():
            check_target(target, force=True)
        yield
    finally:
        if is_new:
            with suppress(OSError):  # it holds something
                folder.rmdir()
