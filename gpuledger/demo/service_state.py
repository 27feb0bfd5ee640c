"""Service state in the demo: usage, holders and holds, and its projection after a kill."""

import asyncio
from pathlib import Path
from typing import Final, TypeVar

import aiohttp
import msgspec

from gpuledger.demo.failed_claim import FailedClaim
from gpuledger.demo.service import ANSWER_SECONDS, POLL_SECONDS, DemoService
from gpuledger.storage.projection_catch_up import projecting
from gpuledger.wiring import store_layout
from ledger.runtime.settings.settings import Settings
from projections.queries.holders import HolderCharge, OpenHold
from projections.queries.quota_usage import Usage
from projections.store.digest import Digest, digest
from projections.store.readers import Readers

CAUGHT_UP_SECONDS: Final = 30.0
"""Deadline of the projection for reaching the end of the log."""

ROWS_MAX: Final = 5_000

_POSITION: Final = "gpuledger_log_position "
_HEAD: Final = "Gpuledger-Head"

Row = TypeVar("Row", Usage, HolderCharge, OpenHold)


class ObservedState(msgspec.Struct, frozen=True):
    """Usage, holders and holds as of a position at or after the log's end at the request."""

    position: int
    usage: list[Usage]
    holders: list[HolderCharge]
    holds: list[OpenHold]


async def read(service: DemoService) -> ObservedState:
    """Read the state. Raises FailedClaim if the projection does not reach the log's end."""
    deadline = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
    connector = aiohttp.TCPConnector(ssl=service.tls())
    async with aiohttp.ClientSession(service.url, connector=connector, timeout=deadline) as session:
        position = await _end_of_log(session)
        await _shown(session, position)
        return ObservedState(
            position,
            await _rows(session, "usage", Usage),
            await _rows(session, "holders", HolderCharge),
            await _rows(session, "holds", OpenHold),
        )


async def _end_of_log(session: aiohttp.ClientSession) -> int:
    async with session.get("/metrics", raise_for_status=True) as answer:
        lines = (await answer.text()).splitlines()
    return int(float(next(line for line in lines if line.startswith(_POSITION)).split()[1]))


async def _shown(session: aiohttp.ClientSession, position: int) -> None:
    claim = f"the projection shows position {position} within {CAUGHT_UP_SECONDS:g} s"
    shown = 0
    try:
        async with asyncio.timeout(CAUGHT_UP_SECONDS):
            # Another process cannot be awaited.
            while (shown := await _projected(session)) < position:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise FailedClaim(claim, f"it shows position {shown}") from None


async def _projected(session: aiohttp.ClientSession) -> int:
    """Return the position of the projection, 0 before it exists."""
    async with session.get("/v1/usage") as answer:
        return int(answer.headers.get(_HEAD, 0))


async def _rows(session: aiohttp.ClientSession, what: str, kind: type[Row]) -> list[Row]:
    query = {"limit": str(ROWS_MAX)}
    async with session.get(f"/v1/{what}", params=query, raise_for_status=True) as answer:
        return msgspec.json.decode(await answer.read(), type=list[kind])  # type: ignore[valid-type]


QUIET_SECONDS: Final = 15.0
"""Longest time for which a process of the killed service may hold the projection."""


async def digest_left_behind(store: Path) -> Digest:
    """Return the position of the store's projection and its digest there; nothing is projected.

    Raises StoreBusy while a service has it, StoreError when there is none.
    """
    async with (
        projecting(Settings(store_dir=str(store)), QUIET_SECONDS),
        Readers(store / store_layout.PROJECTION) as readers,
        readers.view() as view,
    ):
        return await digest(view, view.head.position)
