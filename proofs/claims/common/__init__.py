"""Parts that several claims share: scores, small convolutions and attention, heads beside a kernel, rounded sums."""
