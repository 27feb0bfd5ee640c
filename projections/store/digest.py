"""The digest: one hash over the whole projection as of a position.

Two projections of one log have the same digest at the same position: live, killed and continued, or
rebuilt. Events after the position do not count: rows opened later are left out, and rows closed
later count as open. It does not cover denials.
"""

import hashlib
from collections.abc import Callable
from typing import Final

import aiosqlite
import msgspec

from projections.store.readers import ProjectionView

_ROWS_AT_ONCE: Final = 2_000


class Digest(msgspec.Struct, frozen=True):
    """SHA-256, in hexadecimal, over the tables as of a position."""

    position: int
    digest: str


async def digest(view: ProjectionView, position: int) -> Digest:
    """Return the digest at a position that the projection has reached.

    It covers MessagePack of each table's name and of each row, in the order of the log. The view's
    deadline restarts with each batch of rows.
    """
    hasher = hashlib.sha256()
    for table, statement in _TABLES.items():
        hasher.update(msgspec.msgpack.encode(table))
        async with view.connection.execute(statement, {"p": position}) as cursor:
            await _add_rows(hasher, cursor, view.renew)
    return Digest(position, hasher.hexdigest())


async def _add_rows(
    hasher: "hashlib._Hash", cursor: aiosqlite.Cursor, progressed: Callable[[], None]
) -> None:
    encode = _encoder.encode
    while rows := await cursor.fetchmany(_ROWS_AT_ONCE):
        hasher.update(b"".join(map(encode, rows)))
        progressed()


_encoder: Final = msgspec.msgpack.Encoder()

_CLOSED: Final = "CASE WHEN closed <= :p THEN closed END"

_TABLES: Final = {
    "records": """
        SELECT position, time, hash, writer, commands, items_hash(body) FROM records
        WHERE position <= :p ORDER BY position
    """,
    "events": """
        SELECT namespace, position, numbers FROM events
        WHERE position <= :p ORDER BY namespace, position
    """,
    "interned": "SELECT number, body, opened FROM interned WHERE opened <= :p ORDER BY number",
    "namespaces": """
        SELECT number, cluster, name, opened FROM namespaces WHERE opened <= :p ORDER BY number
    """,
    "accounts": "SELECT number, name, opened FROM accounts WHERE opened <= :p ORDER BY number",
    "clusters": "SELECT name, uid, opened FROM clusters WHERE opened <= :p ORDER BY name",
    "lines": f"""
        SELECT number, account, key, opened, {_CLOSED} FROM lines
        WHERE opened <= :p ORDER BY number
    """,
    "coverages": f"""
        SELECT namespace, account, opened, {_CLOSED} FROM coverages
        WHERE opened <= :p ORDER BY namespace, account, opened
    """,
    "limits": """
        SELECT account, position, body FROM limits
        WHERE position <= :p ORDER BY account, position
    """,
    "balances": """
        SELECT account, position, body FROM balances
        WHERE position <= :p ORDER BY account, position
    """,
    "charges": """
        SELECT
            number, namespace, key, uid, base, version, demand, admitted, since, owner, actor, root,
            traits, read, devices, opened
        FROM charges WHERE opened <= :p ORDER BY number
    """,
    "charges_open": """
        SELECT number, namespace, key, base, uid, opened FROM charges_open WHERE opened <= :p
        UNION ALL
        SELECT charges.number, charges.namespace, key, base, uid, opened
        FROM charges_closed CROSS JOIN charges ON charges.number = charges_closed.number
        WHERE closed > :p AND opened <= :p
        ORDER BY 1
    """,
    "charges_closed": """
        SELECT number, fork, namespace, closed, cause FROM charges_closed
        WHERE closed <= :p ORDER BY number
    """,
    "selections": f"""
        SELECT account, reach, selects, asked_only, opened, {_CLOSED} FROM selections
        WHERE opened <= :p ORDER BY account, opened
    """,
    "draws": f"""
        SELECT
            namespace, root, charge, committed, pods, live, opened, {_CLOSED},
            CASE WHEN closed <= :p THEN fork END
        FROM draws WHERE opened <= :p ORDER BY number
    """,
    "cards": f"""
        SELECT account, cluster, node, keeper, state, body, opened, {_CLOSED} FROM cards
        WHERE opened <= :p ORDER BY account, opened
    """,
    "placements": f"""
        SELECT
            namespace, key, uid, node, parts, stands, since, stage, initialised, observed,
            opened, {_CLOSED}, CASE WHEN closed <= :p THEN fork END
        FROM placements WHERE opened <= :p ORDER BY number
    """,
    "drift": """
        SELECT position, number, namespace, key, uid, type, cause, amounts, over FROM drift
        WHERE position <= :p ORDER BY position, number
    """,
}
