"""Quoting of users' values in messages."""

from typing import Final

_SHOWN_MAX: Final = 64


def shown(value: str | int) -> str:
    """Return a value as messages quote it, cut after 64 characters."""
    text = str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"
