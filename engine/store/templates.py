"""Compiled templates in the store. Unlike jinja2's own cache of files, damage is noticed before it is executed."""

from __future__ import annotations

import contextlib

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

from engine.store.store import Store, read_bytes


class Templates(BytecodeCache):
    def __init__(self, store: Store) -> None:
        self._store = store

    def load_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            content = read_bytes(self._store.templates / bucket.key)
            if content is not None:
                bucket.bytecode_from_string(content)

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            self._store.write_bytes(self._store.templates / bucket.key, bucket.bytecode_to_string())
