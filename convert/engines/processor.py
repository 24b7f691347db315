"""What moving numbers costs beside multiplying them, as measured on CPUs.

Costs of the forms of attention along an axis are in multiply-adds of a large matrix product. Moving a number takes as
long on every processor; how many products are done meanwhile depends on the numbers that a register holds.
"""

from __future__ import annotations

import torch

LANES = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8  # binary32 numbers in a register

MOVING = 2 * LANES  # reading, scaling and writing a pixel
REORDERING = 4 * LANES  # bringing the channels of a pixel together, and apart again
SHUFFLING = 5 * LANES // 2  # the same within one convolution
JOINING = 3 * LANES  # bringing a result of one block to those of the others
CONVOLVING = 2**18 * LANES  # one more convolution call
WIDEST_PADDING = 6 if LANES == 16 else 4  # columns of zeros up to which oneDNN convolves contiguous images fast
