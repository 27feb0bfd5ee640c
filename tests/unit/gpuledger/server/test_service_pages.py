"""The pages of a service: none where they are off, and what the live ledger answers them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gpuledger.cli.manifest_document import ManifestProblem
from gpuledger.manifest_fit.manifest_pods import InvalidCardRequest
from gpuledger.page.page_errors import PageError
from gpuledger.page.page_source import LogScrub, ManifestQuestion
from gpuledger.server.endpoints.live_fit import FitsBusy, LiveFitQuestion
from gpuledger.server.endpoints.live_waiting import NoCluster, WaitingUnknown
from gpuledger.server.follower.follower_supervisor import FollowerUnavailable
from gpuledger.server.ledger_replica import LedgerReplica, ScrubMark
from gpuledger.server.pages.service_pages import ServicePages
from gpuledger.server.pages.service_source import ServiceSource
from gpuledger.wiring.log_from_settings import LogServers
from ledger.core.model.denials import Denial, Reason
from ledger.log.writer.writer_observer import WriterObserver
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.settings.settings import DEFAULTS
from webhook.admission.explanation import NamespaceMissing, OtherNamespace
from webhook.api.admission_review import BadReview


@pytest.mark.parametrize(("page", "paths"), [("off", set()), ("loopback", {"/"}), ("login", {"/"})])
def test_pages_are_routed_unless_they_are_off(tmp_path: Path, page: Any, paths: set[str]) -> None:
    settings = replace(DEFAULTS, store_dir=str(tmp_path), page=page)
    nothing: Any = None
    pages = ServicePages(
        settings,
        replica=nothing,
        live=nothing,
        guard=TokenGuard(None),
        certificates=None,
    )
    routed: set[str] = {getattr(route, "path", "") for route in pages.routes()}
    assert routed & {"/"} == paths
    assert ("/page/login" in routed) == (page == "login")


QUESTION = ManifestQuestion(
    manifest=b"{}",
    namespace="red",
    user="alice",
    cluster="",
    at="",
    restricted=True,
    own_holders=True,
)


async def test_a_fit_is_asked_once_for_user_and_rights() -> None:
    asked: list[LiveFitQuestion] = []

    async def answer(question: LiveFitQuestion) -> None:
        asked.append(question)

    live: Any = SimpleNamespace(fit=SimpleNamespace(fit=answer))
    replica: Any = None
    await ServiceSource(DEFAULTS, replica=replica, live=live).fit(QUESTION)
    wanted = LiveFitQuestion(
        manifest=b"{}", namespace="red", username="alice", restricted=True, own_holders=True
    )
    assert asked == [wanted]


async def test_a_service_fits_on_the_cards_of_now_only() -> None:
    nothing: Any = None
    source = ServiceSource(DEFAULTS, replica=nothing, live=nothing)
    with pytest.raises(PageError, match="cards of now"):
        await source.fit(replace(QUESTION, at="3"))


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ManifestProblem("no object"), 400),
        (OtherNamespace("blue", "red"), 400),
        (NamespaceMissing("no namespace red"), 404),
        (BadReview("$.spec", "Expected `object`"), 400),
        (
            InvalidCardRequest(Denial(Reason.INVALID_COUNT, "", transient=False, field="$.spec")),
            400,
        ),
        (FitsBusy("too many"), 503),
        (FollowerUnavailable("no follower"), 503),
    ],
)
async def test_refusals_of_fits_are_errors_of_pages(error: Exception, status: int) -> None:
    async def refuse(_: LiveFitQuestion) -> None:
        raise error

    live: Any = SimpleNamespace(fit=SimpleNamespace(fit=refuse))
    replica: Any = None
    source = ServiceSource(DEFAULTS, replica=replica, live=live)
    has_field = isinstance(error, BadReview | InvalidCardRequest)
    with pytest.raises(PageError) as refused:
        await source.fit(QUESTION)
    assert refused.value.status == status
    assert getattr(refused.value, "field", "") == ("$.spec" if has_field else "")


async def test_last_scrub_is_shown_once_one_is_complete() -> None:
    replica = LedgerReplica(DEFAULTS, LogServers((), "", "", ()), observer=WriterObserver())
    live: Any = None
    source = ServiceSource(DEFAULTS, replica=replica, live=live)
    assert (await source.health()).scrub is None
    replica.scrub = ScrubMark(7, 2.5)
    assert (await source.health()).scrub == LogScrub(7, 2_500_000)


@pytest.mark.parametrize("error", [NoCluster("no cluster"), WaitingUnknown("no answer")])
async def test_waiting_pods_that_are_not_known_hide_no_page(error: Exception) -> None:
    async def refuse(_: object) -> None:
        raise error

    live: Any = SimpleNamespace(waiting=SimpleNamespace(page=refuse))
    replica: Any = None
    assert await ServiceSource(DEFAULTS, replica=replica, live=live).waiting("red") is None
