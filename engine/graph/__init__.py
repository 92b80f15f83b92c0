"""ONNX graphs as files: small graph beside weights by reference, provenance on every node."""
