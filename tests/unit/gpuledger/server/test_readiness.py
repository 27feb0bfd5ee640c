"""Readiness reports settlement, whose failure has no other effect at first."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpuledger.server.readiness_checks import ReadinessChecks


@pytest.mark.parametrize(
    ("owner", "warned"), [("host-1-abc", False), (None, True)], ids=["held", "lapsed"]
)
def test_readiness_warns_when_no_replica_settles_the_cluster(
    owner: str | None, warned: bool
) -> None:
    parts: Any = SimpleNamespace(
        _replica=SimpleNamespace(settler=SimpleNamespace(owner=owner)),
        _settings=SimpleNamespace(cluster="east-1"),
    )
    ok, reason = ReadinessChecks._check_settler(parts)
    assert ok
    assert ("no replica is known to settle cluster east-1" in reason) is warned
