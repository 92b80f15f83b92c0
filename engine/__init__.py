"""Portwright: declarative, proven ports from PyTorch through ONNX to TensorRT."""

__version__ = "0.1.0"
