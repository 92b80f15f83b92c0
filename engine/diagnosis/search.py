"""A minimal set that makes a test pass, in about k log2(n) tests for k members out of n candidates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
Test = Callable[[frozenset[T]], bool]


class TooMany(Exception):
    """More members are needed than the caller wants to hear of."""


def minimal(ranked: Sequence[T], passes: Test[T], most: int, longest: int = sys.maxsize) -> frozenset[T]:
    """Return a subset of ``ranked`` that passes and of which no member can be left out.

    The whole of ``ranked`` must pass, and a set must not fail where a part of it passes; both are the caller's to
    know. The shortest prefix that passes ends in a member that is needed: it is kept, and the search goes on
    among those before it (Junker, QuickXplain, AAAI 2004, in its iterative form). The better the ranking, the
    fewer tests: prefixes are tried at doubled lengths first. Raises TooMany past ``most`` members, and when the
    first prefix is longer than ``longest``: then no few members are the cause.
    """
    needed: frozenset[T] = frozenset()
    end = len(ranked)
    while not passes(needed):
        if len(needed) == most:
            raise TooMany(f"more than {most}")
        end = _shortest(ranked, end, needed, passes)
        if end > longest:
            raise TooMany(f"not among the first {longest}")
        needed |= {ranked[end - 1]}
        end -= 1
    return needed


def _shortest(ranked: Sequence[T], end: int, needed: frozenset[T], passes: Test[T]) -> int:
    """Length of the shortest prefix of ``ranked[:end]`` that passes together with ``needed``; ``end`` is one."""
    fails, good = 0, end
    length = 1
    while length < end:
        if passes(needed | frozenset(ranked[:length])):
            good = length
            break
        fails, length = length, 2 * length
    while good - fails > 1:
        middle = (fails + good) // 2
        if passes(needed | frozenset(ranked[:middle])):
            good = middle
        else:
            fails = middle
    return good


def pruned(members: Sequence[T], passes: Test[T], most_tests: int) -> tuple[T, ...]:
    """``members`` without those that can be left out one by one, the last first; at most ``most_tests`` tests."""
    kept = list(members)
    for item in list(reversed(members))[:most_tests]:
        fewer = [other for other in kept if other != item]
        if fewer and passes(frozenset(fewer)):
            kept = fewer
    return tuple(kept)
