"""A difference as text, Markdown or plain data for JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from engine.diff import lock_words
from engine.diff.change import CODE, LOUD, Change, Difference
from engine.errors import quoted


def text(found: Difference) -> str:
    """One line a change, then what it means for a run."""
    if not found.changes:
        return f"{found.old} and {found.new} say the same" + _written_note(found, "\n")
    lines = [_said(found, change) + (f"  {change.mark}" if change.mark else "") for change in found.changes]
    return "\n".join([*lines, "", *_summary(found)]) + _written_note(found, "\n")


def markdown(found: Difference) -> str:
    """For a pull request comment: what became looser first."""
    head = f"**{'Lock' if found.kind == 'locks' else 'Recipe'}:** {_code(found.old)} → {_code(found.new)}"
    if not found.changes:
        return f"{head}\n\nBoth say the same." + _written_note(found, "\n\n")
    lines = [head, ""]
    if found.loud:
        counts = [
            f"{len(few)} {word}" for few, word in ((found.worse, "worse"), (found.looser, "looser")) if few
        ]
        lines += [f"> **⚠ {', '.join(counts)}:**", ">"]
        lines += [f"> - {_escaped(_said(found, change))} **{change.mark}**" for change in found.loud] + [""]
    for section, changes in _sections(found):
        lines += [f"**{section}**", ""]
        for change in changes:
            strong = f" **{change.mark}**" if change.mark in LOUD else f" {change.mark}"
            lines.append(f"- {_escaped(_said(found, change))}{strong if change.mark else ''}")
        lines.append("")
    return "\n".join([*lines, *map(_escaped, _summary(found))]) + _written_note(found, "\n\n")


def plain(found: Difference) -> dict[str, Any]:
    changes = [{"key": change.key, "what": change.what, "old": change.old, "new": change.new,
                "mark": change.mark, "text": _said(found, change)} for change in found.changes]  # fmt: skip
    if found.kind == "locks":
        return {"old": found.old, "new": found.new, "equal": not changes, "compared": "locks",
                "worse": len(found.worse), "looser": len(found.looser), "changes": changes}  # fmt: skip
    return {
        "old": found.old,
        "new": found.new,
        "equal": not found.changes,
        "compared": "as written" if found.as_written else "as resolved",
        "why_as_written": found.as_written,
        "looser": len(found.looser),
        "changes": changes,
        "steps": list(found.steps),
    }


def _said(found: Difference, change: Change) -> str:
    return lock_words.sentence(change, _value) if found.kind == "locks" else sentence(change)


def sentence(change: Change) -> str:
    """The change of a recipe in words, on one line."""
    if change.what == "order" and change.key in ("rewrites", "precision.overrides"):
        return f"{change.key}: order is now {', '.join(change.new)}; it was {', '.join(change.old)}"
    if change.key == "rewrites" and change.what == "auto":
        return f"rewrites: {change.old} -> {change.new}"
    if change.key.startswith("rewrites"):
        return _rewrite(change)
    if change.key.startswith("precision.overrides"):
        return _override(change)
    if change.key.startswith("waivers"):
        return _waiver(change)
    if change.key.startswith("stress"):
        return _stress(change)
    key = change.key
    if change.what:
        section, _, rest = key.partition(".")
        key = ".".join(filter(None, (section, change.what, rest)))
    if change.key.endswith(f".{CODE}"):
        return f"{key.removesuffix(f'.{CODE}')}: the code itself changed"
    if change.old is None:
        return f"{key}: {_value(change.new)} added"
    if change.new is None:
        return f"{key}: {_value(change.old)} dropped"
    old, new = (
        _value(change.old) + _default(change.old_default),
        _value(change.new) + _default(change.new_default),
    )
    return f"{key}: {old} -> {new}"


def _rewrite(change: Change) -> str:
    rule = change.what.removeprefix("rule ")
    because = f" (because {_one_line(change.because)})" if change.because else ""
    if change.key == "rewrites":
        return f"rewrites: {rule} dropped" if change.new is None else f"rewrites: {rule} added{because}"
    part = change.key.removeprefix("rewrites.")
    if part == CODE:
        return f"rewrites: {rule}: the rule itself changed"
    if part == "matches":
        return f"rewrites: {rule} must match {_times(change.new)}; it was {_times(change.old)}"
    return f"rewrites: {rule}: {_part(part, change)}"


def _waiver(change: Change) -> str:
    claim = change.what.removeprefix("claim ")
    if change.key != "waivers":
        return f"waivers: {claim}: {_part(change.key.removeprefix('waivers.'), change)}"
    if change.new is None:
        return f"waivers: {claim} no longer waived"
    by = f"until {change.new.get('expires')} by {_one_line(str(change.new.get('owner')))}"
    return f"waivers: {claim} waived {by} (because {_one_line(change.because)})"


def _stress(change: Change) -> str:
    key, _, part = change.key.removeprefix("stress.").partition(".")
    case = change.what.partition(" ")[2]
    because = f" (because {_one_line(change.because)})" if change.because else ""
    if part:
        return f"stress: {case}: {_part(part, change)}"
    if key == "add":
        return f"stress: case {case} " + ("dropped" if change.new is None else f"added{because}")
    return f"stress: {case} " + ("no longer left out" if change.new is None else f"left out{because}")


def _times(count: int | None) -> str:
    return "any number of times" if count is None else "once" if count == 1 else f"{count} times"


def _override(change: Change) -> str:
    because = f" (because {_one_line(change.because)})" if change.because else ""
    if change.key == "precision.overrides":
        if change.new is None:
            return f"precision: {change.what} no longer {change.old['type']}"
        return f"precision: {change.what} now {change.new['type']}{because}"
    part = change.key.removeprefix("precision.overrides.")
    if part == "type":
        return f"precision: {change.what} now {change.new} instead of {change.old}{because}"
    return f"precision: {change.what}: {_part(part, change)}"


def _part(part: str, change: Change) -> str:
    if change.old is None or change.new is None:
        return f"{part} {_value(change.new)} added" if change.old is None else f"{part} dropped"
    return f"{part}: {_value(change.old)} -> {_value(change.new)}"


def _default(is_default: bool) -> str:
    return " (default)" if is_default else ""


def _value(value: Any) -> str:
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        if set(value) == {"kind", "numbers"}:
            return f"{value['kind']} {_value(value['numbers'])}" if value["numbers"] else value["kind"]
        return "{" + ", ".join(f"{key}: {_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        return value if re.fullmatch(r"[\w.:/@=<> +*-]{1,60}", value) else quoted(value, 200)
    return str(value)


def _one_line(reason: str) -> str:
    return quoted(" ".join(reason.split()), 200)[1:-1]


def _sections(found: Difference) -> Iterator[tuple[str, list[Change]]]:
    sections: dict[str, list[Change]] = {}
    for change in found.changes:
        sections.setdefault(change.key.partition(".")[0], []).append(change)
    yield from sections.items()


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _summary(found: Difference) -> Iterator[str]:
    tighter = sum(change.mark == "tighter" for change in found.changes)
    if found.kind == "locks":
        better = sum(change.mark == "better" for change in found.changes)
        counts = f"{len(found.worse)} worse, {better} better, {len(found.looser)} looser, {tighter} tighter"
        yield f"{_counted(len(found.changes), 'change')}: {counts}"
        return
    yield (f"{_counted(len(found.changes), 'change')}: {len(found.looser)} looser, {tighter} tighter")
    if found.steps:
        yield f"steps affected: {', '.join(found.steps)}"
    else:
        yield "steps affected: none; the verdict and the report are"


def _written_note(found: Difference, before: str) -> str:
    return f"{before}compared as written, without defaults: {found.as_written}" if found.as_written else ""


def _code(name: str) -> str:
    return f"`{name.replace('`', ' ')}`"


def _escaped(words: str) -> str:
    """No word of a recipe becomes markup, a link, a mention or an issue number."""
    words = re.sub(r"([\\`*_{}\[\]<>|#~!&])", r"\\\1", words)
    return words.replace("@", "@\u200b").replace("://", ":\u200b//")
