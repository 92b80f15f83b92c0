"""Which toolchains need a rule: its ``needed_by`` against the version at hand. Reads no ONNX."""

from __future__ import annotations

from collections.abc import Mapping

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from engine.toolchain import DISTRIBUTION


def needs(needed_by: Mapping[str, str], module: str, version: str) -> bool:
    """Whether TensorRT ``version`` of ``module`` needs the rule. One that the rule does not name does not."""
    written = needed_by.get(DISTRIBUTION[module], "never")
    if written in ("*", "never"):
        return written == "*"
    return Version(version) in SpecifierSet(written)


def fault(written: str) -> str:
    """What is wrong with a version range, or nothing."""
    if written in ("*", "never"):
        return ""
    try:
        SpecifierSet(written)
    except InvalidSpecifier:
        return (
            f"'{written}' is no version range; write '*', 'never' or for example '< 8.6' or '>= 1.4, < 1.7'"
        )
    return ""
