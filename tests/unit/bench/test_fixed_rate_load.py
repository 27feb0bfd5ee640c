"""The fixed-rate load submits no command before it is due."""

import asyncio
import time

from ledger.core.model.denials import Denial
from ledger.log.ledger_port import Accepted, answered
from tests.bench.load.fixed_rate_load import FixedRateLoad


class AnsweringLedger:
    """A ledger that accepts each command at once."""

    def submit(self, _: object) -> asyncio.Future[Accepted | Denial]:
        return answered(Accepted(1, "1.1", changed=True))


async def test_commands_are_submitted_when_they_are_due() -> None:
    load = FixedRateLoad(AnsweringLedger(), per_second=700)  # type: ignore[arg-type]
    began = time.perf_counter()
    await load.run(0.5)
    assert time.perf_counter() - began >= 0.49
    assert len(load.seconds) == 350
    assert load.refused == 0
    assert min(load.seconds) >= 0
