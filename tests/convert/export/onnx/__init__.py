"""Tests of attention in ONNX files."""
