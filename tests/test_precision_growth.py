"""The error by module: the FP32 graph and the shadow in one run, each module blamed for what it adds itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from engine import runtime
from engine.graph import files
from engine.graph.provenance import MODULE
from engine.precision.growth import Growth, measure
from engine.precision.lower import lower
from engine.precision.rehearsal import run_shadow
from engine.precision.selectors import resolve
from engine.precision.shadow import build_shadow
from engine.recipe import Override
from tests.test_precision_shadow import NESTED, parse


def measured(
    folder: Path, model: ir.Model, *overrides: Override, most: int = 10, **feeds: Any
) -> dict[str, Growth]:
    files.save(model, folder / "before.onnx", "before.weights")
    low = files.load(folder / "before.onnx")
    lower(low, resolve(low, "fp16", overrides), io="keep")
    files.save(low, folder / "low.onnx", "low.weights")
    given = {name: np.asarray(value) for name, value in feeds.items()}
    lowered, original = files.load(folder / "low.onnx"), files.load(folder / "before.onnx")
    found = measure(lowered, original, folder / "growth.onnx", given, most)
    assert not (folder / "growth.onnx").exists()
    return {item.module: item for item in found}


def modules(body: str, **named: str) -> ir.Model:
    model = parse(body)
    for node in model.graph:
        node.metadata_props[MODULE] = named[node.name or ""]
    return model


# Subtracting two close numbers loses the digits; what comes before and after does not.
LOSS = """
g (float[n] x) => (float[n] y) <float one = {1.0}>
{ [a] s = Add (x, one)  [b] t = Mul (s, s)  [c] u = Sub (t, one)  [d] v = Mul (u, u)  [e] y = Neg (v) }
"""


def test_the_module_that_loses_the_digits_comes_first(tmp_path: Path) -> None:
    model = modules(LOSS, a="head", b="head", c="middle", d="tail", e="tail")
    x = np.linspace(0.001, 0.01, 64, dtype=np.float32)
    found = measured(tmp_path, model, x=x)
    assert next(iter(found)) == "middle"
    assert found["middle"].value == "u"
    # by hand: FP32 against the shadow itself, at the values where modules meet
    files.save(build_shadow(files.load(tmp_path / "low.onnx")), tmp_path / "shadow.onnx")
    y: dict[str, Any] = {"exact": runtime.run(runtime.session(tmp_path / "before.onnx"), {"x": x})["y"],
         "shadow": run_shadow(tmp_path / "shadow.onnx", {"x": x})["y"]}  # fmt: skip
    expected = np.linalg.norm(y["shadow"] - y["exact"]) / np.linalg.norm(y["exact"])
    np.testing.assert_allclose(found["tail"].after, expected, rtol=1e-4)
    assert found["head"].before == 0.0
    assert found["middle"].before == found["head"].after
    assert found["tail"].before == found["middle"].after
    assert list(measured(tmp_path, model, x=x, most=1)) == ["middle"]


def test_a_module_in_fp32_adds_nothing(tmp_path: Path) -> None:
    model = modules(LOSS, a="head", b="head", c="middle", d="tail", e="tail")
    overrides = [Override("fp32", "test", module=name) for name in ("head", "middle")]
    found = measured(tmp_path, model, *overrides, x=np.linspace(0.001, 0.01, 64, dtype=np.float32))
    assert list(found) == ["tail"]


def test_an_overflow_is_the_worst_of_all(tmp_path: Path) -> None:
    body = "g (float[n] x) => (float[n] y) { [a] s = Add (x, x)  [b] t = Mul (s, s)  [c] y = Sqrt (t) }"
    found = measured(tmp_path, modules(body, a="one", b="two", c="three"), x=[1.0, 300.0])
    assert next(iter(found)) == "two"
    assert found["two"].after == np.inf > found["two"].before


def test_a_node_without_a_module_stands_for_itself_and_masks_are_left_out(tmp_path: Path) -> None:
    body = """
    g (float[4] x, bool[4] keep) => (float[4] y) <float zero = {0}, float off = {-3.4028235e38}>
    { [scale] s = Mul (x, x)  [pick] m = Where (keep, zero, off)  [add] a = Add (s, m)  [soft] y = Softmax (a) }
    """
    found = measured(tmp_path, parse(body), x=[0.3, 0.7, 1.1, 0.2], keep=[True, True, False, True])
    assert set(found) == {"scale", "soft"}
    assert all(np.isfinite(item.after) for item in found.values())


def test_subgraphs_keep_their_values_apart(tmp_path: Path) -> None:
    found = measured(tmp_path, parse(NESTED), c=False, x=np.array([1.1, 3.3], np.float32), times=1)
    assert "t" in found
    assert found["t"].after < 1e-3
