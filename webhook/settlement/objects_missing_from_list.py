"""Objects missing from a list: the ledger ends what a list of all objects at a version lacks.

An object that existed at or before that version was deleted, even if no watch reported it.
"""

from collections.abc import Iterator

from ledger.core.model.commands import CREATE, End, Refute
from ledger.core.model.events import Cause
from ledger.core.model.state import Entry
from ledger.tasks.periodic import CooperativeYield
from webhook.settlement.charge_settlement_session import RECOUNTED, SettlementSession
from webhook.settlement.open_attempt_ages import Proven

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
        await stride.step()
        for key in session.keys(namespace):
            await stride.step()
            entry = session.entry(namespace, key) if key.startswith(prefix) else None
            if entry is None:
                continue
            uid = present.get((namespace, key), "")
            for command in end_missing(namespace, key, entry, uid, version, RECOUNTED):
                await session.commands.send(command)


def end_missing(
    namespace: str,
    key: str,
    entry: Entry,
    present: str,
    version: int,
    actor: str,
    proven: Proven | None = None,
) -> Iterator[End | Refute]:
    """Yield the commands that end objects of a key that a list at `version` does not hold.

    `present` is the uid that the list holds at this key, or empty. An object that existed at or
    before that version was deleted. A creation that was never observed is refuted only if it is
    `proven` that it can no longer be written.
    """
    for uid in _uids(entry):
        if uid == present:
            continue
        if _existed(entry, uid, version):
            yield End(namespace, key, uid, version, Cause.DELETED, actor)
        elif proven is not None and proven((uid, CREATE)):
            yield Refute(namespace, key, uid, CREATE, Cause.ABSENT, actor)


def _uids(entry: Entry) -> dict[str, None]:
    """Return the uids of an entry, each once, in order."""
    uids = dict.fromkeys(hold.uid for hold in entry.holds)
    return uids if entry.committed is None else {entry.committed.uid: None, **uids}


def _existed(entry: Entry, uid: str, version: int) -> bool:
    """Return whether the object last existed at or before a version, as the ledger has it."""
    if entry.committed is not None and entry.committed.uid == uid:
        return entry.committed.version <= version
    return any(hold.uid == uid and CREATE < hold.base <= version for hold in entry.holds)
