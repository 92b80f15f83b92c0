"""Commands and short scripts that repeat each step of a run with public tools, without Portwright's engine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from engine.plan import Plan, PlannedModel, concrete
from engine.record import Record
from engine.steps import STEPS

Section = dict[str, str]


def sections(record: Record, prefix: str, beside: Path) -> list[Section]:
    """One section a step that ran. Paths are relative to ``beside``, the report's folder; run them there."""
    recipe = os.path.relpath(Path(record.plan.folder) / Path(record.plan.recipe_file).name, beside)
    makers = {
        "source": _source, "export": _export, "check": _check, "simplify": _simplify,
        "parity": _parity, "rehearse": _rehearse, "build": _build,
    }  # fmt: skip
    found = []
    for step in STEPS:
        result = record.result(step.name)
        if result is None or result.status != "ok":
            continue
        if step.name in makers:
            found += list(makers[step.name](record, prefix, step.name))
        else:
            command = f"portwright run {recipe} --until {step.name} --out by_hand"
            found.append(_section(step.name, "sh", command, "no public tool does this step"))
    return found


def _section(title: str, language: str, text: str, note: str = "") -> Section:
    return {"title": title, "language": language, "text": text, "note": note}


def _graph(record: Record, step: str, prefix: str) -> str:
    """Path of the newest graph at or before ``step``."""
    newest = ""
    for result in record.results:
        if "graph" in result.artifacts:
            newest = result.artifacts["graph"].path
        if result.step == step:
            break
    return prefix + newest


def _model_lines(plan: Plan) -> list[str]:
    return ["import sys", "from pathlib import Path", "import numpy as np", "import torch", *_loading(plan)]


def _loading(plan: Plan) -> list[str]:
    model = plan.model
    argument = f'Path("{model.weights}")' if model.weights and model.source == "python" else ""
    imported = [f'sys.path.insert(0, "{Path(model.file).parent}")',
                f"from {Path(model.file).stem} import {model.function}"]  # fmt: skip
    settings = "".join(f", {key}={value!r}" for key, value in model.arguments.items())
    seed = [] if model.weights else [f"torch.manual_seed({plan.seed})"]
    filled = _filling(model) if model.weights else []
    lines = {
        "python": [*imported, f"model = {model.function}({argument})"],
        "checkpoint": [*imported, f"model = {model.function}()", *filled],
        "exported": [f'model = torch.export.load("{model.file}").module()'],
        "torchscript": [f'model = torch.jit.load("{model.file}")'],
        "torchvision": [
            "import torchvision", *seed,
            f'model = torchvision.models.get_model("{model.name}", weights=None{settings})', *filled,
        ],
        "timm": ["import timm", *seed, f'model = timm.create_model("{model.name}"{settings})', *filled],
        "transformers": _transformers(model, settings, seed, filled),
    }[model.source]  # fmt: skip
    return lines if model.source == "exported" else [*lines, "model = model.eval()"]


def _filling(model: PlannedModel) -> list[str]:
    if Path(str(model.weights)).suffix == ".safetensors":
        read = ["from safetensors.torch import load_file", f'state = load_file("{model.weights}")']
    else:
        read = [f'state = torch.load("{model.weights}", map_location="cpu", weights_only=True)']
    inner = "".join(f'["{part}"]' for part in model.key.split(".") if part)
    return [*read, f"model.load_state_dict(state{inner})"]


def _transformers(model: PlannedModel, settings: str, seed: list[str], filled: list[str]) -> list[str]:
    name, config = model.name, model.config or model.weights
    lines = [f"from transformers import AutoConfig, {name}",
             f'config = AutoConfig.from_pretrained("{config}"{settings})', *seed]  # fmt: skip
    if model.weights and Path(model.weights).is_dir():
        return [*lines, f'model = {name}.from_pretrained("{model.weights}", config=config)']
    build = f"{name}.from_config(config)" if name.startswith("AutoModel") else f"{name}(config)"
    return [*lines, f"model = {build}", *filled]


def _source(record: Record, prefix: str, step: str) -> Iterator[Section]:
    shape = record.plan.parity_shapes[0]
    if record.plan.model.source == "onnx":
        lines = _session_lines(record.plan.model.file, f"{prefix}samples/{shape}.npz")
        yield _section(
            step, "python", "\n".join(lines), f"the ONNX file again at shape {shape}: differences are 0"
        )
        return
    called = "*inputs.values()" if record.plan.model.source == "exported" else "**inputs"
    lines = [
        *_model_lines(record.plan),
        f'stored = np.load("{prefix}samples/{shape}.npz")',
        'inputs = {k[6:]: torch.from_numpy(stored[k]) for k in stored.files if k.startswith("input/")}',
        "with torch.no_grad():",
        f"    print(model({called}))",
        'print({k: stored[k] for k in stored.files if k.startswith("fp32/")})',
    ]
    yield _section(step, "python", "\n".join(lines), f"reference outputs at shape {shape}")


