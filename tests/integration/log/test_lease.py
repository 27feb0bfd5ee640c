"""The preferred writer: its lease, and that commands find it, or another writer, in time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from support.servers.nats_servers import NatsServer

from ledger.core.model.commands import AnyCommand, Reserve
from ledger.core.model.denials import Denial, Reason, Shortage
from ledger.log.jetstream.nats_connection import Access, NatsConnection
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.log.ledger_port import Accepted
from ledger.log.peers.forwarding import CommandServer, ForwardingLedger, ForwardingSettings
from ledger.log.peers.lease import Lease, LeaseSettings

pytestmark = pytest.mark.integration

QUICK = LeaseSettings(renew_seconds=0.05, lease_seconds=2)
COMMAND = Reserve("prod/ml", "pods/web-0", "uid-1", {"nvidia.com/gpu": 2}, actor="alice")

Dial = Callable[[], Awaitable[NatsConnection]]


@pytest.fixture
async def dial(nats_server: NatsServer) -> AsyncIterator[Dial]:
    """Make connections to the session's server."""
    made: list[NatsConnection] = []

    async def connect() -> NatsConnection:
        made.append(await NatsConnection.connect(Access((nats_server.url,)), deadline=5.0))
        return made[-1]

    yield connect
    for connection in made:
        await connection.close()


@pytest.fixture
def names(shard: str) -> StreamNames:
    """A shard of the test's own."""
    return StreamNames(shard)


class Recorder:
    """A ledger that gives a fixed answer and remembers the commands."""

    def __init__(self, answer: Accepted | Denial | None) -> None:
        self.answer = answer
        self.asked: list[tuple[AnyCommand, bool]] = []

    async def submit(self, command: AnyCommand, *, dry_run: bool = False) -> Accepted | Denial:
        """Answer, or never if there is no answer."""
        self.asked.append((command, dry_run))
        if self.answer is None:
            await asyncio.Event().wait()
        assert self.answer is not None
        return self.answer


class Preferred:
    """A fixed preference."""

    def __init__(self, writer: str, owner: str | None) -> None:
        self.writer = writer
        self.owner = owner


REMOTE = Accepted(7, "remote", changed=True)
LOCAL = Accepted(8, "local", changed=True)
DENIAL = Denial(
    Reason.QUOTA_EXCEEDED,
    "no room",
    transient=True,
    shortages=(Shortage("quota/prod/ml/team", "limits.nvidia.com/gpu", 2, 3, 4, 1, 1),),
)


