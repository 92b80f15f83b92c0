"""The short form of ``make crash-test``."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests import crash


def test_a_killed_run_loses_nothing_that_is_stored(tmp_path: Path) -> None:
    done = crash.kills(tmp_path, 2, random.Random(1))
    assert (done.tried, done.recovered) == (2, 2)


def test_flipped_bits_are_found(tmp_path: Path) -> None:
    done = crash.flips(tmp_path, 2, random.Random(1))
    assert (done.tried, done.recovered) == (2, 2)


def test_a_full_disk_is_told_once(tmp_path: Path) -> None:
    try:
        with crash.small_disk(tmp_path / "probe", 4):
            pass
    except OSError as error:
        pytest.skip(str(error))
    done = crash.full_disk(tmp_path, [4, 128])
    assert (done.tried, done.recovered) == (2, 2)
