"""An upgrade as a table, as Markdown and as plain data for JSON. All formatting happens here."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.accept import REHEARSED
from engine.diff import words
from engine.diff.change import Difference
from engine.paths import data_dir
from engine.upgrade.compare import Row
from engine.upgrade.replay import Side
from engine.wording import cell, number

COLUMNS = ("recipe", "change", "verdict", "error / limit", "engine MiB", "build s", "findings", "unneeded rules")
_MARKS = {"broke": "BROKE", "worse": "WORSE", "failing on both": "FAILING ON BOTH", "not compared": "NOT COMPARED"}


def headline(rows: Sequence[Row]) -> str:
    """What all rows come to."""
    good = sum(row.good for row in rows)
    counts = {row.status: sum(other.status == row.status for other in rows) for row in rows}
    return f"{good} of {len(rows)} accepted: " + ", ".join(f"{count} {status}" for status, count in counts.items())


def table(rows: Sequence[Row]) -> list[dict[str, str]]:
    """The cells of :data:`COLUMNS`."""
    cells = (
        (
            row.recipe,
            _MARKS.get(row.status, row.status),
            _short(row.after),
            " -> ".join(_unless_same([_error(side) for side in (row.before, row.after)])),
            " -> ".join(_unless_same([_mib(side) for side in (row.before, row.after)])),
            " -> ".join(_unless_same([_seconds(side) for side in (row.before, row.after)])),
            f"{len(row.findings_new)} new, {len(row.findings_gone)} gone",
            ", ".join(row.unneeded) or "-",
        )
        for row in rows
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in cells]


def figures(side: Side) -> tuple[str, ...]:
    """Verdict, rehearsed error, engine size, build time, and where the engine loads."""
    return _short(side), _error(side), _mib(side), _seconds(side), _loads(side)


def plain(rows: Sequence[Row], after: str) -> dict[str, Any]:
    """``figures`` are there where the side ran; nothing of it was measured on a GPU."""
    return {"to": after, "headline": headline(rows), "accepted": all(row.good for row in rows),
            "recipes": [_plain(row) for row in rows]}  # fmt: skip


def _plain(row: Row) -> dict[str, Any]:
    return {
        "recipe": row.recipe, "status": row.status, "accepted": row.good, "notes": list(row.notes),
        "from": side(row.before), "to": side(row.after),
        "changes": words.plain(_difference(row))["changes"],
        "findings_new": list(row.findings_new), "findings_gone": list(row.findings_gone),
        "unneeded_rules": list(row.unneeded),
    }  # fmt: skip


def side(run: Side) -> dict[str, Any]:
    """One run as plain data."""
    built = run.record.result("build") if run.record else None
    facts = built.facts if built else {}
    return {
        "toolchain": run.spec, "verdict": run.verdict.headline if run.verdict else None, "said": run.said,
        "folder": run.folder, "engine_bytes": facts.get("engine_bytes"), "layers": facts.get("network_layers"),
        "loads": facts.get("loads"), "build_seconds": built.seconds if built else None,
        "build_reused": built.reused if built else False,
        "claims": [{"name": claim.name, "limit": claim.limit, "value": claim.value, "status": claim.status}
                   for claim in (run.verdict.claims if run.verdict else ())],
    }  # fmt: skip


def _difference(row: Row) -> Difference:
    return Difference(row.before.spec, row.after.spec, row.changes, kind="locks")


def markdown(rows: Sequence[Row], before: str, after: str, recipes: Sequence[Path]) -> str:
    """The text of ``UPGRADE_REPORT.md``."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(data_dir("templates")), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    environment.filters["cell"] = cell
    words_of = ["portwright", "upgrade", *map(str, recipes), *(("--from", before) if before else ()), "--to", after]
    return environment.get_template("upgrade_report.md.j2").render(
        to=after, headline=headline(rows), columns=COLUMNS, table=table(rows),
        command=shlex.join(words_of), rows=[_view(row) for row in rows],
    )  # fmt: skip


def _view(row: Row) -> dict[str, Any]:
    changes = words.plain(_difference(row))["changes"]
    return {
        "name": row.recipe,
        "status": row.status,
        "notes": row.notes,
        "sides": [{"spec": side.spec, "said": side.said, "error": _error(side), "bytes": _bytes(side),
                   "seconds": _seconds(side), "loads": _loads(side)} for side in (row.before, row.after)],
        "changes": [change["text"] + (f" **{change['mark']}**" if change["mark"] else "") for change in changes],
        "new": row.findings_new,
        "gone": row.findings_gone,
        "unneeded": row.unneeded,
    }  # fmt: skip


def _short(side: Side) -> str:
    if side.verdict is None:
        return f"not run: {side.why}"
    return side.verdict.headline.split(";")[0] if side.accepted else side.verdict.headline


def _error(side: Side) -> str:
    """The rehearsed figure that is nearest to its limit."""
    found = [(claim.use, f"{number(claim.value)} {claim.limit}")
             for claim in (side.verdict.claims if side.verdict else ())
             if claim.use is not None and claim.name.startswith(REHEARSED)]  # fmt: skip
    return max(found)[1] if found else "-"


def _built(side: Side) -> Any:
    return side.record.facts("build") if side.record else {}


def _mib(side: Side) -> str:
    return f"{_built(side)['engine_bytes'] / 2**20:.1f}" if "engine_bytes" in _built(side) else "-"


def _bytes(side: Side) -> str:
    return f"{_built(side)['engine_bytes']:,}" if "engine_bytes" in _built(side) else "-"


def _loads(side: Side) -> str:
    return str(_built(side).get("loads", "-"))


def _seconds(side: Side) -> str:
    built = side.record.result("build") if side.record else None
    return f"{built.seconds:.1f}" if built and built.status == "ok" else "-"


def _unless_same(pair: list[str]) -> list[str]:
    return pair[:1] if pair[0] == pair[1] else pair
