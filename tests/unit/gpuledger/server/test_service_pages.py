"""The pages of a service: none where the operator turned them off."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gpuledger.server.endpoints.live_fit import LiveFitQuestion
from gpuledger.server.pages.service_pages import ServicePages
from gpuledger.server.pages.service_source import ServiceSource
from ledger.runtime.http.token_reviews import TokenGuard
from ledger.runtime.settings.settings import DEFAULTS


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
