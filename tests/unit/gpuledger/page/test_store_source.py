"""The source of a store: one request reads the log at a time, and errors are those of pages."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.page.from_store import store_source
from gpuledger.page.from_store.store_source import StoreSource
from gpuledger.page.page_errors import ManifestError, PageError
from gpuledger.page.page_source import ManifestQuestion
from gpuledger.storage.past_ledger import PastLedger
from ledger.core.model.state import State
from ledger.runtime.settings.settings import DEFAULTS, Settings
from webhook.api.admission_review import BadReview

QUESTION = ManifestQuestion(
    manifest=b"{}",
    namespace="red",
    user="alice",
    cluster="c2",
    at="",
    restricted=False,
    own_holders=False,
)


@pytest.fixture(autouse=True)
def _any_log(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ledger_at(*_: object) -> PastLedger:
        return PastLedger(State())

    monkeypatch.setattr(StoreSource, "_ledger_at", ledger_at)


async def test_a_request_waits_for_its_turn_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = asyncio.Event()

    async def fit_body(*_: Any) -> Any:
        await ended.wait()
        return "decided"

    monkeypatch.setattr(store_source, "fit_body", fit_body)
    monkeypatch.setattr(store_source, "TURN_SECONDS", 0.02)
    source = StoreSource(DEFAULTS, "a test")
    first = asyncio.create_task(source.fit(QUESTION))
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        with pytest.raises(PageError, match="Other requests read the log") as refused:
            await source.fit(QUESTION)
        ended.set()
        answers: list[object] = [await first, await source.fit(QUESTION)]
    assert answers == ["decided", "decided"]
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
    async def fit_body(*_: Any) -> None:
        raise error

    monkeypatch.setattr(store_source, "fit_body", fit_body)
    monkeypatch.setattr(store_source, "TURN_SECONDS", 0.02)
    source = StoreSource(DEFAULTS, "a test")
    for _ in range(2):
        with pytest.raises(PageError) as refused:
            await source.fit(QUESTION)
        assert refused.value.status == status
        assert isinstance(refused.value, ManifestError) == isinstance(error, BadReview)


async def test_the_decision_is_that_of_the_chosen_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fit_body(settings: Settings, *_: Any) -> str:
        return settings.cluster

    monkeypatch.setattr(store_source, "fit_body", fit_body)
    source = StoreSource(DEFAULTS, "a test")
    answered: object = await source.fit(QUESTION)
    assert answered == "c2"
    own: object = await source.fit(replace(QUESTION, cluster=""))
    assert own == DEFAULTS.cluster
