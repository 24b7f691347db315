"""What the certificate relies on."""

# Of the document; other files follow.
ORDER = (
    "tail",
    "error_bound",
    "smoothed_kernel",
    "rounding",
    "underflow",
    "accumulation",
    "propagation",
    "propagation_rules",
)
