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

For "same": a single --arch is for the one of A and B that names no network, or
for both; of two, the first is A's, the second B's. An --arch-arg applies to both.

No --arch is needed for a Hugging Face folder, for the output of convert, or for
a network that the file itself contains: a .pt2 file, or a pickled network of
your own classes. Both of these need --trust. Without --arch, only the converted
layers of an ONNX file are written for PyTorch, not a whole network.
"""
PICTURES = """\
Pictures are preprocessed as the checkpoint, or the library (timm, torchvision,
transformers), specifies for this network. Without a specification, pixel values
are scaled to [-1, 1]. --mean and --std override both; they apply to pixel values
from 0 to 1. Most networks trained on ImageNet have

  --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225

Pictures (.png, .jpg, ...) and tensors (.npy, .pt, which are used as they are)
may be in the folder itself, in a subfolder for each class, or in such subfolders
within train, val and test. With subfolders for classes, accuracy is reported,
too.
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

  literal      as in the paper: every query scores every key; at 224x224
               all scores would take tens of GiB (conv2attn plan shows how
               many), so they are computed in parts
  separable    a softmax along rows and one along columns; their product is the
               attention. This engine shares no step with a convolution
  factored     blurs the input with the attention's softmax, then calls a
               convolution
  sdpa         F.scaled_dot_product_attention, with absolute positions
  auto         the default: the fastest engine that is exact for the layer. With
               the default alpha it calls the convolution, so speed and bits are
               the same

verify runs each layer in the engines "separable" and "auto", or in those that
--engine names, and compares it with its convolution. "Measured" is the largest
difference that was found; it is 0 if "auto" calls the convolution. The "worst
case" is proved, for any input within the range of the values that the layer
saw, and for any order of summation. So it is not 0 even for "auto": another
program may add in another order.
"""
TOPICS = {"arch": ARCH, "pictures": PICTURES, "layers": LAYERS, "engines": ENGINES}
"""Topics by their names."""
