"""The TensorRT worker and toolchains, against the TensorRT that is installed; no GPU is needed."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import psutil
import pytest

from engine import compatibility, toolchain
from engine.errors import RecipeError, StepError
from engine.fused_plan import read_plan, summary, types_of_nodes
from engine.process import Limits, Outcome
from engine.worker import explain, trt_worker
from engine.worker.fixed_addresses import ADDR_NO_RANDOMIZE

INSTALLED = importlib.util.find_spec("tensorrt_rtx") is not None
needs_rtx = pytest.mark.skipif(not INSTALLED, reason="tensorrt_rtx is not installed")
GRAPH = '<ir_version: 8, opset_import: ["" : 18]> g '
DYNAMIC = GRAPH + "(float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }"
Build = Callable[..., Outcome]


def span(low: list[int], best: list[int], high: list[int]) -> dict[str, list[int]]:
    return {"min": low, "opt": best, "max": high}


def named(text: str) -> onnx.ModelProto:
    """Parse ONNX text and name the nodes by op and position: Relu_0, Add_1, ..."""
    model = onnx.parser.parse_model(text)
    for graph in (model.graph, *model.functions):
        for index, node in enumerate(graph.node):
            node.name = f"{node.op_type}_{index}"
    return model


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Build ONNX text with the installed toolchain in the test's folder."""

    def call(text: str, *profiles: dict[str, Any], seconds: float = 60, **request: Any) -> Outcome:
        path = tmp_path / "model.onnx"
        path.write_bytes(named(text).SerializeToString())
        request = {
            "onnx": str(path),
            "engine": str(tmp_path / "model.engine"),
            "verbose_log": str(tmp_path / "build.log"),
            "profiles": list(profiles),
            **request,
        }
        on_message = request.pop("on_message", None)
        return toolchain.build(
            toolchain.resolve("current"),
            request,
            log=tmp_path / "worker.log",
            limits=Limits(seconds=seconds),
            on_message=on_message,
        )

    return call


def errors_of(outcome: Outcome, stage: str) -> list[dict[str, Any]]:
    assert outcome.kind == "ok", outcome.log_tail
    assert not outcome.result["ok"]
    assert outcome.result["engine"] is None
    assert outcome.result["stage"] == stage, outcome.result["errors"]
    errors: list[dict[str, Any]] = outcome.result["errors"]
    assert errors
    assert all("cudaError" not in error["text"] for error in errors)
    return errors


# ---- builds that succeed ---------------------------------------------------------------------------------

MLP = """<ir_version: 8, opset_import: ["" : 18]>
g ({t}[N, 16] x) => ({t}[N, 16] y) <{t}[16, 16] w = {{{zeros}}}> {{
  a = MatMul (x, w)
  b = Relu (a)
  y = Add (b, x)
}}"""


@needs_rtx
@pytest.mark.parametrize(
    ("dtype", "in_network", "in_plan"),
    [("float", "FLOAT", "float32"), ("float16", "HALF", "float16"), ("bfloat16", "BF16", "bfloat16")],
)
def test_types_are_read_back_from_network_and_plan(
    build: Build, tmp_path: Path, dtype: str, in_network: str, in_plan: str
) -> None:
    text = MLP.format(t=dtype, zeros=", ".join(["0"] * 256))
    outcome = build(text, {"x": span([1, 16], [4, 16], [8, 16])})
    assert outcome.kind == "ok", outcome.log_tail
    result = outcome.result
    assert result["ok"], result["errors"]
    assert (result["stage"], result["module"], result["errors"]) == ("done", "tensorrt_rtx", [])
    assert result["network"]["inputs"] == [{"name": "x", "dtype": in_network, "shape": [-1, 16]}]
    layers = result["network"]["layers"]
    assert len(layers) == result["num_layers"] > 0
    sums = next(layer for layer in layers if layer["metadata"] == "[ONNX Layer: Add_2]")
    assert (sums["type"], sums["properties"]) == ("ELEMENTWISE", {"op": "SUM"})
    assert [tensor["dtype"] for tensor in sums["inputs"] + sums["outputs"]] == [in_network] * 3
    plan = read_plan(tmp_path / "build.log")
    assert plan.unknown_lines == 0
    assert types_of_nodes(plan.layers)["MatMul_0"].outputs == {in_plan}
    engine = (tmp_path / "model.engine").read_bytes()
    assert result["engine"] == {"bytes": len(engine), "sha256": hashlib.sha256(engine).hexdigest()}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "build.log",
        "model.engine",
        "model.onnx",
        "worker.log",
    ]


