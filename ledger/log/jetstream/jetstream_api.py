"""JetStream API: the requests that find, make and compare streams, and that get and store messages.

The stream's leader answers all requests of this module.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from ledger.log.jetstream import stream_configuration
from ledger.log.jetstream.nats_connection import NatsConnection
from ledger.log.jetstream.nats_errors import ApiError, ApiProblem
from ledger.log.jetstream.stream_configuration import StreamConfig
from ledger.log.log_port import Extent, LogError, Lost, StreamMissing, Unreachable

STREAM_NOT_FOUND: Final = 10059

_NO_MESSAGE: Final = 10037
_NO_STORAGE: Final = 10047


class Ack(msgspec.Struct, frozen=True):
    """The answer to a message for a stream: its sequence there and the domain, or the error."""

    seq: int = 0
    stream: str = ""
    domain: str = ""
    error: ApiProblem | None = None


class Stored(msgspec.Struct, frozen=True):
    """A message of a stream."""

    seq: int
    data: bytes = b""


class _Message(msgspec.Struct, frozen=True):
    message: Stored


class _State(msgspec.Struct, frozen=True):
    first_seq: int
    last_seq: int
    bytes: int


class _Served(msgspec.Struct, frozen=True):
    metadata: dict[str, str] = {}


class _ServedInfo(msgspec.Struct, frozen=True):
    config: _Served


class _Info(msgspec.Struct, frozen=True):
    config: StreamConfig
    state: _State


_acks: Final = msgspec.json.Decoder(Ack)
_messages: Final = msgspec.json.Decoder(_Message)
_infos: Final = msgspec.json.Decoder(_Info)
_served_infos: Final = msgspec.json.Decoder(_ServedInfo)
_SERVER_VERSION: Final = "_nats.ver"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


async def store(
    connection: NatsConnection,
    subject: str,
    payload: bytes,
    headers: Mapping[str, str] | None = None,
    *,
    deadline: float | None = None,
) -> Ack:
    """Send a message to a stream and wait for its answer, within the connection's deadline or ours.

    Raises Unreachable without a stream, TimeoutError when no answer came, and
    msgspec.MsgspecError when the answer cannot be read.
    """
    return _acks.decode(await connection.request(subject, payload, headers, deadline=deadline))


async def message(
    connection: NatsConnection, stream: str, wanted: dict[str, object]
) -> Stored | None:
    """Get one message, chosen by the fields of the API's MSG.GET; None when there is none.

    Raises Lost when the stream is missing, Unreachable.
    """
    try:
        answer = await connection.api(f"STREAM.MSG.GET.{stream}", wanted, again=True)
    except ApiError as error:
        if error.code == _NO_MESSAGE:
            return None
        raise _failure(error, stream) from error
    return _messages.decode(answer).message


async def extent(connection: NatsConnection, stream: str) -> Extent:
    """Return the extent of a stream. Raises Lost when it is missing, Unreachable."""
    info = await _info(connection, stream)
    state = info.state
    return Extent(state.first_seq, state.last_seq, state.bytes, max(info.config.max_bytes, 0))


async def configuration(connection: NatsConnection, stream: str) -> StreamConfig:
    """Return the configuration of a stream. Raises Lost when it is missing, Unreachable."""
    return (await _info(connection, stream)).config


async def version(connection: NatsConnection, stream: str) -> tuple[int, int, int]:
    """Return the version of the server that leads a stream, which may be another server.

    It is zeros for a server too old to report it. Raises Lost when the stream is missing,
    Unreachable.
    """
    info = _served_infos.decode(await _info_answer(connection, stream))
    version = _VERSION.match(info.config.metadata.get(_SERVER_VERSION, ""))
    return (int(version[1]), int(version[2]), int(version[3])) if version else (0, 0, 0)


async def ensure(connection: NatsConnection, wanted: StreamConfig, *, create: bool) -> None:
    """Find a stream, or create it if that is allowed, and compare its configuration.

    Raises Lost when it is missing, ConfigurationDrift, Unreachable.
    """
    try:
        actual = await configuration(connection, wanted.name)
    except Lost:
        if not create:
            raise
        actual = await _create(connection, wanted)
    stream_configuration.compare(wanted, actual)


async def _create(connection: NatsConnection, wanted: StreamConfig) -> StreamConfig:
    """Create a stream and return its configuration by the answer to the creation.

    The stream's leader answers before the leader of the cluster has applied the creation
    (nats-server #8410), so that a question asked now may find no stream.
    """
    try:
        answer = await connection.api(f"STREAM.CREATE.{wanted.name}", wanted)
    except ApiError as error:
        problem = f"stream {wanted.name} cannot be created: {_explained(error)}"
        raise Unreachable(problem) from error
    return _infos.decode(answer).config


async def adjust(connection: NatsConnection, wanted: StreamConfig) -> dict[str, int | str]:
    """Change size, age and compression of a stream to the wanted ones; returns the changed fields.

    Raises Lost when it is missing, ApiError when the server refuses, Unreachable.
    """
    answer = await _info_answer(connection, wanted.name)
    changes = stream_configuration.adjustments(wanted, _infos.decode(answer).config)
    if changes:
        # All fields have to be sent, because the server replaces a missing one by its default.
        whole = msgspec.json.decode(answer)["config"]
        await connection.api(f"STREAM.UPDATE.{wanted.name}", whole | changes)
    return changes


async def purge_before(connection: NatsConnection, stream: str, sequence: int) -> None:
    """Remove the messages before a sequence. Raises Lost, Unreachable."""
    try:
        await connection.api(f"STREAM.PURGE.{stream}", {"seq": sequence})
    except ApiError as error:
        raise _failure(error, stream) from error


async def _info(connection: NatsConnection, stream: str) -> _Info:
    return _infos.decode(await _info_answer(connection, stream))


async def _info_answer(connection: NatsConnection, stream: str) -> bytes:
    try:
        return await connection.api(f"STREAM.INFO.{stream}", again=True)
    except ApiError as error:
        raise _failure(error, stream) from error


def _explained(error: ApiError) -> str:
    if error.code == _NO_STORAGE:
        return (
            f"{error}: the server reserves a stream's largest size, of three quarters of its free"
            " disk; make room, or lower log_bytes_max"
        )
    return str(error)


def _failure(error: ApiError, stream: str) -> LogError:
    if error.code == STREAM_NOT_FOUND:
        return StreamMissing(f"{error}: stream {stream} does not exist; restore it from a backup")
    return Unreachable(str(error))
