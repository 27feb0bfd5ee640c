"""The namespace of every command that reads: that of `-n`, that of the context, or all by `-A`."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gpuledger.commands.ledger import (
    drift,
    history_and_denials,
    holders_and_holds,
    quota,
    usage,
)
from gpuledger.reading import query_source
from gpuledger.reading.http_queries import HttpQueries
from gpuledger.reading.ledger_queries import LedgerQueries
from gpuledger.reading.service_connection import ServiceConnection
from ledger.runtime.settings.setting_sources import LoadedSettings, load
from projections.queries.query_scope import QueryScope

COMMANDS = (
    usage.usage,
    usage.top,
    holders_and_holds.holders,
    holders_and_holds.holds,
    holders_and_holds.waiting,
    history_and_denials.history,
    history_and_denials.denials,
    drift.drift,
    quota.list_,
)


class Asked(Exception):
    """The scope of a question."""


class OfContext(HttpQueries):
    """A source with a default namespace, which answers nothing."""

    def scope(self, *given: Any, **more: Any) -> QueryScope:
        raise Asked(super().scope(*given, **more))


@asynccontextmanager
async def of_context(loaded: LoadedSettings) -> AsyncIterator[LedgerQueries]:
    yield OfContext(connect, loaded.settings, default_namespace="home")


async def connect() -> ServiceConnection:
    raise NotImplementedError


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_asks_for_the_namespace_that_is_given(
    command: Callable[..., Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_source, "ledger_queries", of_context)
    for options, namespace in (
        ({}, "home"),
        ({"namespace": "n"}, "n"),
        ({"all_namespaces": True}, ""),
        ({"namespace": "n", "all_namespaces": True}, ""),
    ):
        with pytest.raises(Asked) as asked:
            await command(load({}, {}), **options)
        assert asked.value.args == (QueryScope(namespace),), options
