"""Full list recount: the ledger compared with a list of all objects of one kind at one version."""

import asyncio

from ledger.tasks.periodic import CooperativeYield
from webhook.settlement.attempt_ages import AttemptAges, OpenAttempt
from webhook.settlement.observation_commands import end_missing
from webhook.settlement.settlement_session import RECOUNTED, SettlementSession

Present = dict[tuple[str, str], str]
"""The uids of listed objects, by qualified namespace and key."""


async def release_missing(
    session: SettlementSession, prefix: str, present: Present, version: int
) -> None:
    """End the objects with this prefix of keys that a list at `version` does not hold.

    The list may have begun before the bound of an attempt, so it refutes no creation.
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
    """Start the age of every open attempt with this prefix of keys that has none.

    A session begins with this, and so does settlement after a gap of the watch.
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