@needs_rtx
def test_messages_log_and_times(build: Build, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    text = GRAPH + "(int64[N] x) => (int64[N] y) { y = Add (x, x) }"
    result = build(text, {"x": span([1], [4], [8])}, on_message=seen.append).result
    assert [m["stage"] for m in seen if m["kind"] == "stage"] == ["parse", "profile", "build", "write"]
    assert any(m["kind"] == "progress" and m["step"] <= m["total"] for m in seen)
    warned = [m["text"] for m in seen if m["kind"] == "log"]
    assert warned == [r["text"] for r in result["log"] if r["severity"] == "WARNING"]
    assert any("Int64 binding" in text for text in warned)
    assert {record["severity"] for record in result["log"]} == {"INFO", "WARNING"}
    assert result["log_counts"]["VERBOSE"] > 10
    assert set(result["seconds"]) == {"parse", "profile", "build", "write"}
    assert "VERBOSE Layers:" in (tmp_path / "build.log").read_text().splitlines()


def test_launcher_fixes_addresses() -> None:
    launcher = Path(trt_worker.__file__).with_name("fixed_addresses.py")
    code = "import ctypes; print(ctypes.cast(ctypes.CDLL(None).malloc, ctypes.c_void_p).value)"
    plain = [sys.executable, "-c", code]
    fixed = [sys.executable, "-I", str(launcher), *plain]
    if subprocess.run(["setarch", "-R", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this system does not allow fixed addresses")
    assert len({subprocess.check_output(fixed) for _ in range(5)}) == 1
    assert len({subprocess.check_output(plain) for _ in range(5)}) > 1


@needs_rtx
def test_worker_runs_with_fixed_addresses_and_repeats_its_bytes(build: Build) -> None:
    personalities: set[int] = set()

    def look(message: dict[str, Any]) -> None:
        if process := worker():
            personalities.add(int(Path(f"/proc/{process.pid}/personality").read_text(), 16))

    profile = {"x": span([1, 3], [2, 3], [4, 3])}
    digests = {build(DYNAMIC, profile, on_message=look).result["engine"]["sha256"] for _ in range(3)}
    assert len(digests) == 1
    if subprocess.run(["setarch", "-R", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("this system does not allow fixed addresses")
    assert all(personality & ADDR_NO_RANDOMIZE for personality in personalities)
    assert personalities


@needs_rtx
def test_two_profiles_target_and_flag(build: Build, tmp_path: Path) -> None:
    profiles = [{"x": span([1, 3], [2, 3], [4, 3])}, {"x": span([8, 3], [8, 3], [8, 3])}]
    outcome = build(DYNAMIC, *profiles, target="sm89", workspace=1 << 28, flags=["REFIT"])
    assert outcome.result["ok"], outcome.result["errors"]
    assert {layer.profile for layer in read_plan(tmp_path / "build.log").layers} == {0, 1}


@needs_rtx
def test_shape_input_with_values(build: Build) -> None:
    text = GRAPH + "(float[6] x, int64[2] s) => (float[A, B] y) { y = Reshape (x, s) }"
    values = span([2, 3], [2, 3], [2, 3])
    outcome = build(text, {"s": {**span([2], [2], [2]), "values": values}})
    assert outcome.result["ok"], outcome.result["errors"]


@needs_rtx
def test_modes_of_layers_are_read_back(build: Build) -> None:
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[1, 1, 4, 4] x, float[1, 4, 4, 2] p) => (float[1, 1, 4, 4] y) {
      y = GridSample <mode = "linear", align_corners = 1> (x, p)
    }"""
    layers = build(text).result["network"]["layers"]
    sample = next(layer for layer in layers if layer["type"] == "GRID_SAMPLE")
    assert sample["properties"]["align_corners"] is True
    assert sample["properties"]["interpolation_mode"] in ("LINEAR", "NEAREST")


# ---- builds that are refused -----------------------------------------------------------------------------


@needs_rtx
def test_unsupported_op_names_node_and_op(build: Build) -> None:
    text = GRAPH + "(float[N] x) => (float[M] y) { t = Relu (x) y = Unique (t) }"
    [error] = errors_of(build(text), "parse")
    assert (error["node"], error["op"], error["code"]) == ("Unique_1", "Unique", "UNSUPPORTED_NODE")
    assert re.fullmatch(
        r"TensorRT-RTX \d+\.\d+\.\d+ has no importer for op Unique \(node Unique_1\)", error["text"]
    )
    assert error["raw"] == "false"
    assert re.fullmatch(r"\w+\.cpp:\d+ \w+", error["place"])


@needs_rtx
def test_all_parser_errors_are_told_once(build: Build) -> None:
    text = (
        GRAPH
        + "(float[1, 1, 8, 8] x) => (float[1, 1, 4, 4] y, float[M] z) "
        + ("{ y = MaxPool <kernel_shape = [3, 3], dilations = [2, 2]> (x) z = Unique (x) }")
    )
    pool, unique = errors_of(build(text), "parse")
    assert pool["text"].endswith(
        "op MaxPool (node MaxPool_0): This version of TensorRT does not support dilations other than 1."
    )
    assert unique["node"] == "Unique_1"


@needs_rtx
def test_unknown_op(build: Build) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "my" : 1]>
    g (float[3] x) => (float[3] y) { y = my.Nope (x) }"""
    [error] = errors_of(build(text), "parse")
    assert error["text"].endswith("has no importer and no plugin for op Nope (node Nope_0)")


@needs_rtx
def test_error_inside_a_local_function(build: Build) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "l" : 1]>
    g (float[N] x) => (float[M] y) { y = l.f (x) }
    <domain: "l", opset_import: ["" : 18]> f (a) => (b) { b = Unique (a) }"""
    [error] = errors_of(build(text), "parse")
    assert error["local_function_stack"] == ["f_0 (f)"]
    assert "op Unique (node Unique_0 in f_0 (f))" in error["text"]


@needs_rtx
def test_mixed_types_are_refused_without_driver_noise(build: Build, tmp_path: Path) -> None:
    text = GRAPH + "(float[3] x, float16[3] h) => (float[3] y) { y = Add (x, h) }"
    outcome = build(text)
    [error] = errors_of(outcome, "parse")
    assert error["node"] == "Add_0"
    assert error["text"].endswith("must have same input types. But they are of types Float and Half.")
    assert all("cudaError 35" not in record["text"] for record in outcome.result["log"])
    if not toolchain.has_gpu()[0]:
        assert "cudaError 35" in (tmp_path / "build.log").read_text()


@needs_rtx
def test_build_error_names_the_node(build: Build) -> None:
    text = (
        GRAPH
        + """(float[1, 5000] x) => (float[1, 4000] y, int64[1, 4000] i) <int64[1] k = {4000}> {
      y, i = TopK (x, k)
    }"""
    )
    [error] = errors_of(build(text), "build")
    assert (error["node"], error["code"]) == ("TopK_0", "API_USAGE_ERROR")
    assert error["text"].endswith("K exceeds the maximum value allowed (3840).")


@needs_rtx
def test_target_that_lacks_a_type(build: Build) -> None:
    text = MLP.format(t="bfloat16", zeros=", ".join(["0"] * 256))
    [error] = errors_of(build(text, {"x": span([1, 16], [4, 16], [8, 16])}, target="sm75"), "build")
    assert "Cannot compile for target(s) sm75" in error["text"]
    assert error["code"] == "MYELIN"


@needs_rtx
def test_attention_without_a_kernel_is_told_in_words(build: Build) -> None:
    text = """<ir_version: 10, opset_import: ["" : 23]>
    g (float[1, 2, 4, 8] q, float[1, 2, 4, 8] k, float[1, 2, 4, 8] v) => (float[1, 2, 4, 8] y) {
      y = Attention (q, k, v)
    }"""
    [error] = errors_of(build(text), "build")
    assert error["text"].startswith("Attention operation was not supported by a dedicated kernel.")


@needs_rtx
@pytest.mark.parametrize(
    ("profiles", "stage", "said"),
    [
        ([], "profile", "no optimization profile for the dynamic input x"),
        ([{}], "profile", "profile 0: no shape for the dynamic input x"),
        (
            [{"x": span([1, 3], [2, 3], [4, 3]), "z": span([1], [1], [1])}],
            "profile",
            "profile 0: there is no input z; the inputs are x",
        ),
        ([{"x": span([4, 3], [2, 3], [1, 3])}], "profile", "input tensors x, .*MIN<=OPT<=MAX"),
        ([{"x": span([1, 3], [2], [4, 3])}], "profile", "input tensors x"),
        ([{"x": span([1], [2], [4])}], "build", "input tensor x has 2 dimensions but profile 0 has 1"),
        ([{"x": span([1, 4], [2, 4], [4, 4])}], "build", "tensor x and profile 0. At dimension axis 1"),
    ],
)
def test_profile_faults(build: Build, profiles: list[Any], stage: str, said: str) -> None:
    [error] = errors_of(build(DYNAMIC, *profiles), stage)
    assert re.search(said, error["text"]), error["text"]


@needs_rtx
def test_one_dimension_with_two_ranges(build: Build) -> None:
    text = GRAPH + "(float[N] x, float[N] z) => (float[N] y) { y = Add (x, z) }"
    profile = {"x": span([1], [2], [4]), "z": span([1], [2], [8])}
    [error] = errors_of(build(text, profile), "profile")
    assert error["text"] == (
        "profile 0: min, opt, max of dimension N are [1, 2, 4] in input x, but [1, 2, 8] in input z"
    )


@needs_rtx
def test_shape_input_without_values(build: Build) -> None:
    text = GRAPH + "(float[6] x, int64[2] s) => (float[A, B] y) { y = Reshape (x, s) }"
    [error] = errors_of(build(text, {"s": span([2], [2], [2])}), "profile")
    assert "input s decides shapes" in error["text"]


@needs_rtx
def test_a_profile_that_tensorrt_only_warns_about(build: Build, tmp_path: Path) -> None:
    text = GRAPH + "(float[6] x, int64[2] s) => (float[A, B] y) { y = Reshape (x, s) }"
    values = span([2, 3], [2, 3], [6, 6])
    [error] = errors_of(build(text, {"s": {**span([2], [2], [2]), "values": values}}), "build")
    assert "Profile kMAX values are not self-consistent" in error["text"]
    assert error["node"] == "Reshape_0"
    assert not (tmp_path / "model.engine").exists()


@needs_rtx
@pytest.mark.parametrize(
    ("request_part", "stage", "said"),
    [
        ({"onnx": "/nowhere/model.onnx"}, "parse", "there is no ONNX file /nowhere/model.onnx"),
        ({"target": "sm90"}, "profile", "has no ComputeCapability SM90; it has .*SM89"),
        ({"flags": ["FP16"]}, "profile", "has no BuilderFlag FP16; it has .*REFIT"),
        ({"engine": "/nowhere/model.engine"}, "write", "cannot be written: .*No such file"),
    ],
)
def test_wrong_requests(build: Build, request_part: dict[str, Any], stage: str, said: str) -> None:
    text = GRAPH + "(float[3] x) => (float[3] y) { y = Relu (x) }"
    [error] = errors_of(build(text, **request_part), stage)
    assert re.search(said, error["text"]), error["text"]


@needs_rtx
@pytest.mark.parametrize(
    ("content", "said"), [(b"", "read an empty network"), (b"no ONNX at all", "cannot|ONNX|parse")]
)
def test_files_that_are_no_model(build: Build, tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    errors = errors_of(build(DYNAMIC, onnx=str(path)), "parse")
    assert re.search(said, errors[0]["text"]), errors


def test_module_that_is_not_there(tmp_path: Path) -> None:
    empty = toolchain.Toolchain("x", Path(sys.executable), "tensorrt", "")
    if importlib.util.find_spec("tensorrt") is not None:
        pytest.skip("tensorrt is installed")
    outcome = toolchain.build(empty, {}, log=tmp_path / "log", limits=Limits(seconds=60))
    [error] = errors_of(outcome, "load")
    assert error["text"].startswith("tensorrt cannot be imported: ")


# ---- workers that die ------------------------------------------------------------------------------------


def worker() -> psutil.Process | None:
    """The worker process that runs just now, if it has not ended already."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any("trt_worker" in part for part in child.cmdline()):
                return child
    return None


def kill_worker(message: dict[str, Any]) -> None:
    if message.get("stage") == "profile" and (process := worker()):
        process.kill()


@needs_rtx
def test_killed_worker_leaves_no_engine(build: Build, tmp_path: Path) -> None:
    outcome = build(DYNAMIC, {"x": span([1, 3], [2, 3], [4, 3])}, on_message=kill_worker)
    assert (outcome.kind, outcome.returncode, outcome.result) == ("signal", -signal.SIGKILL, None)
    assert not (tmp_path / "model.engine").exists()
    assert toolchain.last_words(tmp_path / "build.log")


@needs_rtx
def test_worker_over_its_time(build: Build) -> None:
    outcome = build(DYNAMIC, {"x": span([1, 3], [2, 3], [4, 3])}, seconds=0.05)
    assert outcome.kind == "timeout"


@needs_rtx
def test_real_crash_in_tensorrt(build: Build, tmp_path: Path) -> None:
    """External data that ends before the tensor does: whatever TensorRT makes of it, we live."""
    model = named(GRAPH + "(float[1, 64] x) => (float[1, 64] y) { y = MatMul (x, w) }")
    weight = model.graph.initializer.add(name="w", data_type=onnx.TensorProto.FLOAT, dims=[64, 64])
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "w.data"), ("offset", "1048576"), ("length", "16384")):
        weight.external_data.add(key=key, value=value)
    (tmp_path / "w.data").write_bytes(b"\0" * 64)
    path = tmp_path / "external.onnx"
    path.write_bytes(model.SerializeToString())
    outcome = build(DYNAMIC, onnx=str(path))
    assert outcome.kind == "signal" or not outcome.result["ok"]


# ---- what a toolchain is ---------------------------------------------------------------------------------


@needs_rtx
def test_current_and_named_toolchains() -> None:
    current = toolchain.resolve("current")
    assert current.module == "tensorrt_rtx"
    assert toolchain.resolve("tensorrt-rtx").version == current.version
    assert toolchain.resolve(f"tensorrt-rtx=={current.version}").version == current.version


@needs_rtx
def test_path_toolchain() -> None:
    found = toolchain.resolve(f"path:{sys.executable}")
    assert (found.python, found.module) == (Path(sys.executable), "tensorrt_rtx")
    assert found.version == toolchain.resolve("current").version


@needs_rtx
def test_another_version_is_refused_with_the_one_there_is() -> None:
    with pytest.raises(RecipeError) as caught:
        toolchain.resolve("tensorrt-rtx==0.0.1")
    version = toolchain.resolve("current").version
    assert f"toolchain tensorrt-rtx==0.0.1 is not available; installed here: tensorrt-rtx {version}" in str(
        caught.value
    )
    assert "portwright toolchain add tensorrt-rtx==0.0.1" in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("trt", "unknown toolchain 'trt'"),
        ("current==1.0", "unknown toolchain"),
        ("path:/nowhere/python", "'/nowhere/python' is not a program"),
        ("path:/bin/true", "ended with exit code 0 without a result"),
    ],
)
def test_wrong_specs(spec: str, said: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(said)):
        toolchain.resolve(spec)


