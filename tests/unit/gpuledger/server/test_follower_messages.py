"""What the follower tells, and what the keeper makes of it."""

import time

from gpuledger.server.follower import News
from gpuledger.server.replica import Keeper
from gpuledger.wiring.service_parts import Reach
from ledger.log.writer.observer import Observer
from ledger.runtime.settings.settings import Settings


async def test_the_newest_snapshot_is_known_with_its_time() -> None:
    keeper = Keeper(Settings(), Reach((), "", "", ()), Observer())
    began = time.time()
    keeper._hear(News(scrubbed=7))
    assert keeper.snapshot.position == 0
    keeper._hear(News(snapshot=9))
    assert keeper.snapshot.position == 9
    assert keeper.snapshot.taken >= began
    assert keeper.stopped is None


async def test_a_log_that_is_not_intact_stops_the_keeper() -> None:
    keeper = Keeper(Settings(), Reach((), "", "", ()), Observer())
    keeper._hear(News(lost="position 3: gone"))
    assert keeper.trouble() == "position 3: gone"
