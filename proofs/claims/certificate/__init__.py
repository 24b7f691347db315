"""What the certificate relies on."""

# Of the document; other files follow.
ORDER = (
    "tail",
    "error_bound",
    "smoothed_kernel",
    "frozen_kernel",
    "rounding",
    "underflow",
    "accumulation",
    "left_out",
    "propagation",
    "propagation_rules",
)
