"""JetStream domain of a log: no stream of a nearer server may take its records.

A leaf node may have streams of its own. A stream there on the ledger's subjects would store and
acknowledge records, too. Then there would be two logs, each with a part of the records. A service
that was started there before its domain was configured leaves such a stream.
"""

from typing import Final

import msgspec

from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.nats_errors import ApiError, NoResponders
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.log_port import LogError

_NOT_ENABLED: Final = (10039, 10076)
"""JetStream is off: for the account, or at all."""


class Captured(LogError):
    """A stream of the connected servers takes the records of a log in another domain."""


class _Account(msgspec.Struct, frozen=True):
    domain: str = ""


class _Streams(msgspec.Struct, frozen=True):
    streams: list[str] | None = None


async def must_be_clear(connection: NatsConnection, names: StreamNames) -> None:
    """Check that no stream takes records between the connected servers and a shard's log.

    Costs nothing where the log is in no other domain than theirs. Raises Captured naming the
    streams and the remedy, Unreachable.
    """
    if connection.domain is None:
        return
    own = await _own_domain(connection)
    if own in (None, connection.domain):
        return
    answer = await connection.api("STREAM.NAMES", {"subject": names.subjects}, near=True)
    streams = msgspec.json.decode(answer, type=_Streams).streams
    if streams:
        raise Captured(
            f"{', '.join(streams)} in {f'domain {own}' if own else 'no domain'}, of the servers"
            f" connected to, would take {names.subjects} before domain {connection.domain} does:"
            " remove them there with `nats stream rm`, or give them other subjects"
        )


async def _own_domain(connection: NatsConnection) -> str | None:
    """Return the domain of the connected servers; None when they have no JetStream."""
    try:
        answer = await connection.api("INFO", near=True)
    except NoResponders:
        return None
    except ApiError as error:
        if error.code in _NOT_ENABLED:
            return None
        raise
    return msgspec.json.decode(answer, type=_Account).domain
