"""The source of a store: one request reads the log at a time, and errors are those of pages."""

import asyncio
from typing import Any

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.page.from_store import store_source
from gpuledger.page.from_store.store_source import StoreSource
from gpuledger.page.page_errors import ManifestError, PageError
from ledger.runtime.settings.settings import DEFAULTS
from webhook.api.admission_review import BadReview


async def explained(source: StoreSource) -> object:
    return await source.explain(b"{}", "red", "alice", own_holders=False)


async def test_a_request_waits_for_its_turn_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def explain_body(*_: Any) -> Any:
        await ended.wait()
        return "decided"

    monkeypatch.setattr(store_source, "explain_body", explain_body)
    monkeypatch.setattr(store_source, "TURN_SECONDS", 0.02)
    source = StoreSource(DEFAULTS, "a test")
    first = asyncio.create_task(explained(source))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        with pytest.raises(PageError, match="Other requests read the log") as refused:
            await explained(source)
        ended.set()
        assert await first == await explained(source) == "decided"
    assert refused.value.status == 503


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (BadReview("$.spec", "Expected `object`"), 400),
        (CommandError(Exit.NOT_FOUND, "no such cluster"), 404),
        (CommandError(Exit.UNREACHABLE, "no log"), 503),
    ],
)
async def test_errors_are_those_of_pages_and_end_the_turn(
    error: Exception, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def explain_body(*_: Any) -> None:
        raise error

    monkeypatch.setattr(store_source, "explain_body", explain_body)
    monkeypatch.setattr(store_source, "TURN_SECONDS", 0.02)
    source = StoreSource(DEFAULTS, "a test")
    for _ in range(2):
        with pytest.raises(PageError) as refused:
            await explained(source)
        assert refused.value.status == status
        assert isinstance(refused.value, ManifestError) == isinstance(error, BadReview)
