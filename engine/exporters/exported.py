"""What an exporter hands on, and how its failures are worded."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.errors import StepError
from engine.values import Issue

if TYPE_CHECKING:
    import onnx_ir as ir

    from engine.traced import Constant, Found


@dataclass(frozen=True)
class Exported:
    """A graph in memory with condensed provenance.

    ``capture`` names how the model was traced. ``used`` are the parameters and buffers that the outputs need,
    None when that is unknown. ``before`` is the graph before its constants were folded, ``constants`` the
    numbers of the traced program, ``doubles`` its operations in float64, ``types`` its tensors' types by name.
    """

    exporter: str
    model: ir.Model
    capture: str
    issues: tuple[Issue, ...] = ()
    used: frozenset[str] | None = None
    before: ir.Model | None = None
    constants: tuple[Constant, ...] = ()
    doubles: tuple[Found, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)


def failed(who: str, error: BaseException) -> StepError:
    """The innermost reason on one line; the whole text is the evidence."""
    chain: list[BaseException] = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    lines = [line for line in str(chain[-1]).strip().splitlines() if line.strip()]
    text = " ".join(line.strip() for line in lines[:8])[:900]
    shape = "constraint" in text.lower() or "specializ" in text.lower() or "dynamic" in text.lower()
    return StepError(
        f"{who} failed: {type(chain[-1]).__name__}: {text}",
        klass="shape" if shape else "export",
        fix="the whole text is in the log torch.log; the torchscript exporter takes more models, but it bakes"
        " Python values and branches into the graph",
        where="axes" if shape else "model.python",
        evidence="".join(traceback.format_exception(error))[-4000:],
    )
