"""Run a program with its addresses at fixed places: ``python -I fixed_addresses.py PROGRAM ARGUMENT...``.

TensorRT orders some tables of an engine by address, so equal builds differ in their bytes under address
space randomisation. Linux only; where the system forbids the change the program runs as usual.
"""

from __future__ import annotations

import ctypes
import os
import sys

ADDR_NO_RANDOMIZE = 0x0040000  # personality(2)
QUERY = 0xFFFFFFFF


def main() -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        current = libc.personality(QUERY)
        if current != -1:
            libc.personality(current | ADDR_NO_RANDOMIZE)
    os.execvp(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
