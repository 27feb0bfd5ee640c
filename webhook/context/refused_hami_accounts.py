"""Refused HAMi accounts: users with HAMi's rights that were refused annotations of allocations.

A HAMi under a name that the settings do not have is stopped by that refusal. Any tenant can be
refused as well, so an account is kept only after the API server has answered that it may patch all
pods and all nodes: a tenant may not, and cannot fill the memory or push a HAMi out of it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from ledger.kube.api.quoting import shown
from webhook.context.recent_counts import RecentCounts

QUESTIONS_MAX: Final = 4
"""Accounts about which the API server is asked at once; further ones are asked about when they are
refused again, as a HAMi is within seconds."""

MayAllocate = Callable[[str], Awaitable[bool]]
"""Returns whether a user has HAMi's rights. Raises ConnectionError without an answer."""

_log: Final = structlog.get_logger("webhook")


class RefusedHamiAccounts:
    """The accounts that were refused lately and may be a HAMi's."""

    def __init__(self, may_allocate: MayAllocate | None) -> None:
        """Ask by `may_allocate`; without it no account is kept."""
        self._may_allocate = may_allocate
        self._seen: RecentCounts[str] = RecentCounts()
        self._reservations = 0

    async def note(self, user: str, until: float) -> bool:
        """Note that an account was refused; return whether it has HAMi's rights.

        Asks the API server until loop time `until`; without an answer by then, the result is False.
        """
        if self._may_allocate is None or self._reservations >= QUESTIONS_MAX:
            return False
        self._reservations += 1
        try:
            async with asyncio.timeout_at(until):
                may = await self._may_allocate(user)
        except (ConnectionError, TimeoutError) as error:
            _log.warning("rights_not_known", user=shown(user), why=str(error))
            return False
        finally:
            self._reservations -= 1
        if may and self._seen.count(user) == 1:
            _log.warning("allocator_refused", user=shown(user))
        return may

    def __len__(self) -> int:
        """Return how many accounts are kept."""
        return len(self._seen)

    def problems(self) -> list[str]:
        """Return which accounts were refused, and the setting that would have them trusted."""
        return [
            f"{shown(user)} may patch all pods and nodes, as HAMi's accounts may, and is not"
            f" trusted: {count} of its writes of HAMi's annotations were refused lately; if it is"
            " HAMi's, add it to trusted_identities, as `gpuledger import hami --dry-run` prints it;"
            " if not, find out why it writes them"
            for user, count in sorted(self._seen.counts())
        ]
