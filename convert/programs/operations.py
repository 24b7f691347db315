"""The table of operations: what torch's are called in words, and what they round.

A row is for all names that an operation has in torch, before and behind its dispatcher. To add an operation, add a row;
bounds, which certificates need, are in a table of their own (``certificate/network/table.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import rounding
from .rounding import Errs, Products, Ran


@dataclass(frozen=True)
class Operation:
    """A row.

    Attributes:
        words: The operation in words; None where its own name says it.
        errs: Sizes of what it rounds, of its first result or of each; None where it is exact.
    """

    words: str | None = None
    errs: Callable[[Ran], Errs | Products | list[Errs]] | None = None

    @property
    def is_product(self) -> bool:
        """Whether it is a sum of products, whose sizes are found once for all runs."""
        return self.errs in rounding.PRODUCTS


_EXACT = """
view _unsafe_view reshape permute t transpose expand slice select unsqueeze squeeze clone detach alias relu
max_pool1d max_pool2d_with_indices max_pool3d_with_indices constant_pad_nd cat split split_with_sizes
unbind chunk _to_copy empty_like zeros zeros_like ones ones_like arange neg abs max min amax amin maximum
minimum copy unfold flip roll index index_select gather scatter stack as_strided zero empty lift_fresh
lift_fresh_copy new_empty new_zeros native_dropout dropout pixel_shuffle
pixel_unshuffle channel_shuffle repeat upsample_nearest1d upsample_nearest2d upsample_nearest3d
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d randn rand eq where masked_fill
masked_scatter masked_select diagonal diagonal_copy tril triu embedding reflection_pad1d reflection_pad2d
reflection_pad3d replication_pad1d replication_pad2d replication_pad3d sign sgn floor ceil round trunc sort topk
kthvalue median im2col narrow movedim slice_scatter select_scatter diagonal_scatter unfold_copy view_as_real
view_as_complex real imag _conj conj bernoulli grid_sampler_nearest cummax cummin split_copy slice_copy expand_copy
view_copy permute_copy unbind_copy squeeze_copy unsqueeze_copy histc bincount new_ones threshold hardshrink
fractional_max_pool2d max_unpool2d adaptive_max_pool2d adaptive_max_pool3d logical_not eye one_hot
"""
_ROUNDED_ONCE = """
rsub sqrt rsqrt reciprocal square pow exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
atan2 sinh cosh tanh erf erfc fmod remainder frac hypot addcmul addcdiv polar complex softshrink erfinv sinc
"""


def _rows(
    names: str, errs: Callable[[Ran], Errs | Products | list[Errs]] | None = None, words: str | None = None
) -> dict[str, Operation]:
    return dict.fromkeys(names.split(), Operation(words, errs))


OPERATIONS: dict[str, Operation] = {
    **_rows(_EXACT),
    **_rows(_ROUNDED_ONCE, rounding.rounded(1)),
    **_rows("hardsigmoid mish softplus logaddexp lerp log_sigmoid_forward asinh acosh atanh", rounding.rounded(2)),
    **_rows("var std linalg_vector_norm norm", rounding.rounded(2)),
    **_rows("silu hardswish sigmoid _fused_rms_norm", rounding.rounded(3)),
    **_rows("add sub", rounding.added),
    **_rows("mul div", rounding.multiplied),
    **_rows("clamp clamp_min clamp_max hardtanh", rounding.limited),
    **_rows("full full_like new_full scalar_tensor fill", rounding.filled),
    **_rows("leaky_relu _prelu_kernel elu", rounding.half_exact),
    **_rows("gelu", rounding.gelu),
    **_rows("logsumexp", rounding.log_sum),
    **_rows(
        "conv1d conv2d conv3d convolution _convolution mkldnn_convolution convolution_overrideable",
        rounding.convolution,
        "convolution",
    ),
    **_rows("conv_transpose1d conv_transpose2d conv_transpose3d", rounding.convolution, "transposed convolution"),
    **_rows("linear", rounding.linear, "linear"),
    **_rows("addmm", rounding.added_product, "linear"),
    **_rows("baddbmm", rounding.added_product),
    **_rows("mm bmm matmul", rounding.product, "matrix product"),
    **_rows("mv dot vdot", rounding.product),
    **_rows("avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d", rounding.average),
    **_rows("sum mean", rounding.total),
    **_rows("cumsum", rounding.cumulative),
    **_rows("prod cumprod", rounding.many),
    **_rows("var_mean", rounding.variance_and_mean),
    **_rows("_fft_r2c _fft_c2r _fft_c2c", rounding.transform),
    **_rows(
        "batch_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training",
        rounding.normalised,
        "batch norm",
    ),
    **_rows("layer_norm native_layer_norm", rounding.normalised, "layer norm"),
    **_rows("group_norm native_group_norm", rounding.normalised, "group norm"),
    **_rows("softmax _softmax _safe_softmax", rounding.softmax, "softmax"),
    **_rows("log_softmax _log_softmax", rounding.log_softmax, "log softmax"),
    **_rows("scaled_dot_product_attention", words="attention"),
    **_rows(
        "upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d "
        "_upsample_bilinear2d_aa _upsample_bicubic2d_aa",
        rounding.interpolated,
    ),
    **_rows("grid_sampler_2d", rounding.sampled),
}


def row(name: str) -> Operation | None:
    """The row of an operation by its name, or by that of the one that writes its result into its operand."""
    return OPERATIONS.get(name) or OPERATIONS.get(name.removesuffix("_"))


def in_words(name: str) -> str:
    """The name of one of torch's operations, in words."""
    found = row(name)
    return (found and found.words) or name.strip("_").replace("_", " ")
