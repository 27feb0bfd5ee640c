"""Beats of other replicas, without a server: which of them count."""

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from ledger.log.peers.owner_beats import OwnerBeats


async def received(beats: OwnerBeats, by: str, *, alone: bool) -> str | None:
    """Receive a message of a pod; return the pod of the newest beat after it."""
    payload = msgspec.msgpack.encode((by, alone))
    await beats._receive(Msg(_client=Client(), subject="s", reply="", data=payload))
    return None if beats.newest is None else beats.newest.by


async def test_a_farewell_ends_only_the_beats_of_its_replica() -> None:
    """A replica that tests its own connection sends the same message as one that hands over."""
    beats = OwnerBeats("east", "own")
    assert await received(beats, "a", alone=True) == "a"
    assert await received(beats, "b", alone=False) == "a"
    assert await received(beats, "a", alone=False) is None
