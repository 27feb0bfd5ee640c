"""The pages of a service: none where the operator turned them off."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpuledger.server.pages.service_pages import ServicePages
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
