"""The pages of a service: none where they are off, and what the live ledger answers them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gpuledger.cli.manifest_document import ManifestProblem
from gpuledger.manifest_fit.manifest_pods import InvalidCardRequest
from gpuledger.page.page_errors import PageError
from gpuledger.server.endpoints.live_fit import FitsBusy, LiveFitQuestion
from gpuledger.server.endpoints.live_waiting import NoCluster, WaitingUnknown
from gpuledger.server.follower.follower_supervisor import FollowerUnavailable
from gpuledger.server.pages.service_pages import ServicePages
from gpuledger.server.pages.service_source import ServiceSource
from ledger.core.model.denials import Denial, Reason
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


async def test_decision_and_fit_are_asked_for_the_same_user() -> None:
    asked: list[LiveFitQuestion] = []

    async def answer(question: LiveFitQuestion) -> None:
        asked.append(question)

    live: Any = SimpleNamespace(fit=SimpleNamespace(explain=answer, fit=answer))
    replica: Any = None
    source = ServiceSource(DEFAULTS, replica=replica, live=live)
    await source.explain(b"{}", "red", "alice", own_holders=True)
    await source.fit(b"{}", "red", "alice", at="", restricted=True, own_holders=True)
    assert [question.username for question in asked] == ["alice", "alice"]


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

    live: Any = SimpleNamespace(fit=SimpleNamespace(explain=refuse, fit=refuse))
    replica: Any = None
    source = ServiceSource(DEFAULTS, replica=replica, live=live)
    has_field = isinstance(error, BadReview | InvalidCardRequest)
    for asked in (
        source.explain(b"{}", "red", "", own_holders=True),
        source.fit(b"{}", "red", "", at="", restricted=True, own_holders=True),
    ):
        with pytest.raises(PageError) as refused:
            await asked
        assert refused.value.status == status
        assert getattr(refused.value, "field", "") == ("$.spec" if has_field else "")


@pytest.mark.parametrize("error", [NoCluster("no cluster"), WaitingUnknown("no answer")])
async def test_waiting_pods_that_are_not_known_hide_no_page(error: Exception) -> None:
    async def refuse(_: object) -> None:
        raise error

    live: Any = SimpleNamespace(waiting=SimpleNamespace(page=refuse))
    replica: Any = None
    assert await ServiceSource(DEFAULTS, replica=replica, live=live).waiting("red") is None
