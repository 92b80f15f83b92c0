"""How a rule's Python function says that it does not apply here."""

from __future__ import annotations


class RefusedError(Exception):
    """Raise it in ``apply`` with the reason; the match is left as it is and the reason reported."""
