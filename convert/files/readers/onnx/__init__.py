"""ONNX models: walked as protocol buffers, never run."""
