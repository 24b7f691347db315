"""Networks of attention as ONNX files: no Conv node, and nothing of conv2attn's is needed to run them."""
