"""What a rewrite came to, for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from engine.rewriting.result import Remaining, Rewritten, Used
from engine.wording import number

_LONGEST = 300  # characters of what TensorRT says


def text(results: Sequence[Rewritten], product: str) -> str:
    """A paragraph for each file and the sum in the last line."""
    return "\n".join(line for result in results for line in _file(result, product)) + f"\n{total(results)}"


def total(results: Sequence[Rewritten]) -> str:
    verdicts = {"build": "builds", "parse": "parses", "refused": "refused", "failed": "failed"}
    counts = [
        f"{sum(one.verdict == verdict for one in results)} {word}" for word, verdict in verdicts.items()
    ]
    unsound = sum(one.verdict == "unsound" for one in results)
    counts += [f"{unsound} not sound"] if unsound else []
    times = sum(used.times for one in results for used in one.used)
    rules = len({used.rule for one in results for used in one.used})
    applied = f"{_count(times, 'application')} of {_count(rules, 'rule')}"
    return f"{_count(len(results), 'file')}: {', '.join(counts)}; {applied}"


def _file(result: Rewritten, product: str) -> Iterator[str]:
    verdicts = {"builds": f"builds with {product}", "parses": f"parsed by {product}",
                "refused": f"refused by {product}", "failed": "failed, nothing written",
                "unsound": "not usable, nothing written"}  # fmt: skip
    why = f"; {result.why}" if result.why else ""
    yield f"{result.file}: {verdicts[result.verdict]}{why}"
    for note in result.notes:
        yield f"  note: {note}"
    yield from (_used(used) for used in result.used)
    if result.whole and result.whole.why:
        yield f"  as a whole {result.whole.why}"
    elif result.whole:
        whole = result.whole
        yield (
            f"  as a whole: {whole.numbers:,} numbers equal in {_count(whole.cases, 'run')},"
            f" largest difference {number(whole.max_abs)} ({', '.join(whole.runtimes)})"
        )
    for item in result.remaining:
        yield from _remaining(item)
    if result.output:
        yield f"  {'written to' if result.changed else 'copied unchanged to'} {result.output}"


def _used(used: Used) -> str:
    return (
        f"  rule {used.rule}: {_count(used.times, 'time')}, {used.nodes_before} -> {used.nodes_after} nodes,"
        f" {_count(used.cases, 'proof')}, largest difference {number(used.max_abs)}"
    )


def _remaining(item: Remaining) -> Iterator[str]:
    where = f"node {item.node} ({item.op}): " if item.node and item.node not in item.text else ""
    yield f"  remains: {where}{textwrap.shorten(item.text, _LONGEST)}"
    if item.op and not item.rules:
        yield f"    {no_rule(item)}"
    for tried in item.rules:
        yield f"    rule {tried.rule}: {tried.why}"


def no_rule(item: Remaining) -> str:
    if item.others:
        return f"no rule for {item.op} here; of {_count(item.others, 'rule')} for parts that hold one, none is near"
    return f"no rule for {item.op or 'it'}"


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