async def settled(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(15):
        while not condition():  # noqa: ASYNC110 (the condition has no event)
            await asyncio.sleep(0.01)


async def test_one_of_two_replicas_is_the_owner_and_both_know(
    dial: Dial, names: StreamNames
) -> None:
    owners = [Lease(await dial(), names, writer=writer, settings=QUICK) for writer in ("w1", "w2")]
    await asyncio.gather(*(owner.start() for owner in owners))
    await settled(lambda: owners[0].owner == owners[1].owner is not None)
    assert sum(owner.is_owner for owner in owners) == 1
    for owner in owners:
        await owner.stop()


async def test_a_lease_taken_by_a_faster_replica_is_not_taken_again(
    dial: Dial, names: StreamNames
) -> None:
    first = Lease(await dial(), names, writer="w1", settings=QUICK)
    second = Lease(await dial(), names, writer="w2", settings=QUICK)
    await second.start()
    await second.stop()
    seen = await first._current()
    await second.start()
    assert not await first._put(b"w1", seen.seq, 2)
    assert second.is_owner
    await second.stop()


async def test_an_owner_stays_owner_beyond_its_first_lease(dial: Dial, names: StreamNames) -> None:
    short = LeaseSettings(renew_seconds=0.1, lease_seconds=3)
    first = Lease(await dial(), names, writer="w1", settings=short)
    second = Lease(await dial(), names, writer="w2", settings=short)
    await first.start()
    await second.start()
    await asyncio.sleep(4)
    assert (first.is_owner, second.is_owner, second.owner) == (True, False, "w1")
    await first.stop()
    await second.stop()


async def test_a_clean_stop_hands_over_before_the_lease_runs_out(
    dial: Dial, names: StreamNames
) -> None:
    lasting = LeaseSettings(renew_seconds=0.05, lease_seconds=60)
    first = Lease(await dial(), names, writer="w1", settings=lasting)
    second = Lease(await dial(), names, writer="w2", settings=lasting)
    await first.start()
    await second.start()
    await first.stop()
    assert first.owner is None
    await settled(lambda: second.is_owner)
    await second.stop()


async def test_a_replica_without_bids_reads_the_lease_and_never_takes_it(
    dial: Dial, names: StreamNames
) -> None:
    lasting = LeaseSettings(renew_seconds=0.05, lease_seconds=60)
    reader = Lease(await dial(), names, writer="w1", bids=False, settings=lasting)
    bidder = Lease(await dial(), names, writer="w2", settings=lasting)
    await reader.start()
    assert reader.owner is None
    await bidder.start()
    await settled(lambda: reader.owner == "w2")
    await bidder.stop()
    await settled(lambda: reader.owner is None)
    await bidder.start()
    assert bidder.is_owner
    await bidder.stop()
    await reader.stop()


async def test_a_dead_owners_lease_runs_out(dial: Dial, names: StreamNames) -> None:
    dying = await dial()
    first = Lease(dying, names, writer="w1", settings=QUICK)
    second = Lease(await dial(), names, writer="w2", settings=QUICK)
    await first.start()
    await second.start()
    assert second.owner == "w1"
    await dying.close()
    await settled(lambda: second.is_owner and not first.is_owner)
    await first.stop()
    await second.stop()


async def test_there_is_an_owner_again_after_all_servers_were_restarted(
    own_server: NatsServer, names: StreamNames
) -> None:
    access = Access((own_server.url,))
    connections = [await NatsConnection.connect(access, deadline=5.0) for _ in range(2)]
    first, second = (
        Lease(connection, names, writer=writer, cluster="east", settings=QUICK)
        for connection, writer in zip(connections, ("w1", "w2"), strict=True)
    )
    await first.start()
    await second.start()
    own_server.kill()
    await settled(lambda: first.owner is None and second.owner is None)
    await own_server.start()
    await settled(lambda: first.owner == second.owner is not None)
    assert first.is_owner is not second.is_owner
    for owner, connection in zip((first, second), connections, strict=True):
        await owner.stop()
        await connection.close()


async def test_every_cluster_of_a_shard_has_a_lease_of_its_own(
    dial: Dial, names: StreamNames
) -> None:
    writing = Lease(await dial(), names, writer="w1", settings=QUICK)
    east = Lease(await dial(), names, writer="w2", cluster="east", settings=QUICK)
    west = Lease(await dial(), names, writer="w3", cluster="west", settings=QUICK)
    rival = Lease(await dial(), names, writer="w4", cluster="west", settings=QUICK)
    bidders = (writing, east, west, rival)
    for bidder in bidders:
        await bidder.start()
    assert [bidder.owner for bidder in bidders] == ["w1", "w2", "w3", "w3"]
    for bidder in bidders:
        await bidder.stop()


def test_a_writer_id_that_is_not_a_subject_is_refused(names: StreamNames) -> None:
    with pytest.raises(ValueError, match=r"a\.b"):
        Lease(NatsConnection(Access(()), 1.0), names, writer="a.b")


async def forwarding(
    dial: Dial, names: StreamNames, remote: Recorder, settings: ForwardingSettings | None = None
) -> tuple[ForwardingLedger, Recorder, CommandServer]:
    """A forwarder on one connection, with the preferred writer behind another."""
    local = Recorder(LOCAL)
    server = CommandServer(await dial(), names, writer="far", local=remote, settings=settings)
    await server.start()
    preference = Preferred("near", "far")
    return (
        ForwardingLedger(
            await dial(), names, preference=preference, local=local, settings=settings
        ),
        local,
        server,
    )


async def test_the_owner_decides_for_the_others(dial: Dial, names: StreamNames) -> None:
    remote = Recorder(REMOTE)
    forwarder, local, server = await forwarding(dial, names, remote)
    assert await forwarder.submit(COMMAND, dry_run=True) == REMOTE
    assert (remote.asked, local.asked) == ([(COMMAND, True)], [])
    await server.stop()


async def test_a_denial_comes_back_with_all_its_numbers(dial: Dial, names: StreamNames) -> None:
    forwarder, _, server = await forwarding(dial, names, Recorder(DENIAL))
    assert await forwarder.submit(COMMAND) == DENIAL
    await server.stop()


@pytest.mark.parametrize("owner", [None, "near", "nobody-listens"])
async def test_without_an_owner_to_ask_the_command_is_decided_here(
    dial: Dial, names: StreamNames, owner: str | None
) -> None:
    local = Recorder(LOCAL)
    patient = ForwardingSettings(answer_seconds=60)
    forwarder = ForwardingLedger(
        await dial(), names, preference=Preferred("near", owner), local=local, settings=patient
    )
    async with asyncio.timeout(30):
        assert await forwarder.submit(COMMAND) == LOCAL
    assert local.asked == [(COMMAND, False)]


async def test_an_owner_that_does_not_answer_costs_its_deadline_once(
    dial: Dial, names: StreamNames
) -> None:
    settings = ForwardingSettings(answer_seconds=0.3, avoid_seconds=60)
    remote = Recorder(None)
    forwarder, local, server = await forwarding(dial, names, remote, settings)
    assert await forwarder.submit(COMMAND) == LOCAL
    assert await forwarder.submit(COMMAND) == LOCAL
    assert (len(remote.asked), len(local.asked)) == (1, 2)
    await server.stop()


async def test_an_owner_that_did_not_answer_is_asked_again_later(
    dial: Dial, names: StreamNames
) -> None:
    settings = ForwardingSettings(answer_seconds=0.3, avoid_seconds=0.0)
    remote = Recorder(None)
    forwarder, _, server = await forwarding(dial, names, remote, settings)
    assert await forwarder.submit(COMMAND) == LOCAL
    remote.answer = REMOTE
    assert await forwarder.submit(COMMAND) == REMOTE
    await server.stop()


@pytest.mark.parametrize("reason", [Reason.LEDGER_UNAVAILABLE, Reason.LEDGER_STOPPED])
async def test_an_owner_that_cannot_decide_is_replaced_by_this_replica(
    dial: Dial, names: StreamNames, reason: Reason
) -> None:
    forwarder, local, server = await forwarding(
        dial, names, Recorder(Denial(reason, "cannot", transient=True))
    )
    assert await forwarder.submit(COMMAND) == LOCAL
    assert len(local.asked) == 1
    await server.stop()


async def test_commands_asked_together_travel_together(
    dial: Dial, names: StreamNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote, sent = Recorder(REMOTE), []
    forwarder, local, server = await forwarding(dial, names, remote)
    request = NatsConnection.request

    async def counted(self, subject, payload, *more, **named):
        sent.append(subject)
        return await request(self, subject, payload, *more, **named)

    monkeypatch.setattr(NatsConnection, "request", counted)
    answers = await asyncio.gather(*(forwarder.submit(COMMAND) for _ in range(1_000)))
    assert answers == [REMOTE] * 1_000
    assert len(remote.asked) == 1_000
    assert local.asked == []
    assert len(sent) <= 8
    await server.stop()


async def test_a_command_too_large_for_a_message_is_decided_locally(
    dial: Dial, names: StreamNames
) -> None:
    remote = Recorder(REMOTE)
    forwarder, local, server = await forwarding(dial, names, remote)
    large = Reserve("prod/ml", "pods/big", "uid-2", {}, owner="x" * 2_000_000)
    answers = await asyncio.gather(forwarder.submit(large), forwarder.submit(COMMAND))
    assert list(answers) == [LOCAL, REMOTE]
    assert await forwarder.submit(COMMAND) == REMOTE
    assert local.asked == [(large, False)]
    await server.stop()


async def test_commands_on_their_way_are_bounded(dial: Dial, names: StreamNames) -> None:
    settings = ForwardingSettings(answer_seconds=30, in_flight_max=2)
    remote = Recorder(None)
    forwarder, local, server = await forwarding(dial, names, remote, settings)
    waiting = [asyncio.ensure_future(forwarder.submit(COMMAND)) for _ in range(2)]
    await settled(lambda: len(remote.asked) == 2)
    assert await forwarder.submit(COMMAND) == LOCAL
    assert len(local.asked) == 1
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await server.stop()


async def test_an_overloaded_owner_refuses_at_once(dial: Dial, names: StreamNames) -> None:
    remote = Recorder(None)
    server = CommandServer(
        await dial(),
        names,
        writer="far",
        local=remote,
        settings=ForwardingSettings(in_flight_max=1),
    )
    await server.start()
    forwarder = ForwardingLedger(
        await dial(),
        names,
        preference=Preferred("near", "far"),
        local=Recorder(LOCAL),
        settings=ForwardingSettings(answer_seconds=10),
    )
    waiting = asyncio.ensure_future(forwarder.submit(COMMAND))
    await settled(lambda: len(remote.asked) == 1)
    answer = await forwarder.submit(COMMAND)
    assert isinstance(answer, Denial)
    assert (answer.reason, answer.transient) == (Reason.OVERLOADED, True)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await server.stop()


async def test_commands_are_taken_again_after_a_restart_of_the_server(
    own_server: NatsServer, names: StreamNames
) -> None:
    access = Access((own_server.url,))
    far = await NatsConnection.connect(access, deadline=2.0)
    near = await NatsConnection.connect(access, deadline=2.0)
    server = CommandServer(far, names, writer="far", local=Recorder(REMOTE))
    await server.start()
    settings = ForwardingSettings(avoid_seconds=0.0)
    forwarder = ForwardingLedger(
        near, names, preference=Preferred("near", "far"), local=Recorder(LOCAL), settings=settings
    )
    own_server.kill()
    assert await forwarder.submit(COMMAND) == LOCAL
    await own_server.start()
    async with asyncio.timeout(15):
        while await forwarder.submit(COMMAND) != REMOTE:  # noqa: ASYNC110 (there is no signal)
            await asyncio.sleep(0.05)
    await server.stop()
    await far.close()
    await near.close()


async def test_a_client_that_closed_itself_is_replaced(dial: Dial, names: StreamNames) -> None:
    settings = ForwardingSettings(avoid_seconds=0.0)
    forwarder, _, server = await forwarding(dial, names, Recorder(REMOTE), settings)
    client = await server._connection.client()
    await client.close()
    assert await server._connection.client() is not client
    async with asyncio.timeout(15):
        while await forwarder.submit(COMMAND) != REMOTE:  # noqa: ASYNC110 (there is no signal)
            await asyncio.sleep(0.05)
    await server.stop()
