"""Messages of the follower, and their effect on the replica."""

import time

from gpuledger.server.follower.follower_process import FollowerMessage
from gpuledger.server.ledger_replica import LedgerReplica
from gpuledger.wiring.log_from_settings import LogServers
from ledger.log.writer.writer_observer import WriterObserver
from ledger.runtime.settings.settings import Settings


async def test_the_newest_snapshot_is_known_with_its_time() -> None:
    replica = LedgerReplica(Settings(), LogServers((), "", "", ()), observer=WriterObserver())
    began = time.time()
    replica._on_message(FollowerMessage(scrubbed=7))
    assert replica.snapshot.position == 0
    assert replica.scrub.position == 7
    assert replica.scrub.ended >= began
    replica._on_message(FollowerMessage(snapshot=9))
    assert replica.snapshot.position == 9
    assert replica.snapshot.taken >= began
    assert replica.stopped is None


async def test_a_log_that_is_not_intact_stops_the_keeper() -> None:
    replica = LedgerReplica(Settings(), LogServers((), "", "", ()), observer=WriterObserver())
    replica._on_message(FollowerMessage(lost="position 3: gone"))
    assert replica.unavailable_reason() == "position 3: gone"
