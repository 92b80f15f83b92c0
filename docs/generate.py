"""Write what the schema and the rule files say as documentation: ``python docs/generate.py [--check]``.

docs/recipe-reference.md comes from schemas/recipe.schema.json, docs/rewrites.md from rewrites/*.yaml. Defaults are those that a plan of the smallest recipe is given, so they cannot differ from the code.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from engine import intake, schema  # noqa: E402
from engine.diff.compare import resolved  # noqa: E402
from engine.rules import summary  # noqa: E402
from engine.rules.summary import Summary  # noqa: E402

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

RULES_HEAD = """\
# Rewrite rules

<!-- Written by `make docs` from rewrites/*.yaml; do not edit. -->

What ships in `rewrites/`, each rule under the same five headings. [Writing rules](rules.md) says how a rule is made,
proven and chosen; `portwright explain RULE` prints one with its pattern and conditions. Every application is proven on
the graph that it changes.

The limit of a tolerance is what two numbers may differ by: *absolute*; *relative* to the number before; *roundings of the
type*, each 2**-23 of the number in float32 and 2**-10 in float16, for numbers below 1 of 1. Several are added. Whole
numbers must be equal, 8-bit ones within the absolute limit, and NaN and infinity must stand at the same places for every
input that the proof tries.
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


def rewrites() -> str:
    rules = summary.read_all()
    index = [
        f"| [{rule.name}](#{rule.name}) | {', '.join(rule.ops) or rule.types_text()} | {rule.needed_text()} | {rule.tolerance} |"
        for rule in rules
    ]
    table = "\n".join(["| rule | operators | needed by | tolerance |", "|---|---|---|---|", *index])
    return "\n\n".join([RULES_HEAD.rstrip("\n"), table, *map(about_rule, rules)]) + "\n"


def about_rule(rule: Summary) -> str:
    parts = [f"## {rule.name}", f"For {', '.join(rule.ops) or rule.types_text()}, opset {rule.opset}."]
    for heading, said in rule.headings():
        parts += [f"### {heading}", escaped(said)]
    return "\n\n".join(parts)


def escaped(text: str) -> str:
    """Names with underscores and products stay as they are written."""
    return re.sub(r"([*_<>\[\]])", r"\\\1", text)


PAGES = {"recipe-reference.md": page, "rewrites.md": rewrites}


def main() -> int:
    stale = False
    for name, make in PAGES.items():
        target, text = ROOT / "docs" / name, make()
        if "--check" in sys.argv:
            current = target.read_text(encoding="utf-8") if target.exists() else ""
            stale |= current != text
            print(f"docs/{name}: {'in step' if current == text else 'out of step; run make docs'}")
        else:
            target.write_text(text, encoding="utf-8")
            print(f"docs/{name}: {len(text.splitlines())} lines")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