def test_interpreter_without_tensorrt(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    with pytest.raises(RecipeError, match="has no usable TensorRT: tensorrt_rtx cannot be imported"):
        toolchain.resolve(f"path:{python}")


@needs_rtx
def test_probe() -> None:
    facts = toolchain.probe(toolchain.resolve("current"), ["Add", "Unique"])
    assert facts["ok"]
    assert facts["operators"] == {"Add": True, "Unique": False}
    assert {"FLOAT", "HALF", "BF16", "INT8", "FP8"} <= set(facts["data_types"])
    assert {"sm86", "sm89", "sm120"} <= set(facts["targets"])
    assert (facts["devices"] > 0, facts["no_device"]) == toolchain.has_gpu()


def test_probe_of_a_dead_interpreter() -> None:
    with pytest.raises(StepError, match="/bin/false could not be asked about tensorrt"):
        toolchain.probe(toolchain.Toolchain("x", Path("/bin/false"), "tensorrt", ""))


@pytest.mark.parametrize(
    ("module", "version", "limit"),
    [
        ("tensorrt", "8.6.1", 17), ("tensorrt", "9.3.0", 19), ("tensorrt", "10.0.1", 20),
        ("tensorrt", "10.9.0.34", 22), ("tensorrt", "10.15.1.29", 24), ("tensorrt", "11.4.0.106", 24),
        ("tensorrt", "11.5.0", 25), ("tensorrt", "12.0", 25),
        ("tensorrt_rtx", "1.4.0.76", 22), ("tensorrt_rtx", "1.7.1.116", 24),
    ],
)  # fmt: skip
def test_opset_limits(module: str, version: str, limit: int) -> None:
    assert compatibility.opset_limit(module, version) == limit


def test_opset_of_an_ancient_version() -> None:
    with pytest.raises(ValueError, match=r"tensorrt 7\.2 is older"):
        compatibility.opset_limit("tensorrt", "7.2")


def test_toolchain_imports_little() -> None:
    code = "import sys, engine.toolchain as t; t.has_gpu()\nprint(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {"tensorrt", "tensorrt_rtx", "torch", "numpy", "onnx", "psutil", "importlib.metadata"}
    assert not heavy & set(ast.literal_eval(done.stdout))


# ---- the worker as a file that foreign interpreters run --------------------------------------------------


def test_worker_is_python_3_8_and_standard_library_only() -> None:
    source = Path(trt_worker.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 8))
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= set(sys.stdlib_module_names)


