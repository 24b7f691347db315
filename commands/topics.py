"""Texts of ``conv2attn help TOPIC``, beside the help of commands."""

from __future__ import annotations

ARCH = """\
--arch says which network a checkpoint's weights belong to:

  timm:NAME                     a network of timm: timm:resnet18
  torchvision.models:NAME       one of torchvision: torchvision.models:resnet18
  transformers:CLASS            one of transformers, with --arch-arg config='{...}'
  hf:FOLDER                     what a Hugging Face folder's config.json describes
  path/to/file.py:NAME          a class or function of yours; this runs the file
  package.module:NAME           the same, of an installed package

--arch-arg passes arguments: --arch-arg num_classes=10.

No --arch is needed for a Hugging Face folder, for the output of convert, and
for a network that is in the file itself (.pt2, or a pickled network of your own
classes, with --trust). Of an ONNX file without --arch, the layers are converted.
"""
PICTURES = """\
Pictures are prepared as the network's owner prepares them: by the description
in the checkpoint or the library (timm, torchvision, transformers), else scaled
to [-1, 1]. --mean and --std take their place, for values from 0 to 1; most
networks trained on ImageNet have

  --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225

A folder's pictures (.png, .jpg, ..., .npy, .pt) may lie in it, in a folder for
each class, or in such folders within train, val and test. With folders for
classes, accuracy is reported too.
"""
LAYERS = """\
--include, --exclude and --where choose layers by name, each repeatable:

  layer4.0.conv1       a layer's name, as plan shows it
  'layer4.*'           a glob over names
  're:layer[34]\\..*'   a regular expression for all of the name
"""
TOPICS = {"arch": ARCH, "pictures": PICTURES, "layers": LAYERS}
"""Topics by their names."""