def _export(record: Record, prefix: str, step: str) -> Iterator[Section]:
    plan = record.plan
    if plan.model.source == "onnx":
        target = f"{prefix}onnx/export.onnx"
        text = f'import onnx\nprint(len(onnx.load("{target}", load_external_data=False).graph.node))'
        yield _section(step, "python", text, "the file as it is, its weights copied beside it")
        return
    axes = [f'{name} = torch.export.Dim("{name}", min={axis.min}, max={axis.max})'
            for name, axis in plan.axes.items() if axis.min < axis.max]  # fmt: skip
    moving = {name for name, axis in plan.axes.items() if axis.min < axis.max}
    shapes = ", ".join(
        f'"{name}": {{'
        + ", ".join(f"{i}: {size}" for i, size in enumerate(item.shape) if size in moving)
        + "}"
        for name, item in plan.inputs.items()
    )
    call = (
        f'torch.onnx.export(model, (), "by_hand.onnx", kwargs=inputs, opset_version={plan.opset}, '
        f"dynamo=True, dynamic_shapes={{{shapes}}})"
    )
    if record.facts("export").get("exporter", plan.exporter) == "torchscript":
        call = (
            f'torch.onnx.export(model, (), "by_hand.onnx", kwargs=inputs, opset_version={plan.opset}, '
            f"dynamo=False, input_names={list(plan.inputs)}, dynamic_axes={{{shapes.replace(': ', ': ')}}})"
        )
        axes = [f'{name} = "{name}"' for name in moving]
    if plan.model.source == "exported":
        call = (
            f'torch.onnx.export(torch.export.load("{plan.model.file}"), (), "by_hand.onnx", '
            f"opset_version={plan.opset}, dynamo=True)"
        )
    lines = [
        *_model_lines(plan),
        f'stored = np.load("{prefix}samples/export.npz")',
        'inputs = {k[6:]: torch.from_numpy(stored[k]) for k in stored.files if k.startswith("input/")}',
        *axes,
        call,
    ]
    yield _section(step, "python", "\n".join(lines), "node and output names may differ")


def _check(record: Record, prefix: str, step: str) -> Iterator[Section]:
    path = _graph(record, "export", prefix)
    command = f"python -c \"import onnx; onnx.checker.check_model('{path}', full_check=True)\""
    yield _section(step, "sh", command)


def _simplify(record: Record, prefix: str, step: str) -> Iterator[Section]:
    yield _section(step, "sh", f"onnxsim {_graph(record, 'export', prefix)} by_hand_simplified.onnx")


def _session_lines(path: str, sample: str) -> list[str]:
    return [
        "import numpy as np",
        "import onnxruntime as ort",
        "options = ort.SessionOptions()",
        "options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL",
        f'session = ort.InferenceSession("{path}", options, providers=["CPUExecutionProvider"])',
        f'stored = np.load("{sample}")',
        'inputs = {item.name: stored["input/" + item.name] for item in session.get_inputs()}',
        "names = [item.name for item in session.get_outputs()]",
        "for name, got in zip(names, session.run(names, inputs)):",
        '    print(name, np.abs(got - stored["fp32/" + name]).max())',
    ]


def _parity(record: Record, prefix: str, step: str) -> Iterator[Section]:
    shape = record.plan.parity_shapes[-1]
    lines = _session_lines(_graph(record, "parity", prefix), f"{prefix}samples/{shape}.npz")
    yield _section(step, "python", "\n".join(lines), f"shape {shape}; the others alike")


def _rehearse(record: Record, prefix: str, step: str) -> Iterator[Section]:
    result = record.result("rehearse")
    assert result is not None
    shape = record.plan.parity_shapes[-1]
    path = prefix + result.artifacts["shadow"].path
    lines = _session_lines(path, f"{prefix}samples/{shape}.npz")
    yield _section(step, "python", "\n".join(lines), f"shape {shape}; the shadow graph holds the rounding")


def _build(record: Record, prefix: str, step: str) -> Iterator[Section]:
    facts = record.facts("build")
    plan, path = record.plan, _graph(record, "lower", prefix)
    shapes = " ".join(
        f"--{which}Shapes=" + ",".join(
            f"{name}:" + "x".join(str(size) for size in concrete(item.shape, plan.shapes[which]) or (1,))
            for name, item in plan.inputs.items()
        )
        for which in ("min", "opt", "max") if which in plan.shapes
    ) if plan.axes else ""  # fmt: skip
    rtx = facts["module"] == "tensorrt_rtx"
    target = plan.build.target
    tool = ["tensorrt_rtx" if rtx else "trtexec", f"--onnx={path}", shapes, "--saveEngine=by_hand.engine"]
    if not rtx:
        tool.append("--stronglyTyped")
    if rtx and target:
        tool.append(f"--computeCapabilities={target.removeprefix('sm')} --skipInference")
    yield _section(
        step,
        "sh",
        " ".join(part for part in tool if part),
        "the vendor's command line tool, which is not part of its Python package; not run here",
    )
    launcher = "python -m engine.worker.fixed_addresses python -m engine.worker.trt_worker"
    worker = f"{launcher} < engine/request.json"
    if prefix:
        worker = f"(cd {shlex.quote(prefix)} && {worker})"
    yield _section(
        f"{step}, as it was run",
        "sh",
        worker,
        "writes by_hand.engine and by_hand.log; same bytes in an environment of the same size, else a few differ",
    )
