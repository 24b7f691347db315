"""Texts of ``conv2attn help TOPIC``, beside the help of commands."""

from __future__ import annotations

ARCH = """\
--arch says which network a checkpoint's weights belong to:

  timm:NAME                     a timm network: timm:resnet18
  torchvision.models:NAME       a torchvision network: torchvision.models:resnet18
  transformers:CLASS            a transformers network, with --arch-arg config='{...}'
  hf:FOLDER                     the network that a Hugging Face folder describes
  path/to/file.py:NAME          your own class or function; the file is run
  package.module:NAME           a class or function of an installed package

--arch-arg passes arguments: --arch-arg num_classes=10.

No --arch is needed for a Hugging Face folder, for the output of convert, and
for a network that is in the file itself (.pt2, or a pickled network of your own
classes, with --trust). Without --arch, an ONNX file gives its
attention layers alone, not a network.
"""
PICTURES = """\
Pictures are preprocessed as the network's authors do it, by the description in
the checkpoint or the library (timm, torchvision, transformers). Without one they
are scaled to [-1, 1]. --mean and --std override this, for values from 0 to 1;
most networks trained on ImageNet have

  --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225

Pictures (.png, .jpg, ..., .npy, .pt) may be in the folder itself, in a subfolder
for each class, or in such subfolders within train, val and test. With subfolders
for classes, accuracy is reported, too.
"""
LAYERS = """\
plan and convert choose layers with --include and --exclude, graft with --where;
each is repeatable and takes a name or a pattern:

  layer4.0.conv1       a layer's name, as plan shows it
  'layer4.*'           a glob over names
  're:layer[34]\\..*'   a regular expression that matches the whole name
"""
ENGINES = """\
Engines are ways to compute an attention layer, all with the same result:

  literal      as the paper writes it: every query scores every key; at 224x224
               this takes tens of GiB, which conv2attn plan tells
  separable    a softmax along rows and one along columns, whose product is the
               attention; it shares no step with a convolution
  factored     the attention's own softmax blurs the input, then a convolution
  sdpa         F.scaled_dot_product_attention, with absolute positions
  auto         the fastest that is exact for the layer: what a user runs. With
               the default alpha it calls the convolution: same speed, same bits

verify compares each layer with its convolution in "separable" and in "auto", or
in those of --engine. Measured is the largest difference that was seen: 0 where
"auto" calls the convolution. The worst case is proved for any input in the range
of the values that the layer saw, and any order in which its sums may be rounded.
"""
TOPICS = {"arch": ARCH, "pictures": PICTURES, "layers": LAYERS, "engines": ENGINES}
"""Topics by their names."""
