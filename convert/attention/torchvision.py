"""Readers of torchvision's subclasses, which change the constructor and compute what their parents do."""

from __future__ import annotations

from .reader import Reader, build_in

for _name in ("Conv3DSimple", "Conv3DNoTemporal"):
    build_in(f"torchvision.models.video.resnet.{_name}", Reader())
