r"""The certificate.

How far can a layer and its convolution differ, computed in floating point, for every image within a range? By

```math
|\mathrm{fl}(\operatorname{Attention}) - \mathrm{fl}(\operatorname{Conv})|
\le |\operatorname{Attention} - \operatorname{Conv}|
+ |\mathrm{fl}(\operatorname{Attention}) - \operatorname{Attention}|
+ |\mathrm{fl}(\operatorname{Conv}) - \operatorname{Conv}| ,
```

for each output channel. The first term, the tail, is the smaller of `error-bound` and `smoothed-kernel` for each pair
of channels. The others are rounding: of sums (`rounded-sum`), of soft attention over any number of keys
(`key-accumulation` and its lemmas), and what underflow adds (`underflow-errors`). `certify` adds the three up;
`alpha_for` finds an alpha that is certified for a tolerance while its predecessor is not; the program of
`conv2attn check` recomputes the `bound` of each layer in the exact regime whose alpha is a power of two, and nothing
else of a report. `error-propagation` carries bounds through a network, and `frozen-kernel` bounds how far attention is
from a convolution after training.

A term of a sum goes through this many roundings, for $n$ axes, $K^n$ taps, $C_{in}$ channels and $g$ groups:

| operation | layer in float64 or float32 | layer in float16 or bfloat16 |
| --- | --- | --- |
| convolution | $K^n C_{in} / g + 1$ | as many in float32, then one to the layer's dtype |
| transposed convolution | $K^n C_{in} / g + 1$ | the same, and one for each tap and the bias |
| one-hot attention: literal, separable and sdpa engine | $C_{in} / g + K^n$ | as many in float32, then one |
| one-hot attention: factored engine, or separable with trained positions | the convolution's | the convolution's |
| soft attention: scores where $\alpha$ is a power of two | none (`exact-scores`) | none |
| soft attention: other scores | as in `score-rounding`, in float64 | the same |
| soft attention: probabilities | as in `softmax-rounding`; tables along an axis in float64 | the same |
| soft attention: sum over keys | bounded without their number (`key-accumulation`) | the same, in float32 |
"""

ORDER = (  # of the document
    "tail",
    "rounding",
    "accumulation",
    "underflow",
    "propagation",
    "operation_roundings",
    "ranges",
    "frozen_kernel",
)
