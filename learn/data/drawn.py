"""The drawn images that the example networks were trained on: shapes and gratings, as many as are wanted."""

from __future__ import annotations

from ...convert.examples.images import CLASSES, HELD_OUT_SEED, IMAGE_SIZE, draw_images
from .images import ImageData, Split

TRAIN, VALIDATION, TEST = 2048, 1000, 1000
_TRAIN_SEED, _VALIDATION_SEED = 1_000, 2_000  # the example networks saw the images of seeds 0 to 29


def drawn(
    size: tuple[int, int] = IMAGE_SIZE, *, train: int = TRAIN, validation: int = VALIDATION, test: int = TEST
) -> ImageData:
    """Drawn images, [3, rows, columns] each, mostly from -1 to 1; those of the test are ``HELD_OUT_SEED``'s.

    Args:
        size: Rows and columns; 24 x 24 are those of the example networks.
        train: Images to learn from.
        validation: Images that choose.
        test: Images for the end.
    """
    counts = (train, _TRAIN_SEED), (validation, _VALIDATION_SEED), (test, HELD_OUT_SEED)
    parts = [Split(*draw_images(count, seed=seed, size=size)) for count, seed in counts]
    return ImageData("drawn", CLASSES, parts[0], parts[1], parts[2])
