"""Long history: pods of many namespaces are reserved, persisted and deleted."""

import random
from collections import deque
from collections.abc import Iterator

from support.builders.decide_and_fold import record

from ledger.core.model import accounts, commands
from ledger.core.model.state import State

START = 1_750_000_000_000_000
STEP = 50_000
DEMAND = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 50, "nvidia.com/gpumem": 8_000}
LIMIT = 2**50

Life = tuple[commands.Reserve, commands.Observe, commands.End]


def history(
    state: State, events: int, *, namespaces: int = 50, live: int = 20_000, group: int = 100
) -> Iterator[bytes]:
    """Yield records with at least so many events, advancing the state.

    `live` pods exist at once; `group` commands go into a record.
    """
    source = random.Random(7)
    payload = record(state, map(_limits, range(namespaces)), time=START)
    assert payload is not None
    yield payload
    unseen: deque[Life] = deque()
    alive: deque[Life] = deque()
    made = born = 0
    while made < events:
        batch: list[commands.AnyCommand] = []
        while len(batch) < group:
            life = _life(born, source.randrange(namespaces))
            born += 1
            batch.append(life[0])
            unseen.append(life)
            if len(unseen) > 2 * group:
                alive.append(unseen.popleft())
                batch.append(alive[-1][1])
            if len(alive) > live:
                batch.append(alive.popleft()[2])
        payload = record(state, batch, time=state.time + STEP)
        assert payload is not None
        made += len(batch)
        yield payload


def _limits(number: int) -> commands.SetLimits:
    limits = {f"limits.{resource}": LIMIT for resource in DEMAND}
    name = f"team-{number}"
    return commands.SetLimits(accounts.quota("c1", name, "main"), (f"c1/{name}",), limits, "admin")


def _life(number: int, namespace: int) -> Life:
    where = (f"c1/team-{namespace}", f"pods/worker-{number:08x}", f"uid-{number:032x}")
    return (
        commands.Reserve(*where, DEMAND, owner="rs-1", actor="alice"),
        commands.Observe(*where, 10 * number + 1, DEMAND, actor="watch"),
        commands.End(*where, 10 * number + 2, "deleted", actor="watch"),
    )
