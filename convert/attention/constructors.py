"""Readers of subclasses that change the constructor, and compute what their parents do."""

from __future__ import annotations

from .reader import Reader, build_in

for _name in (
    "torchvision.models.video.resnet.Conv3DSimple",
    "torchvision.models.video.resnet.Conv3DNoTemporal",
    "ultralytics.nn.modules.conv.DWConvTranspose2d",
    "mmcv.cnn.bricks.wrappers.Conv2d",
    "mmcv.cnn.bricks.wrappers.Conv3d",
    "mmcv.cnn.bricks.wrappers.ConvTranspose2d",
    "mmcv.cnn.bricks.wrappers.ConvTranspose3d",
):
    build_in(_name, Reader())
