"""Rules that TensorRT-RTX needs: it refuses the graph before and builds it after."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import pytest

from engine.rules import library
from engine.rules.apply import apply_rule
from engine.rules.language import load_rule
from engine.rules.prove import application_prover
from tests.rules_tools import model
from tests.test_rules_library import FIXTURES, headers, symbols

NEEDED = [n for n in library.names() if load_rule(library.path_of(n)).needed_by.get("tensorrt-rtx") == "*"]

BUILD = """
import json, sys
import tensorrt_rtx as trt
path, shapes = sys.argv[1], json.loads(sys.argv[2])
logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
parser = trt.OnnxParser(network, logger)
if not parser.parse_from_file(path):
    refused = [[e.node_operator(), e.desc()] for e in map(parser.get_error, range(parser.num_errors))]
    print(json.dumps({"refused": refused}))
    sys.exit()
config = builder.create_builder_config()
profile = builder.create_optimization_profile()
for name, sizes in shapes.items():
    profile.set_shape(name, *sizes)
config.add_optimization_profile(profile)
engine = builder.build_serialized_network(network, config)
print(json.dumps({"bytes": engine.nbytes if engine is not None else 0}))
"""


def build(graph: ir.Model, sizes: dict[str, tuple[int, ...]], folder: Path) -> dict[str, object]:
    """What TensorRT-RTX makes of ``graph`` in a process of its own."""
    ir.save(graph, folder / "net.onnx")
    shapes = {}
    for value in graph.graph.inputs:
        dims = [dim if isinstance(dim, int) else sizes[str(dim.value)] for dim in value.shape or ()]
        pick = [[d if isinstance(d, int) else d[i] for d in dims] for i in (0, 0, -1)]
        shapes[value.name] = pick
    command = [sys.executable, "-c", BUILD, str(folder / "net.onnx"), json.dumps(shapes)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_some_rules_are_needed() -> None:
    assert len(NEEDED) >= 2


@pytest.mark.skipif(importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt-rtx is not installed")
@pytest.mark.parametrize("name", NEEDED)
def test_refused_before_builds_after(name: str, tmp_path: Path) -> None:
    text = (FIXTURES / name / "fires.txt").read_text()
    rule, sizes, graph = load_rule(library.path_of(name)), symbols(text), model(text)
    before = build(graph, sizes, tmp_path)
    refused = {operator for operator, _ in before.get("refused", ())}  # type: ignore[attr-defined]
    mended = {op for op, _ in rule.anchors} | {node.op for node in rule.match.nodes}
    mended |= refused if rule.types else set()  # such a rule is for every operator
    assert refused & mended or before.get("bytes") == 0, before
    for also in (name, *headers(text).get("then", "").split()):  # a rule may need another one after it
        apply_rule(graph, load_rule(library.path_of(also)), prover=application_prover(sizes), sizes=sizes)
    after = build(graph, sizes, tmp_path)
    assert after.get("bytes", 0), after
