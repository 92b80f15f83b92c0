"""TensorRT in a process of its own: build an engine from an ONNX file, or tell what this TensorRT can do.

Run as ``python -I trt_worker.py`` by any Python >= 3.8 with ``tensorrt`` (10 or later) or ``tensorrt_rtx``
and nothing else. engine/process.py has the protocol; the messages are ``stage``, ``log`` and ``progress``.
A refusal by TensorRT is a result with ``ok`` false; only a crash or a bug ends without a result.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

Json = Any

OLDEST = {"tensorrt": (10, 0), "tensorrt_rtx": (1, 0)}  # older ones cannot be strongly typed
PRODUCT = {"tensorrt": "TensorRT", "tensorrt_rtx": "TensorRT-RTX"}

# What differs between versions: feature -> the class and attribute that show it.
FEATURES = {
    "strong_typing_flag": ("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"),  # needed in 10, ignored by 11
    "targets": ("IBuilderConfig", "set_compute_capability"),  # TensorRT-RTX
    "dimension_names": ("ITensor", "get_dimension_name"),
    "error_stack": ("ParserError", "local_function_stack"),
}

# Layer properties that an importer may choose wrongly: layer type -> class of the binding, properties.
PROPERTIES = {
    "ACTIVATION": ("IActivationLayer", "type alpha beta"),
    "CAST": ("ICastLayer", "to_type"),
    "ELEMENTWISE": ("IElementWiseLayer", "op"),
    "GRID_SAMPLE": ("IGridSampleLayer", "interpolation_mode align_corners sample_mode"),
    "POOLING": ("IPoolingLayer", "type average_count_excludes_padding"),
    "REDUCE": ("IReduceLayer", "op axes keep_dims"),
    "RESIZE": ("IResizeLayer", "resize_mode coordinate_transformation nearest_rounding"),
    "SCATTER": ("IScatterLayer", "mode axis"),
    "TOPK": ("ITopKLayer", "op k axes"),
    "UNARY": ("IUnaryLayer", "op"),
}

RANGE = ("min", "opt", "max")
BAD = ("ERROR", "INTERNAL_ERROR")
MOST_INFO = 1000  # INFO records kept for the result; louder ones are all kept
ERROR_WARNINGS = ("values are not self-consistent",)  # TensorRT warns, and builds an engine that cannot run
NO_DRIVER = re.compile(r"(catchCudaError.*cudaError|CUDA initialization failure with error:) (35|100)\b")


class Channel:
    """Messages to the parent over the original stdout; prints of foreign code go to stderr instead."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stream = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def send(self, kind: str, **fields: Json) -> None:
        try:
            self._stream.write(json.dumps(dict(fields, kind=kind)).encode() + b"\n")
            self._stream.flush()
        except BrokenPipeError:
            os._exit(1)  # nobody waits for the answer; an exception must not unwind through C++


class Refused(Exception):
    """The request cannot be carried out; carries the errors to report."""

    def __init__(self, errors: list[Json]) -> None:
        super().__init__(errors)
        self.errors = errors


def refusal(code: str, *texts: str) -> Refused:
    return Refused([{"code": code, "text": text} for text in texts])


class Log:
    """TensorRT's log records: all to a file, those above VERBOSE kept, warnings and worse sent on."""

    def __init__(self, channel: Channel, path: str, no_driver: bool) -> None:
        self.records: list[dict[str, str]] = []
        self.counts: dict[str, int] = {}
        self._channel, self._no_driver = channel, no_driver
        self._file = open(path, "w", 1, "utf-8", "replace")  # noqa: SIM115 - by the line: a crash loses none

    def add(self, severity: str, text: str) -> None:
        self._file.write(severity + " " + text + "\n")
        self.counts[severity] = self.counts.get(severity, 0) + 1
        text = self.without_noise(text)
        if severity == "VERBOSE" or not text or (severity == "INFO" and self.counts[severity] > MOST_INFO):
            return
        self.records.append({"severity": severity, "text": text})
        if severity in BAD or severity == "WARNING":
            self._channel.send("log", severity=severity, text=text)

    def without_noise(self, text: str) -> str:
        """Without the complaints about a missing driver, which then stand beside every true error."""
        if not self._no_driver:
            return text
        return "\n".join(line for line in text.split("\n") if not NO_DRIVER.search(line))

    def texts(self, *severities: str) -> list[str]:
        return [record["text"] for record in self.records if record["severity"] in severities]


