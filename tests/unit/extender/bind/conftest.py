"""Fixtures of the tests of binding."""

import pytest
from support.harness.extender_harness import ModelServer, pod

from ledger.kube.api.objects import ApiNode, ObjectMeta


@pytest.fixture
def hami() -> ModelServer:
    """A cluster whose node is kept by HAMi, with two pods."""
    server = ModelServer()
    server.nodes["n1"] = ApiNode(ObjectMeta(name="n1", resource_version="5"))
    server.add(pod("a", gpu=1, gpumem=1000), pod("b", gpu=1, gpumem=1000))
    return server
