"""Answers that are given only when they can be seen."""

import asyncio

import pytest
from support.harness.replicas import running

from gpuledger.server import read_your_writes_ledger
from gpuledger.server.read_your_writes_ledger import ReadYourWritesLedger
from ledger.core.model.commands import End, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import MemoryStore

RESERVE = Reserve("c/red", "pods/p", "u", {"nvidia.com/gpu": 1})


async def test_what_another_replica_decided_is_answered_when_it_is_applied_here():
    store = MemoryStore()
    async with running(store) as elsewhere, running(store) as here:
        answer = await ReadYourWritesLedger(elsewhere, here).submit(RESERVE)
        assert isinstance(answer, Accepted)
        assert here.state.position == answer.position
        assert "pods/p" in here.state.namespaces["c/red"].entries


async def test_a_denial_needs_not_be_seen():
    store = MemoryStore()
    async with running(store) as elsewhere, running(store) as here:
        await elsewhere.submit(RESERVE)
        other = Reserve("c/red", "pods/p", "u", {"nvidia.com/gpu": 2})
        answer = await ReadYourWritesLedger(elsewhere, here).submit(other)
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.ATTEMPT_DIFFERS


async def test_an_answer_that_is_never_applied_here_is_asked_for_again(monkeypatch):
    monkeypatch.setattr(read_your_writes_ledger, "APPLIED_SECONDS", 0.05)
    async with (
        running(MemoryStore()) as elsewhere,
        running(MemoryStore()) as stuck,
        asyncio.timeout(10),
    ):
        answer = await ReadYourWritesLedger(elsewhere, stuck).submit(RESERVE)
        assert isinstance(answer, Denial)
        assert answer.reason is Reason.LEDGER_UNAVAILABLE


@pytest.mark.parametrize("command", [RESERVE, End("c/red", "pods/q", "v", 1, "deleted")])
async def test_what_was_decided_here_is_answered_at_once(command):
    async with running(MemoryStore()) as writer, asyncio.timeout(10):
        assert isinstance(await ReadYourWritesLedger(writer, writer).submit(command), Accepted)
