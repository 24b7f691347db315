"""A CNN goes on as attention, and comes back: `python docs/melting_example.py`, a few minutes on two cores.

Each cell can be run by itself in editors that know `# %%`.
"""

# %% A CNN that knows the digits
from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import torch

from conv2attn.learn import freeze, melt, parameter_groups
from conv2attn.learn.comparison import small_cnn
from conv2attn.learn.data.datasets import load_data
from conv2attn.learn.recorder import AttentionRecorder
from conv2attn.learn.training.fit import fit
from conv2attn.learn.training.recipe import Recipe, evaluate

digits = load_data("digits")
folder = Path(tempfile.mkdtemp())
torch.manual_seed(0)
cnn = fit(small_cnn(), digits, Recipe(epochs=15, lr=3e-3), folder / "cnn").network
print(f"CNN: {evaluate(cnn, digits.validation)['accuracy']:.1%} of the validation images")

# %% The same function as attention, soft enough to learn
melted = melt(cnn)
print(f"melted: {evaluate(melted, digits.validation)['accuracy']:.1%}, before any step")

# %% Training, with any loop of PyTorch's, or with ours
recipe = Recipe(epochs=5, lr=1e-4, batch_statistics=False)
groups = partial(parameter_groups, lr=recipe.lr, weight_decay=recipe.weight_decay)
recorder = AttentionRecorder.of(melted, digits.validation.images[:4])
trained = fit(melted, digits, recipe, folder / "attention", groups=groups, recorder=recorder)
for record in trained.records:
    distances = ", ".join(f"{layer['distance']:.2f}" for layer in record["layers"].values())
    print(f"epoch {record['epoch']}: {record['validation']['accuracy']:.1%}, distances {distances}")

# %% Convolutions again
frozen = freeze(trained.network, tolerance=0.05)
for layer in frozen.layers:
    found = layer.certificate
    print(f"layer {layer.names[0]}: {found.kernel_size}, within {found.cut_off:.3f}, at borders {found.border:.2f}")
print(f"frozen: {evaluate(frozen.model, digits.validation)['accuracy']:.1%}")