def cuda_devices() -> tuple[int, str]:
    """Number of usable CUDA devices by the driver's own word, and why there are none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no NVIDIA driver (libcuda.so.1 not found)"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0:
        return 0, f"the NVIDIA driver finds no usable GPU (CUDA error {status})"
    return count.value, "" if count.value else "the NVIDIA driver sees no GPU"


class Session:
    """One TensorRT module with its one logger, and the builder, network and parser made from it."""

    def __init__(self, request: Mapping[str, Json], channel: Channel) -> None:
        self.module = request["module"]
        self.devices, self.no_device = cuda_devices()
        self.log = Log(channel, request.get("verbose_log") or os.devnull, self.devices == 0)
        self.trt = trt = load(self.module)
        self.features = {key: hasattr(getattr(trt, cls, None), name) for key, (cls, name) in FEATURES.items()}
        self.product = PRODUCT[self.module] + " " + ".".join(trt.__version__.split(".")[:3])
        self.logger, self.monitor = callbacks(trt, self.log, channel)
        self.renew()

    def renew(self) -> None:
        """A new builder, network and parser under the one logger."""
        strong = getattr(self.trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        try:
            self.builder = self.trt.Builder(self.logger)
            self.network = self.builder.create_network(0 if strong is None else 1 << int(strong))
            self.parser = self.trt.OnnxParser(self.network, self.logger)
        except (TypeError, RuntimeError) as exc:  # pybind11 turns a null pointer from C++ into TypeError
            reason = "; ".join(self.log.texts(*BAD)) or self.no_device or str(exc)
            raise refusal("NO_BUILDER", self.product + " cannot make a builder: " + reason) from exc


def load(module: str) -> Any:
    try:
        trt = importlib.import_module(module)
    except (ImportError, OSError) as exc:
        raise refusal("IMPORT", f"{module} cannot be imported: {exc}") from exc
    if tuple(int(part) for part in trt.__version__.split(".")[:2]) < OLDEST[module]:
        raise refusal("TOO_OLD", f"{PRODUCT[module]} {trt.__version__} has no strongly typed networks")
    return trt


def callbacks(trt: Any, log: Log, channel: Channel) -> tuple[Any, Any]:
    """The logger and the progress monitor that TensorRT calls, from any of its threads."""
    totals: dict[str, int] = {}

    class Logger(trt.ILogger):  # type: ignore[misc]
        def log(self, severity: Any, text: str) -> None:
            log.add(severity.name, text)

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]
        def phase_start(self, phase: str, parent: str | None, steps: int) -> None:
            totals[phase] = steps

        def step_complete(self, phase: str, step: int) -> bool:
            if step % 100 == 0 or step + 1 == totals[phase]:
                channel.send("progress", phase=phase, step=step + 1, total=totals[phase])
            return True

        def phase_finish(self, phase: str) -> None:
            pass

    return Logger(), Monitor()


def parse(session: Session, path: str) -> None:
    if not os.path.isfile(path):
        raise refusal("NO_FILE", "there is no ONNX file " + path)
    if not session.parser.parse_from_file(path):
        raise Refused(parser_errors(session))
    if session.network.num_layers == 0 or session.network.num_outputs == 0:
        raise refusal("EMPTY", f"{session.product} read an empty network from {path}")


def parser_errors(session: Session) -> list[Json]:
    found, stacks = [], session.features["error_stack"]
    for index in range(session.parser.num_errors):
        reported = session.parser.get_error(index)
        op = reported.node_operator()
        item = {
            "code": reported.code().name,
            "text": session.log.without_noise(reported.desc()),
            "node": reported.node_name(),
            "op": op,
            "op_supported": bool(op) and session.parser.supports_operator(op),
            "place": f"{reported.file()}:{reported.line()} {reported.func()}",
            "local_function_stack": list(reported.local_function_stack()) if stacks else [],
        }
        if item not in found:
            found.append(item)
    return found or [{"code": "PARSER", "text": session.product + " cannot read the file as ONNX"}]


def network_facts(session: Session) -> Json:
    network = session.network
    return {
        "inputs": [tensor_facts(network.get_input(i)) for i in range(network.num_inputs)],
        "outputs": [tensor_facts(network.get_output(i)) for i in range(network.num_outputs)],
        "layers": [layer_facts(session, network.get_layer(i)) for i in range(network.num_layers)],
    }


def tensor_facts(tensor: Any) -> Json:
    """Name, type and shape: -1 is dynamic, None an unknown rank; None as a whole is an absent tensor."""
    if tensor is None:
        return None
    try:
        shape = list(tensor.shape)
    except ValueError:
        shape = None
    return {"name": tensor.name, "dtype": tensor.dtype.name, "shape": shape}


def layer_facts(session: Session, layer: Any) -> Json:
    facts = {
        "name": layer.name,
        "type": layer.type.name,
        "inputs": [tensor_facts(layer.get_input(i)) for i in range(layer.num_inputs)],
        "outputs": [tensor_facts(layer.get_output(i)) for i in range(layer.num_outputs)],
        "metadata": layer.metadata,
        "properties": {},
    }
    class_name, names = PROPERTIES.get(facts["type"], ("", ""))
    if hasattr(session.trt, class_name):
        layer.__class__ = getattr(session.trt, class_name)  # the binding hands out the base class
        values = {name: getattr(layer, name, None) for name in names.split()}
        facts["properties"] = {name: getattr(value, "name", value) for name, value in values.items()}
    return facts


def profile_faults(session: Session, profiles: list[Json]) -> list[str]:
    """Faults that TensorRT would accept in silence or report without a name; it finds the others itself."""
    inputs = {t.name: t for t in (session.network.get_input(i) for i in range(session.network.num_inputs))}
    dynamic = [name for name, t in inputs.items() if t.is_shape_tensor or -1 in tuple(t.shape)]
    if dynamic and not profiles:
        return ["no optimization profile for the dynamic input " + ", ".join(dynamic)]
    texts: list[str] = []
    known = "; the inputs are " + ", ".join(sorted(inputs))
    for number, profile in enumerate(profiles):
        faults = ["no shape for the dynamic input " + name for name in dynamic if name not in profile]
        faults += ["there is no input " + name + known for name in sorted(set(profile) - set(inputs))]
        for name in (n for n in dynamic if n in profile and inputs[n].is_shape_tensor):
            if "values" not in profile[name]:
                faults.append(f"input {name} decides shapes, so the profile must give its values as well")
        if session.features["dimension_names"] and not faults:
            faults = axis_faults(inputs, profile)
        texts.extend(f"profile {number}: {fault}" for fault in faults)
    return texts


def axis_faults(inputs: Mapping[str, Any], profile: Mapping[str, Json]) -> list[str]:
    """One named dimension must have one range, in whichever inputs it occurs."""
    seen: dict[str, tuple[str, list[int]]] = {}
    faults = []
    for name, ranges in profile.items():
        for axis, size in enumerate(inputs[name].shape):
            here = [ranges[key][axis] for key in RANGE if axis < len(ranges[key])]
            symbol = inputs[name].get_dimension_name(axis)
            other, there = seen.setdefault(symbol, (name, here)) if size == -1 and symbol else (name, here)
            if here != there:
                text = f"min, opt, max of dimension {symbol} are {there} in input {other}, "
                faults.append(text + f"but {here} in input {name}")
    return faults


def configure(session: Session, request: Mapping[str, Json]) -> Any:
    profiles = request.get("profiles") or []
    faults = profile_faults(session, profiles)
    if faults:
        raise refusal("PROFILE", *faults)
    config = session.builder.create_builder_config()
    config.progress_monitor = session.monitor
    if request.get("workspace") is not None:
        config.set_memory_pool_limit(session.trt.MemoryPoolType.WORKSPACE, request["workspace"])
    for name in request.get("flags") or []:
        config.set_flag(member(session, "BuilderFlag", name))
    if request.get("target"):
        if not session.features["targets"]:
            raise refusal("TARGET", session.product + " builds only for the GPU it runs on")
        config.num_compute_capabilities = 1
        config.set_compute_capability(member(session, "ComputeCapability", request["target"].upper()), 0)
    for profile in profiles:
        add_profile(session, config, profile)
    return config


def serialized(session: Session, config: Any) -> Any:
    plan = session.builder.build_serialized_network(session.network, config)
    if plan is None:
        raise refusal("BUILD", *(session.log.texts(*BAD) or [session.product + " gave no reason"]))
    bad = [text for text in session.log.texts("WARNING") if any(w in text for w in ERROR_WARNINGS)]
    if bad:
        raise refusal("WARNING", *bad)
    return plan


class Build:
    """Parse, check, build and write one engine; ``stage`` is where it stands."""

    def __init__(self, request: Mapping[str, Json], channel: Channel) -> None:
        self.request, self.channel = request, channel
        self.stage = "load"
        self.seconds: dict[str, float] = {}
        self.result: Json = dict(module=request["module"], errors=[], network=None, engine=None, log=[])

    def run(self) -> Json:
        try:
            session = Session(self.request, self.channel)
            log = session.log
            self.result.update(version=session.trt.__version__, log=log.records, log_counts=log.counts)
            self._timed("parse", lambda: parse(session, self.request["onnx"]))
            self.result.update(network=network_facts(session), num_layers=session.network.num_layers)
            config = self._timed("profile", lambda: configure(session, self.request))
            config.profiling_verbosity = session.trt.ProfilingVerbosity.DETAILED
            plan = self._timed("build", lambda: serialized(session, config))
            self._timed("write", lambda: self._write(plan))
            self.stage = "done"
        except Refused as exc:
            self.result["errors"] = exc.errors
        self.result.update(ok=self.stage == "done", stage=self.stage, seconds=self.seconds)
        return self.result

    def _timed(self, stage: str, work: Callable[[], Any]) -> Any:
        self.stage = stage
        self.channel.send("stage", stage=stage)
        start = time.monotonic()
        done = work()
        self.seconds[stage] = time.monotonic() - start
        return done

    def _write(self, plan: Any) -> None:
        path, view = self.request["engine"], memoryview(plan)
        draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.part")
        try:
            with open(draft, "wb") as stream:
                stream.write(view)
            os.replace(draft, path)
        except OSError as exc:
            raise refusal("WRITE", f"the engine cannot be written: {exc}") from exc
        self.result["engine"] = {"bytes": view.nbytes, "sha256": hashlib.sha256(view).hexdigest()}


def member(session: Session, enum: str, name: str) -> Any:
    known = getattr(session.trt, enum).__members__
    if name not in known:
        raise refusal("NO_MEMBER", f"{session.product} has no {enum} {name}; it has {', '.join(sorted(known))}")
    return known[name]


def add_profile(session: Session, config: Any, profile: Mapping[str, Json]) -> None:
    made = session.builder.create_optimization_profile()
    for name, ranges in profile.items():
        made.set_shape(name, *(tuple(ranges[key]) for key in RANGE))
        if "values" in ranges:
            made.set_shape_input(name, *(tuple(ranges["values"][key]) for key in RANGE))
    if config.add_optimization_profile(made) < 0:
        raise refusal("PROFILE", *dict.fromkeys(session.log.texts(*BAD)))


def probe(request: Mapping[str, Json], channel: Channel) -> Json:
    devices, no_device = cuda_devices()
    facts: Json = {"module": request["module"], "devices": devices, "no_device": no_device}
    try:
        session = Session(request, channel)
    except Refused as exc:
        return dict(facts, ok=False, errors=exc.errors)
    trt, takes = session.trt, session.parser.supports_operator
    targets = trt.ComputeCapability.__members__ if session.features["targets"] else ()
    facts.update(ok=True, errors=[], version=trt.__version__, features=session.features)
    facts.update(parser_version=trt.get_nv_onnx_parser_version(), data_types=list(trt.DataType.__members__))
    facts["targets"] = [name.lower() for name in targets if name.startswith("SM")]
    return dict(facts, operators={op: takes(op) for op in request.get("operators") or []})


def main() -> None:
    channel = Channel()
    request = json.load(sys.stdin)
    value = probe(request, channel) if request["op"] == "probe" else Build(request, channel).run()
    channel.send("result", value=value)


if __name__ == "__main__":
    main()
