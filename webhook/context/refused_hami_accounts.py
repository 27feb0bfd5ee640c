"""Refused HAMi accounts: users with HAMi's rights whose allocation annotations were refused.

The refusal stops a HAMi whose account is missing in the settings, so readiness names the account. A
tenant may be refused as well. So an account is kept only if the API server answers that it may
patch all pods and all nodes. Tenants lack these rights, and so cannot displace a HAMi from the
memory.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from ledger.kube.api.quoting import shown
from webhook.context.expiring_counter import ExpiringCounter

QUESTIONS_MAX: Final = 4
"""Maximum number of simultaneous access reviews. Further accounts are reviewed at their next
refusal, which for a HAMi follows within seconds."""

MayAllocate = Callable[[str], Awaitable[bool]]
"""Returns whether a user has HAMi's rights. Raises ConnectionError without an answer."""

_log: Final = structlog.get_logger("webhook")


class RefusedHamiAccounts:
    """The accounts with HAMi's rights that were refused in the last hour."""

    def __init__(self, may_allocate: MayAllocate | None) -> None:
        """`may_allocate` checks the rights; without it, no account is kept."""
        self._may_allocate = may_allocate
        self._seen: ExpiringCounter[str] = ExpiringCounter()
        self._reservations = 0

    async def note(self, user: str, until: float) -> bool:
        """Record that an account was refused; return whether it has HAMi's rights.

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
        """Return the number of kept accounts."""
        return len(self._seen)

    def problems(self) -> list[str]:
        """Return a line for each refused account, with the setting that makes it trusted."""
        return [
            f"{shown(user)} may patch all pods and nodes, as HAMi's accounts may, and is not"
            f" trusted: {count} of its writes of HAMi's annotations were refused lately; if it is"
            " HAMi's, add it to trusted_identities, as `gpuledger import hami --dry-run` prints it;"
            " if not, find out why it writes them"
            for user, count in sorted(self._seen.counts())
        ]
