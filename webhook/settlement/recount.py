"""Recounting: the ledger compared with a list of everything of one kind at one version."""

import asyncio

from ledger.tasks.periodic import CooperativeYield
from webhook.settlement.attempt_ages import AttemptAges, OpenAttempt
from webhook.settlement.observation import end_missing
from webhook.settlement.settlement_session import RECOUNTED, SettlementSession

Present = dict[tuple[str, str], str]
"""The uids that a list holds, by qualified namespace and key."""


async def release_missing(
    session: SettlementSession, prefix: str, present: Present, version: int
) -> None:
    """End what the ledger still counts below `prefix` and the list at `version` does not hold.

    The list may have begun before any bound, so creations never seen are not judged by it.
    """
    stride = CooperativeYield()
    for namespace in session.namespaces():
        for key in session.keys(namespace):
            await stride.step()
            entry = session.entry(namespace, key) if key.startswith(prefix) else None
            if entry is None:
                continue
            uid = present.get((namespace, key), "")
            for command in end_missing(namespace, key, entry, uid, version, RECOUNTED):
                await session.commands.send(command)


async def start_open_attempt_ages(
    session: SettlementSession, ages: AttemptAges, prefix: str = ""
) -> None:
    """Start the age of every open attempt below `prefix` that has none yet.

    So it is when a tenure begins, and when something was missed.
    """
    stride, clock = CooperativeYield(), asyncio.get_running_loop().time
    for namespace in session.namespaces():
        for key in session.keys(namespace):
            await stride.step()
            if not key.startswith(prefix) or not session.settles(key):
                continue
            entry = session.entry(namespace, key)
            for hold in entry.holds if entry is not None else ():
                ages.start_unless_known(OpenAttempt(namespace, key, hold.uid, hold.base), clock())