# ---- words -----------------------------------------------------------------------------------------------


def reported(text: str, **known: Any) -> dict[str, Any]:
    blank = {
        "code": "X",
        "node": "n",
        "op": "Cast",
        "op_supported": True,
        "place": "",
        "local_function_stack": [],
    }
    result = {
        "module": "tensorrt",
        "version": "10.3.0.26",
        "network": None,
        "errors": [{**blank, "text": text, **known}],
    }
    [error] = explain.explained(result)["errors"]
    return dict(error)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("false", "TensorRT 10.3.0 refuses op Cast (node n)"),
        ("date type", "TensorRT 10.3.0 refuses op Cast (node n)"),
        ('a > 1 && "Only this."', "TensorRT 10.3.0 refuses op Cast (node n): Only this."),
        ('Assertion failed: m == "x": No way.', "TensorRT 10.3.0 refuses op Cast (node n): No way."),
        ("something new", "TensorRT 10.3.0 refuses op Cast (node n): something new"),
    ],
)
def test_explanations(raw: str, text: str) -> None:
    assert reported(raw)["text"] == text
    assert reported(raw)["raw"] == raw


def test_explanation_without_names() -> None:
    error = reported("Failed to import initializer: w", node="", op="", op_supported=False)
    assert error["text"] == "TensorRT 10.3.0 refuses the model: Failed to import initializer: w"
    assert (error["node"], error["op"]) == (None, None)


def test_logged_error_takes_the_longest_layer_name() -> None:
    layers = [{"name": name, "metadata": f"[ONNX Layer: onnx_{name} | f (f)]"} for name in ("a", "a/b", "b")]
    result = {
        "module": "tensorrt_rtx",
        "version": "1.7.1.116",
        "network": {"layers": layers},
        "errors": [
            {
                "code": "BUILD",
                "text": "X: Error Code 1: Myelin ([p.cpp:3: run] Cannot do 'a/b'. In f at /g.cpp:9)",
            }
        ],
    }
    [error] = explain.explained(result)["errors"]
    assert (error["node"], error["text"], error["place"]) == ("onnx_a/b", "Cannot do 'a/b'.", "p.cpp:3: run")


def test_summary_of_a_real_plan_is_counted(build: Build, tmp_path: Path) -> None:
    if not INSTALLED:
        pytest.skip("tensorrt_rtx is not installed")
    build(DYNAMIC, {"x": span([1, 3], [2, 3], [4, 3])})
    assert summary(read_plan(tmp_path / "build.log").layers)["types"]["float32"] == 1
