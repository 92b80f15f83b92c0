"""Ask a toolchain which of many ONNX files it takes, and at which nodes it refuses the others."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine.errors import Failure, StepError
from engine.toolchain import Toolchain, run_worker

if TYPE_CHECKING:
    from engine.process import Outcome

Stage = Literal["parse", "profile", "build", "done", "crash"]
Ranges = Mapping[str, Mapping[str, Sequence[int]]]  # input name -> min, opt, max -> shape

AT_ONCE = 200  # files a process, so that what TensorRT keeps of each does not add up
SECONDS = 600  # for one file
# The worker's words for shapes or values of inputs that were not given.
_LACKS = re.compile(r"no optimization profile|no shape for the dynamic input|must give its values")


@dataclass(frozen=True)
class Question:
    """A file to try. Without ``build`` it is parsed only; ``profile`` is for its dynamic inputs."""

    path: Path
    build: bool = True
    profile: Ranges = field(default_factory=dict)


@dataclass(frozen=True)
class Refusal:
    """What TensorRT says against a file. ``node`` and ``op`` are None where it names none."""

    text: str
    node: str | None = None
    op: str | None = None
    raw: str = ""


@dataclass(frozen=True)
class Answer:
    """How far a file came: ``stage`` is the last one entered, ``ok`` that everything asked for was done."""

    stage: Stage
    ok: bool
    refusals: tuple[Refusal, ...] = ()

    @property
    def lacks_shapes(self) -> bool:
        """Whether nothing is wrong with it but that shapes or values of inputs were not given."""
        return self.stage == "profile" and all(_LACKS.search(refusal.text) for refusal in self.refusals)


def ask(
    toolchain: Toolchain,
    questions: Sequence[Question],
    *,
    target: str | None = None,
    seconds: int = SECONDS,
    on_answer: Callable[[int], None] = lambda number: None,
) -> list[Answer]:
    """An answer to each question, in order. A file that kills TensorRT costs that one only.

    ``on_answer`` is called with the number of answers so far. Raises StepError when TensorRT does not start.
    """
    answers: list[Answer] = []

    def take(message: Mapping[str, Any]) -> None:
        if message["kind"] == "tried":
            answers.append(_answer(toolchain, message))
            on_answer(len(answers))

    while len(answers) < len(questions):
        first = len(answers)
        some = questions[first : first + AT_ONCE]
        outcome = _run(toolchain, some, target, seconds, take)
        if outcome.answered and outcome.result["errors"] and len(answers) == first:
            texts = "; ".join(error["text"] for error in outcome.result["errors"])
            raise StepError(Failure(f"{toolchain.spec} does not start: {texts}", where="build.toolchain"))
        if len(answers) < first + len(some):
            answers.append(_crash(outcome, seconds))
            on_answer(len(answers))
    return answers


def _run(
    toolchain: Toolchain,
    questions: Sequence[Question],
    target: str | None,
    seconds: int,
    take: Callable[[Mapping[str, Any]], None],
) -> Outcome:
    from engine.process import Limits

    files = [
        {"onnx": str(one.path), "build": one.build, "profiles": [one.profile] if one.profile else []}
        for one in questions
    ]
    request = {
        "op": "try", "module": toolchain.module, "target": target, "seconds": seconds, "files": files
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="portwright-") as folder:
        return run_worker(toolchain, request, Path(folder) / "log", Limits(), take, script="trt_try.py")


def _answer(toolchain: Toolchain, message: Mapping[str, Any]) -> Answer:
    from engine.worker.explain import explained

    told = explained({**message, "module": toolchain.module, "version": toolchain.version})
    refusals = (Refusal(error["text"], error["node"], error["op"], error["raw"]) for error in told["errors"])
    return Answer(message["stage"], message["ok"], tuple(dict.fromkeys(refusals)))


def _crash(outcome: Outcome, seconds: int) -> Answer:
    import signal

    if outcome.returncode == -signal.SIGALRM:
        text = f"TensorRT gave no answer within {seconds} s and was stopped"
    else:
        text = f"crashed TensorRT ({outcome.describe()})"
    return Answer("crash", False, (Refusal(text, raw="\n".join(outcome.log_tail)),))
