"""Convolutions whose geometry a file itself describes, so that they can be converted without the network's code."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...spec import ConvSpec


@dataclass(frozen=True)
class DescribedConvolution:
    """A convolution that a file describes.

    Attributes:
        weight: Key of its weight among the file's tensors.
        bias: Key of its bias, or None.
        spec: Its geometry, or None if no class of convolutions has it.
        problem: Why ``spec`` is None.
        note: Remark about its weights for the user, or None.
        original: The layer's name in the file, or None if it is the name used here.
    """

    weight: str
    bias: str | None
    spec: ConvSpec | None
    problem: str | None = None
    note: str | None = field(default=None, compare=False)
    original: str | None = field(default=None, compare=False)

    @classmethod
    def refused(cls, problem: str) -> DescribedConvolution:
        """A convolution that cannot be converted."""
        return cls("", None, None, problem)
