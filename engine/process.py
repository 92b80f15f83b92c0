"""Run a child that speaks the worker protocol, with limits, so that its death is a result and not ours.

Protocol: the request is one JSON document on the child's stdin. The child keeps its original stdout for
messages, one JSON object a line, and points file descriptor 1 at stderr so that foreign prints reach the
log. A message is ``{"kind": ..., ...}``; exactly one is ``{"kind": "result", "value": ...}``.

The child runs in a process group led by a tiny shell that holds a pipe from us. When we die, however
suddenly, the pipe closes and the shell kills the group; no cooperation of the child is needed. POSIX only.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal

Kind = Literal["ok", "exit", "signal", "timeout", "memory"]
Message = dict[str, Any]

TICK_SECONDS = 0.05  # how often limits are checked, at least
GRACE_SECONDS = 1.0  # between SIGTERM and SIGKILL
TAIL_LINES = 20
TAIL_WIDTH = 500  # characters kept of one line of the tail
LONGEST_MESSAGE = 256 * 1024**2  # bytes; a longer line is garbage
_GUARD = "trap '' TERM INT HUP; read -r _; kill -9 0"


@dataclass(frozen=True)
class Limits:
    """Wall seconds, and bytes of resident memory summed over the child and its descendants."""

    seconds: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Outcome:
    """How a child ended. ``ok`` means exit code 0 and a result; ``exit`` any other end of its own accord.

    ``result`` may be set on every kind: a child can answer and then crash. ``returncode`` is negative for a
    signal, as in ``subprocess``. ``peak_bytes`` is the peak resident memory of the child and its descendants;
    it is sampled, so that a peak of less than 50 ms can be missed in a child smaller than this process.
    """

    kind: Kind
    returncode: int | None
    result: Any
    seconds: float
    peak_bytes: int
    log_tail: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    answered: bool = False

    def describe(self) -> str:
        after = f"after {self.seconds:.1f} s"
        if self.kind == "timeout":
            return f"no answer within {self.limits.seconds:g} s, stopped"
        if self.kind == "memory":
            return f"used {_size(self.peak_bytes)}, limit {_size(self.limits.bytes or 0)}, stopped"
        if self.kind == "signal":
            number = -(self.returncode or 0)
            return f"killed by signal {number} ({_signal_name(number)}) {after}"
        if self.kind == "exit":
            lacking = "" if self.answered else " without a result"
            return f"ended with exit code {self.returncode}{lacking} {after}"
        return f"finished {after}"


def run_child(
    argv: Sequence[str],
    request: Mapping[str, Any],
    *,
    log: Path,
    limits: Limits = Limits(),
    on_message: Callable[[Message], None] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Outcome:
    """Run ``argv``, hand it ``request`` and wait for its end or for a breach of ``limits``.

    The child's stderr, and whatever on its stdout is not a message, goes whole to the file ``log``.
    ``on_message`` is called in this thread for every message except the result; if it raises, the child is
    killed and the exception goes on. ``env`` is the whole environment (None: ours).
    Raises OSError when ``argv`` cannot be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab", buffering=0) as sink:
        sink.truncate(0)
        run = _Run(argv, request, sink, limits, on_message or _ignore, env, cwd)
        try:
            kind = run.wait()
        finally:
            run.kill_group()
        return run.outcome(kind, _tail(log))


