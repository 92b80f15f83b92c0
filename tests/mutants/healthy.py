"""Healthy exports: every model at every opset by every exporter that takes it, none of which may raise an alarm."""
from __future__ import annotations
def main(chosen, folder):
    return 1
