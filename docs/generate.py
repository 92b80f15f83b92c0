"""Write docs/recipe-reference.md from schemas/recipe.schema.json: ``python docs/generate.py [--check]``.

Defaults are those that a plan of the smallest recipe is given, so they cannot differ from the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine import intake, schema  # noqa: E402
from engine.diff.compare import resolved  # noqa: E402

TARGET = ROOT / "docs" / "recipe-reference.md"
SMALLEST = ROOT / "tests" / "recipes" / "accept" / "small.yaml"
SCHEMA = schema.load("recipe")
HEAD = """\
# Recipe reference

<!-- Written by `make docs` from schemas/recipe.schema.json; do not edit. -->

A recipe is a YAML file, `recipes/NAME/recipe.yaml`. Unknown keys are refused. Scalars follow YAML 1.2: `no`, `on`
and `12:30` are text, `1e-3` is a number. Anchors, aliases and tags are not part of the language.
`portwright schema` prints the schema for editors; the first line of a recipe points them at it:

    # yaml-language-server: $schema=../../schemas/recipe.schema.json
"""


def whole(node: dict[str, Any]) -> dict[str, Any]:
    """A schema node with its ``$ref`` and its conditional part filled in."""
    if "$ref" in node:
        node = {**SCHEMA["$defs"][node["$ref"].rsplit("/", 1)[-1]], **node}
    return node


def kind(node: dict[str, Any]) -> str:
    """The type of a value in words, with its limits."""
    if "const" in node:
        return f"`{node['const']}`"
    choices = node.get("enum") or node.get("then", {}).get("enum")
    parts = [" or ".join(f"`{word}`" for word in choices)] if choices else []
    names = {"object": "mapping", "array": "list", "string": "text", "integer": "whole number", "number": "number",
             "boolean": "`true` or `false`"}  # fmt: skip
    kinds = node.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    limits = [f"{sign} {node[key]:g}" for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"))
              if key in node]  # fmt: skip
    limit = f" {', '.join(limits)}" if limits else ""
    parts += [names[word] + (limit if word in ("integer", "number") else "") for word in kinds
              if not (choices and word == "string")]  # fmt: skip
    items = whole(node["items"]) if "items" in node else {}
    of = f" of {kind(items)}" if items and "properties" not in items else " of mappings" if items else ""
    return " or ".join(parts) + of


def children(node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Suffix of the path, schema and whether it must be there, of what may stand in ``node``."""
    for part in (node, node.get("else", {})):
        for key, child in part.get("properties", {}).items():
            yield f".{key}", whole(child), key in part.get("required", [])
    if isinstance(node.get("additionalProperties"), dict):
        yield ".NAME", whole(node["additionalProperties"]), False
    items = whole(node["items"]) if "items" in node else {}
    if "properties" in items:
        yield "[]", items, False


def rows(path: str, node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    for suffix, child, required in children(node):
        yield path + suffix, child, required
        yield from rows(path + suffix, child)


def example(key: str, node: dict[str, Any]) -> str:
    value = node["examples"][0]
    flow = None if isinstance(value, dict | list) else False
    text = yaml.safe_dump({key: value}, sort_keys=False, default_flow_style=flow, width=100)
    return "```yaml\n" + text + "```"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def section(key: str, node: dict[str, Any], required: bool, defaults: dict[str, Any]) -> str:
    default = f"; default `{defaults[key]}`" if key in defaults else ""
    first = f"{kind(node)[:1].upper()}{kind(node)[1:]}, {'required' if required else 'optional'}{default}."
    parts = [f"## {key}", first, node["description"], example(key, node)]
    table = [f"| `{path}` | {cell(kind(child))} | {'required' if must else mark(path, defaults)} | {about(child)} |"
             for path, child, must in rows(key, node)]  # fmt: skip
    if table:
        parts.append("\n".join(["| key | value | | |", "|---|---|---|---|", *table]))
    return "\n\n".join(parts)


def about(node: dict[str, Any]) -> str:
    """The description, with an example where one value says it."""
    value = node["examples"][0]
    plain = "" if isinstance(value, dict | list) or "enum" in node else f" Example: `{value}`."
    return cell(node["description"] + plain)


def mark(path: str, defaults: dict[str, Any]) -> str:
    return f"default `{defaults[path]}`" if path in defaults else ""


def default_values() -> dict[str, Any]:
    view = resolved(*intake.make_plan(SMALLEST))
    found = {}
    for path in view.defaults:
        value: Any = view.data
        for part in path.split("."):
            value = value[part]
        found[path] = value
    return found


def page() -> str:
    defaults = default_values()
    sections = [section(key, whole(node), key in SCHEMA["required"], defaults)
                for key, node in SCHEMA["properties"].items()]  # fmt: skip
    return "\n\n".join([HEAD.rstrip("\n"), *sections]) + "\n"


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        current = TARGET.read_text(encoding="utf-8") if TARGET.exists() else ""
        print(f"{TARGET.relative_to(ROOT)}: {'in step' if current == text else 'out of step; run make docs'}")
        return 0 if current == text else 1
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET.relative_to(ROOT)}: {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
