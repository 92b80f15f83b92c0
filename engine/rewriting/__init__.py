"""Repair ONNX files for a toolchain: ask it what it refuses, apply the rules that mend that, ask again."""
