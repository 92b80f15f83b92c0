"""One ONNX file under repair: checked, loaded, its nodes named, and written for the toolchain to look at."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir

from engine import compatibility
from engine import toolchain as tools
from engine.errors import Failure, Problem, StepError
from engine.graph import external, files, filled, inlined, names, sound
from engine.refusals import Question
from engine.rewriting import sizes as axis_sizes
from engine.rewriting.sizes import Profile, Sizes

_OLD_IR = 4  # before it, every weight had to be listed among the inputs as well


class Subject:
    """``model`` is rewritten in place; the file at ``path`` is only read."""

    def __init__(self, path: Path, sizes: Sizes) -> None:
        self.path = path
        self.model = _load(path)
        self.notes: list[str] = []
        self.profile: Profile = axis_sizes.profile(self.model, sizes)
        self.changed = False
        self.reshaped: set[str] = set()  # outputs of which the file says another rank than they have

    def question(self, folder: Path) -> Question:
        """Write the graph as it is now into ``folder`` (kept for this file) and ask whether it is taken."""
        folder.mkdir(exist_ok=True)
        for location in external.locations(self.path):
            link = folder / location
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                os.symlink((self.path.parent / location).resolve(), link)
        target = folder / "model.onnx"
        files.save(self.model, target)
        return Question(target, build=not self.profile.lacking, profile=self.profile.ranges)

    def note_opset(self, tool: tools.Toolchain) -> None:
        limit, written = compatibility.opset_limit(tool.module, tool.version), self.model.opset_imports.get("", 1)
        if written > limit:
            self.notes.append(
                f"opset {written} is above {limit}, the newest known to be taken by {tool.spec};"
                " the parser itself would not say so"
            )

    def node_names(self) -> dict[str, str]:
        """Operator by node name, subgraphs included."""
        return {node.name or "": node.op_type for node in self.model.graph.all_nodes()}

    def around(self) -> dict[str, str]:
        """By the name of a node in a subgraph: the node that holds the subgraph."""
        found: dict[str, str] = {}
        for node in self.model.graph.all_nodes():
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    found |= {inner.name or "": node.name or "" for inner in attribute.as_graph()}
        return found

    def along(self, name: str) -> list[str]:
        """The nodes that the uint8 tensors of the node called ``name`` come from and go to, through others of uint8."""
        start = next((node for node in self.model.graph.all_nodes() if node.name == name), None)
        found = [start] if start is not None else []
        for node in found:  # grows while it is gone through
            for value in (*node.inputs, *node.outputs):
                if value is not None and value.dtype == ir.DataType.UINT8:
                    maker = value.producer()
                    near = [*([maker] if maker is not None else []), *value.consumers()]
                    found += [other for other in near if other not in found]
        return [node.name or "" for node in found[1:]]

    def note_ranks(self, before: Mapping[str, int | None]) -> None:
        """Say of which outputs the rank is another one than ``before``, by name."""
        for name, rank in self.ranks().items():
            if rank != before[name]:
                self.reshaped.add(name)
                self.notes.append(f"output '{name}' has {rank} axes; the file said {before[name]}")

    def ranks(self) -> dict[str, int | None]:
        outputs = self.model.graph.outputs
        return {value.name or "": None if value.shape is None else len(value.shape) for value in outputs}


def opened(path: Path, sizes: Sizes) -> Subject | Problem:
    """The file, or its first fault by the checks of the check step."""
    if not path.is_file() or path.stat().st_size == 0:
        what = "is a folder" if path.is_dir() else "is empty" if path.exists() else "no such file"
        return Problem(f"'{path}': {what}")
    try:
        sound.require(path, taken=True, original=True)
        return Subject(path, sizes)
    except StepError as error:
        return _problem(path, error.failure)


def _problem(path: Path, failure: Failure) -> Problem:
    said = failure.symptom.replace(path.name, f"'{path}'", 1)
    what = said if path.name in failure.symptom else f"'{path}': {said}"
    cause = "" if failure.cause == sound.TAKEN else failure.cause
    return Problem(what + (f" ({cause})" if cause else ""), hint=failure.fix)


def _load(path: Path) -> ir.Model:
    model = files.load(path)
    inlined.inline(model)
    if model.ir_version < _OLD_IR:
        for value in [value for value in model.graph.inputs if value.name in model.graph.initializers]:
            model.graph.inputs.remove(value)
    names.name_nodes(model)
    filled.fill(model)
    return model
