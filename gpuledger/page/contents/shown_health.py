"""Shown health: the state of the log, as much of it as the viewer of a page may see."""

from typing import Final

from msgspec import structs

from gpuledger.page.page_request import PageRequest
from gpuledger.page.page_source import LogHealth

_PROBLEM: Final = "The service reports a problem with its log. Ask its operator."


async def shown_health(request: PageRequest, *, in_full: bool) -> LogHealth:
    """Return the state of the log; its problems name addresses, which not every viewer may see."""
    health = await request.source.health()
    if in_full or not health.problems:
        return health
    return structs.replace(health, problems=(_PROBLEM,))


def lag_of(request: PageRequest, health: LogHealth) -> int:
    """Return the number of records that the projection does not have yet, 0 if not known."""
    return max(0, (health.position or 0) - request.view.head.position)
