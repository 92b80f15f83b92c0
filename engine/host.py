"""The step host: a child process that runs the steps of one group and streams their results.

Whatever a model, an exporter or a runtime does to the process (segfault, abort, memory), the
conductor survives it and knows in which step it happened. Protocol: see :mod:`engine.process`.
"""

from __future__ import annotations

import functools
import importlib
import os
import resource
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import reuse as reuse_of
from engine import workspace
from engine.digests import digest_file
from engine.errors import Failure, RecipeError, StepError
from engine.keys import READ
from engine.plain import from_plain, to_plain
from engine.plan import Plan
from engine.reuse import Reuse
from engine.steps.context import Context, Done
from engine.values import Artifact, StepResult
from engine.worker import child
from engine.worker.trt_worker import Channel


def serve(request: Mapping[str, Any], channel: Channel) -> list[str]:
    """Run ``request["steps"]`` in order, stop at the first that fails; return the names of those run."""
    earlier = {item["step"]: from_plain(StepResult, item) for item in request["earlier"]}
    context = Context(from_plain(Plan, request["plan"]), Path(request["out"]), earlier, _silent)
    context.memo |= request["memo"]
    reuse = Reuse.of_request(context.plan, context.out, request)
    ran: list[str] = []
    for name in request["steps"]:
        channel.send("step-start", step=name)
        context.progress = functools.partial(_progress, channel, name)
        was_shut = reuse.to_request()["shut"]
        result, failure = reused_or_run(name, context, reuse)
        if reuse.to_request()["shut"] and not was_shut:
            channel.send("store-shut")
        if result is not None:
            context.earlier[name] = result
            channel.send("step", result=to_plain(result))
        if failure is not None:
            print(failure.evidence, file=sys.stderr)
            channel.send("failure", step=name, failure=failure.to_plain())
            break
        ran.append(name)
    return ran


def _progress(channel: Channel, step: str, text: str, done: int, total: int) -> None:
    channel.send("progress", step=step, text=text, done=done, total=total)


def _silent(text: str, done: int, total: int) -> None:
    pass


def reused_or_run(name: str, context: Context, reuse: Reuse) -> tuple[StepResult | None, Failure | None]:
    """What the store has of a step, or what running it here and now came to; exactly one of the two is set."""
    found = reuse.find(name, context.earlier)
    if found is not None:
        return found, None
    result, failure = run_step(name, context, reuse)
    if result is not None:
        reuse.keep(result, context.earlier)
        result = replace(result, issues=(*result.issues, *reuse.troubles(name)))
    return result, failure


def run_step(name: str, context: Context, reuse: Reuse | None = None) -> tuple[StepResult | None, Failure | None]:
    """Run one step here and now; exactly one of the two results is set."""
    module = importlib.import_module(f"engine.steps.{name}")
    reuse = reuse or Reuse(context.plan, context.out)
    start = time.perf_counter()
    try:
        with reuse.watching(name) as read:
            done: Done = module.run(context.for_step(name))
    except StepError as error:
        return None, error.failure
    except RecipeError as error:
        return None, Failure(str(error), "tooling", usage=True)
    except MemoryError:
        return None, Failure(
            f"{name} ran out of memory", "tooling", fix="use smaller axes or a larger machine"
        )
    except Exception as error:  # noqa: BLE001 - process edge: anything else is a fault of ours
        why = workspace.outside(error, context.out) if isinstance(error, OSError) else ""
        symptom = f"{name}: {why}" if why else f"{type(error).__name__}: {error}"
        return None, Failure(symptom, "tooling", evidence=traceback.format_exc(), bug=not why)
    result = StepResult(
        step=name,
        status="not-run" if done.skipped else "ok",
        why=done.skipped,
        seconds=round(time.perf_counter() - start, 3),
        artifacts={key: _artifact(path, context.out) for key, path in done.artifacts.items()},
        facts={**done.facts, **({READ: read} if read else {})},
        measurements=done.measurements,
        issues=done.issues,
        ended=reuse_of.stamp(),
    )
    return replace(result, peak_bytes=done.peak_bytes or _peak_bytes()), None


def _artifact(path: Path, out: Path) -> Artifact:
    return Artifact(path.relative_to(out).as_posix(), digest_file(path), path.stat().st_size)


def _peak_bytes() -> int:
    """Peak resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


if __name__ == "__main__":
    child.serve(serve)
    sys.stderr.flush()
    os._exit(0)  # a thread that the model left running must not hold the run up
