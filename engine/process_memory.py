"""How much resident memory a process and its descendants use: now, and at their peak."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped, unused-ignore]

_TREE_EVERY = 5  # samples; walking the process table is the costly part
_KERNEL_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss


class MemoryMeter:
    """Samples resident memory of a process tree, in bytes; pages shared within the tree count twice."""

    def __init__(self, pid: int) -> None:
        self.current = 0
        self.peak = 0
        self._own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KERNEL_UNIT
        self._pid = pid
        self._tree: list[psutil.Process] = []
        self._samples = 0
        self._last = 0.0

    def sample_if_due(self, every: float) -> None:
        now = time.monotonic()
        if now - self._last >= every:
            self._last = now
            self._sample()

    def _sample(self) -> None:
        if self._samples % _TREE_EVERY == 0:
            self._refresh()
        self._samples += 1
        self.current = sum(_resident(process) for process in self._tree)
        self.peak = max(self.peak, self.current, _high_water(self._pid))

    def _refresh(self) -> None:
        try:
            root = self._tree[0] if self._tree else psutil.Process(self._pid)
            self._tree = [root, *root.children(recursive=True)]
        except psutil.Error:
            pass  # the child is gone; what was below it is still known

    def add_kernel_peak(self, ru_maxrss: int) -> None:
        """Take the kernel's own peak into account, where it can be trusted.

        A child starts with its parent's peak on its account, so a figure no larger than ours says nothing.
        """
        kernel = ru_maxrss * _KERNEL_UNIT
        if kernel > self._own_peak:
            self.peak = max(self.peak, kernel)

    def note_descendants(self) -> None:
        """Take down who is below the child, while it still lives; later they can no longer be found."""
        if self._tree:
            self._refresh()

    def kill_descendants(self) -> None:
        for process in self._tree[1:]:
            with contextlib.suppress(psutil.Error):
                process.kill()  # psutil refuses a process id that was given to another process meanwhile


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _high_water(pid: int) -> int:
    """The kernel's peak of one process since its exec (Linux): nothing between two samples is lost."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
