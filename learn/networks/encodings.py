"""The sizes of a network of attention, and its encodings by name: how heads know positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...convert.errors import SelectionError
from ..heads.content import Content
from ..heads.gaussian import Gaussian, IsotropicGaussian
from ..heads.learned import Learned
from ..heads.positions import Positions
from ..heads.sinusoidal import SinusoidalAbsolute, SinusoidalRelative


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of an attention network.

    Attributes:
        encoding: How heads know positions, which "+content" may follow.
        depth: Blocks.
        num_heads: Heads of each.
        hidden: Channels between blocks.
        feed_forward: Channels inside a feed-forward layer.
        padding: Pixels of zeros around the image that are keys, too.
        pixels: Rows, or columns, that become one first; 1 leaves the image as it is.
        spread: Standard deviation of the first centres of Gaussian heads, in pixels.
        key_dim: Dimension in which content is compared.
        sharpness: Factor of the first scores of positions: alpha of Gaussian heads, and how far the first scores of
            others are spread. The larger it is, the nearer a head's first attention is to one pixel.
    """

    encoding: str = "quadratic"
    depth: int = 6
    num_heads: int = 9
    hidden: int = 400
    feed_forward: int = 512
    padding: int = 0
    pixels: int = 2
    spread: float = 2.0
    key_dim: int = 400
    sharpness: float = 1.0


PAPER = AttentionSizes()
"""The widths of the paper's experiments on CIFAR-10."""

_POSITIONS: dict[str, Callable[[AttentionSizes, int], Positions]] = {
    "quadratic": lambda sizes, _: IsotropicGaussian(sizes.num_heads, alpha=sizes.sharpness, spread=sizes.spread),
    "gaussian": lambda sizes, _: Gaussian(sizes.num_heads, alpha=sizes.sharpness, spread=sizes.spread),
    "learned": lambda sizes, reach: Learned(sizes.num_heads, reach=reach, sharpness=sizes.sharpness),
    "sinusoidal": lambda sizes, reach: SinusoidalRelative(
        sizes.num_heads, longest=2.0 * reach, sharpness=sizes.sharpness
    ),
    "absolute": lambda sizes, reach: SinusoidalAbsolute(
        sizes.num_heads, longest=2.0 * reach, sharpness=sizes.sharpness
    ),
}
_CONTENT = "+content"
ENCODINGS = ("quadratic", "gaussian", "learned", "learned+content", "sinusoidal", "absolute")
"""Encodings that a comparison has; every encoding can also be asked for with "+content"."""


def heads_of(sizes: AttentionSizes, *, reach: int) -> tuple[Positions, Content | None]:
    """Scores of positions of a layer's heads, and of content, or None.

    Args:
        sizes: Sizes and encoding.
        reach: Most keys along an axis.

    Raises:
        SelectionError: There is no such encoding.
    """
    name = sizes.encoding.removesuffix(_CONTENT)
    if name not in _POSITIONS:
        known = ", ".join(_POSITIONS)
        raise SelectionError(f'there is no encoding {sizes.encoding!r}; there are {known}, each also with "{_CONTENT}"')
    content = None
    if name != sizes.encoding:
        content = Content(sizes.num_heads, sizes.hidden, key_dim=sizes.key_dim, reach=reach)
    return _POSITIONS[name](sizes, reach), content
