"""Where models come from: PyTorch modules of every kind, and ONNX files."""