class _Run:
    """One child under way: the processes, the message stream, the clock."""

    def __init__(
        self,
        argv: Sequence[str],
        request: Mapping[str, Any],
        sink: IO[bytes],
        limits: Limits,
        on_message: Callable[[Message], None],
        env: Mapping[str, str] | None,
        cwd: Path | None,
    ) -> None:
        from engine.process_memory import MemoryMeter  # psutil takes 10 ms, and most commands start no child

        self.limits, self.on_message, self.sink = limits, on_message, sink
        self.lines = _Lines()
        self.results: list[Any] = []
        self.started = time.monotonic()
        self.guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD], stdin=subprocess.PIPE, stdout=sink, stderr=sink, process_group=0
        )
        try:
            self.child = _start(argv, request, sink, env, cwd, self.guard.pid)
        except BaseException:
            self._dismiss_guard()
            raise
        self.meter = MemoryMeter(self.child.pid)

    def wait(self) -> Kind:
        """Serve messages until the child ends or breaks a limit."""
        assert self.child.stdout is not None
        os.set_blocking(self.child.stdout.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.child.stdout, selectors.EVENT_READ)
            while True:
                pause = min(TICK_SECONDS, 0.002 + 0.1 * (time.monotonic() - self.started))
                if not selector.get_map():
                    time.sleep(pause)
                elif selector.select(pause) and self._read_chunk() == b"":
                    selector.unregister(self.child.stdout)
                self.meter.sample_if_due(pause)
                if self._reap():
                    return self._last_words()
                breach = self._breach()
                if breach is not None:
                    return breach

    def _breach(self) -> Kind | None:
        if self.limits.seconds is not None and time.monotonic() - self.started > self.limits.seconds:
            return "timeout"
        if self.limits.bytes is not None and self.meter.current > self.limits.bytes:
            return "memory"
        return None

    def _last_words(self) -> Kind:
        while self._read_chunk():
            pass
        for line in self.lines.flush():
            self._take(line)
        if self.child.returncode < 0:
            return "signal"
        return "ok" if self.child.returncode == 0 and self.results else "exit"

    def _read_chunk(self) -> bytes | None:
        """Take what the pipe holds: b"" at its end, None when it is open but dry."""
        assert self.child.stdout is not None
        chunk = self.child.stdout.read(1 << 18)
        for line in self.lines.feed(chunk or b""):
            self._take(line)
        return chunk

    def _take(self, line: bytes) -> None:
        message = _message(line)
        if message is None:
            self.sink.write(line)
        elif message["kind"] != "result":
            self.on_message(message)
        elif not self.results:
            self.results.append(message.get("value"))

    def _reap(self) -> bool:
        """Collect the child's exit status and resource use once it has ended."""
        if self.child.returncode is not None:
            return True
        pid, status, usage = os.wait4(self.child.pid, os.WNOHANG)
        if pid == 0:
            return False
        self.child.returncode = os.waitstatus_to_exitcode(status)
        self.meter.add_kernel_peak(usage.ru_maxrss)
        return True

    def kill_group(self) -> None:
        """End whatever still runs: SIGTERM, a grace period for the child, then SIGKILL for its whole tree."""
        self.meter.note_descendants()
        if not self._reap():
            _signal_group(self.guard.pid, signal.SIGTERM)
            deadline = time.monotonic() + GRACE_SECONDS
            while not self._reap() and time.monotonic() < deadline:
                time.sleep(0.01)
        _signal_group(self.guard.pid, signal.SIGKILL)
        self.meter.kill_descendants()
        while not self._reap():
            time.sleep(0.01)
        if self.child.stdout is not None:
            self.child.stdout.close()
        self._dismiss_guard()

    def _dismiss_guard(self) -> None:
        self.guard.kill()
        self.guard.wait()
        if self.guard.stdin is not None:
            self.guard.stdin.close()

    def outcome(self, kind: Kind, tail: tuple[str, ...]) -> Outcome:
        return Outcome(
            kind=kind,
            returncode=self.child.returncode,
            result=self.results[0] if self.results else None,
            seconds=time.monotonic() - self.started,
            peak_bytes=self.meter.peak,
            log_tail=tail,
            limits=self.limits,
            answered=bool(self.results),
        )


def _start(
    argv: Sequence[str],
    request: Mapping[str, Any],
    sink: IO[bytes],
    env: Mapping[str, str] | None,
    cwd: Path | None,
    group: int,
) -> subprocess.Popen[bytes]:
    with tempfile.TemporaryFile() as stdin:  # a file, so that a child that never reads cannot block us
        stdin.write(json.dumps(request).encode())
        stdin.seek(0)
        return subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=sink,
            bufsize=0,
            env=None if env is None else dict(env),
            cwd=cwd,
            process_group=group,
        )


class _Lines:
    """Cuts a byte stream into lines; a line beyond LONGEST_MESSAGE comes out in pieces."""

    def __init__(self) -> None:
        self.rest: list[bytes] = []
        self.held = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        head, newline, tail = chunk.rpartition(b"\n")
        if newline:
            whole = b"".join([*self.rest, head, newline])
            self.rest, self.held = [], 0
            yield from whole.splitlines(keepends=True)
        self.rest.append(tail)
        self.held += len(tail)
        if self.held > LONGEST_MESSAGE:
            yield from self.flush()

    def flush(self) -> Iterator[bytes]:
        piece = b"".join(self.rest)
        self.rest, self.held = [], 0
        if piece:
            yield piece


def _message(line: bytes) -> Message | None:
    if not line.startswith(b"{"):
        return None
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) and isinstance(message.get("kind"), str) else None


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)


def _tail(log: Path) -> tuple[str, ...]:
    with log.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 64 * 1024))
        lines = stream.read().decode("utf-8", "replace").splitlines()
    return tuple(line[:TAIL_WIDTH] for line in lines[-TAIL_LINES:])


def _signal_name(number: int) -> str:
    if number == signal.SIGKILL:
        return "killed from outside, often by the system for want of memory"
    return (signal.strsignal(number) or "unknown").lower()


def _size(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 else f"{count / 1024**2:.0f} MiB"


def _ignore(_: Message) -> None:
    pass
