"""The structure that the code must keep: layers, sizes, and what the light commands may import."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGINE = ROOT / "engine"

# From the bottom up. A module may import from its own line or from lines above it in this table.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("__init__", "errors", "values", "plain", "paths", "digests"),
    ("hints", "document", "yaml_data", "process_memory", "worker", "installed", "compatibility"),
    ("schema", "process", "fused_plan", "annotations", "extends", "writing"),
    ("recipe", "toolchain", "toolchains", "refusals", "needed", "comparison", "stress_names", "rule_files"),
    ("claims", "waivers", "plan", "plan_inputs", "plan_model", "arrays", "customer", "watched"),
    ("needs", "store"),
    ("keys",),
    ("reuse",),
    ("meaning", "checks", "origins", "samples", "compare", "origin", "wording"),
    (
        "runtime",
        "torch_model",
        "torch_values",
        "model_state",
        "traced",
        "graph",
        "stress",
        "divergence",
        "sensitivity",
        "exact",
    ),
    ("rules", "precision", "sources"),
    ("quantize",),
    ("rewriting", "diagnosis"),
    ("exporters", "reference"),
    ("types_proof", "modes_proof"),
    ("steps",),
    ("reruns", "ordering"),
    ("formatting", "auto_rules", "recipe_patch"),
    ("record",),
    ("workspace",),
    ("host",),
    ("accept", "breaches", "half_sums", "why"),
    ("lock",),
    ("diff",),
    ("interpret", "reproduce", "locking"),
    ("report_tables",),
    ("report",),
    ("intake", "route"),
    ("diagnosing",),
    ("searching",),
    ("initial", "upgrade"),
    ("commands",),
    ("cli",),
)
HEAVY = {
    "torch",
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "onnxsim",
    "onnx_graphsurgeon",
    "tensorrt",
    "tensorrt_rtx",
}
MODULES = sorted(ENGINE.rglob("*.py"))


def level(module: str) -> int:
    head = module.split(".")[1] if "." in module else "__init__"
    return next(index for index, layer in enumerate(LAYERS) if head in layer)


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    """Every engine module that ``path`` imports anywhere in it, except for typing only."""
    tree, found = ast.parse(path.read_text()), set()
    package = dotted(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module or "") if part)
            found |= {f"{name}.{alias.name}" for alias in node.names} | {name}
    known = {dotted(module) for module in MODULES}
    return {name for name in found if name in known and name != "engine"}


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_go_down(path: Path) -> None:
    own = dotted(path)
    up = {name for name in imports(path) if level(name) > level(own)}
    assert not up, f"{own} imports upward: {sorted(up)}"


def test_no_cycles() -> None:
    graph = {dotted(path): imports(path) - {dotted(path)} for path in MODULES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail, name))
        if name in done:
            return
        for other in graph[name]:
            # A package's own modules import its __init__ for nothing but its name.
            if not name.startswith(f"{other}."):
                visit(other, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_steps_do_not_import_each_other() -> None:
    for path in (ENGINE / "steps").glob("*.py"):
        others = {name for name in imports(path) if name.startswith("engine.steps.")}
        assert others <= {"engine.steps.context"}, (path.name, others)


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_module_size(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= 400, f"{path.name} has {lines} lines"


def test_most_modules_are_small() -> None:
    sizes = sorted(len(path.read_text().splitlines()) for path in MODULES)
    assert sizes[int(len(sizes) * 0.9)] <= 260, sizes[-8:]


def test_broad_excepts_are_at_process_edges() -> None:
    allowed = {
        "engine.cli",
        "engine.host",
        "engine.customer",
        "engine.torch_model",
        "engine.graph.reference",
        "engine.runtime",
        "engine.sources.libraries",
        "engine.sources.onnx_file",
        "engine.sources.torch_sources",
        "engine.sources.weights",
        "engine.exporters.dynamo",
        "engine.exporters.torchscript",
        "engine.worker.trt_worker",
        "engine.process",
        "engine.initial.attempts",
    }
    for path in MODULES:
        broad = [node.lineno for node in ast.walk(ast.parse(path.read_text()))
                 if isinstance(node, ast.ExceptHandler)
                 and (node.type is None or (isinstance(node.type, ast.Name) and node.type.id
                      in ("Exception", "BaseException")))]  # fmt: skip
        assert not broad or dotted(path) in allowed, (dotted(path), broad)


@pytest.mark.parametrize(
    "arguments",
    [["check", "recipes/minilm-l6"], ["check", "recipes/minilm-l6", "--format", "sarif"], ["plan", "recipes/minilm-l6"],
     ["show", "recipes/minilm-l6"], ["diff", "recipes/minilm-l6", "recipes/digits-resnet"],
     ["diff", "recipes/minilm-l6/recipe.lock.yaml", "recipes/digits-resnet/recipe.lock.yaml"],
     ["fmt", "--check", "recipes/minilm-l6"], ["schema"]],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_light_commands_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom engine.cli import cli\n"
        f"cli({arguments!r}, standalone_mode=False)\n"
        f"print('HEAVY', sorted(set(sys.modules) & {HEAVY!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "HEAVY []"


def test_check_imports_no_more_than_it_needs() -> None:
    code = (
        "import sys\nfrom engine.cli import cli\n"
        "cli(['check', 'recipes/minilm-l6'], standalone_mode=False)\n"
        "print('MORE', sorted(set(sys.modules) & {'ruamel', 'ruamel.yaml', 'numpy', 'jinja2', 'rich', 'engine.diff',"
        " 'engine.annotations', 'engine.formatting', 'engine.lock'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "MORE []"


def test_report_command_imports_nothing_heavy() -> None:
    code = f"import sys, engine.route, engine.commands.report\nprint(sorted(set(sys.modules) & {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_benchmarks_import_what_is_there(path: Path) -> None:
    """They are long and run by hand: a name that moved must not be found out then."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("engine"):
            module = importlib.import_module(str(node.module))
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
