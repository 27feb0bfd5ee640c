"""Warnings about stored quotas: logged once, counted, and shown by readiness."""

from collections.abc import Collection
from itertools import islice
from typing import Final

import structlog

SHOWN_MAX: Final = 8
"""Quotas that readiness names; the others are counted."""

_log: Final = structlog.get_logger("webhook")


class QuotaWarnings:
    """The warnings about existing quotas, by account."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        """Return how many quotas have warnings."""
        return len(self._of)

    def of(self, account: str) -> tuple[str, ...]:
        """Return the warnings about a quota."""
        return self._of.get(account, ())

    def note(self, account: str, warnings: tuple[str, ...]) -> None:
        """Keep the warnings about a quota; log them if they have changed."""
        if warnings == self.of(account):
            return
        if not warnings:
            del self._of[account]
            return
        self._of[account] = warnings
        for warning in warnings:
            _log.warning("quota_not_understood", account=account, reason=warning)

    def forget(self, account: str) -> None:
        """Forget a deleted quota."""
        self._of.pop(account, None)

    def keep(self, accounts: Collection[str]) -> None:
        """Forget all quotas but these."""
        self._of = {
            account: warnings for account, warnings in self._of.items() if account in accounts
        }

    def shown(self) -> list[str]:
        """Return a line for each of the first quotas, and how many more there are."""
        lines = [
            f"{account}: {warnings[0]}" for account, warnings in islice(self._of.items(), SHOWN_MAX)
        ]
        more = len(self._of) - len(lines)
        return [*lines, f"{more} more quotas have warnings"] if more else lines
