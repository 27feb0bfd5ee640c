"""Answers without a record are decided on a state as new as the command."""

from support.harness.replicas import running

from ledger.core.model import accounts, commands
from ledger.core.model.denials import Denial
from ledger.log.ledger_port import Accepted
from ledger.log.memory_log import MemoryStore
from ledger.log.writer.writer_settings import WriterSettings

NEVER_LOOKING = WriterSettings(refresh_seconds=3_600.0, retry_seconds=0.001)
WHERE = ("c1/red", "pods/p", "u1")
GPU = "nvidia.com/gpu"


async def test_nothing_to_do_is_not_answered_from_an_old_state() -> None:
    """A charge that one replica has lowered must not count at another replica."""
    store = MemoryStore()
    async with running(store, settings=NEVER_LOOKING) as first:
        await first.submit(commands.Observe(*WHERE, 5, {GPU: 8}))
        async with running(store, settings=NEVER_LOOKING) as second:
            await first.submit(commands.Observe(*WHERE, 6, {GPU: 2}))
            answer = await second.submit(commands.Reserve(*WHERE, {GPU: 8}, base=6))
            assert isinstance(answer, Accepted)
            assert answer.changed
            entry = second.state.namespaces["c1/red"].entries["pods/p"]
            assert [hold.demand for hold in entry.holds] == [{GPU: 8}]


async def test_end_is_recorded_when_the_replica_has_not_read_the_beginning() -> None:
    store = MemoryStore()
    async with (
        running(store, settings=NEVER_LOOKING) as first,
        running(store, settings=NEVER_LOOKING) as second,
    ):
        await first.submit(commands.Observe(*WHERE, 5, {GPU: 8}))
        answer = await second.submit(commands.End(*WHERE, 6, "deleted"))
        assert isinstance(answer, Accepted)
        assert answer.changed


async def test_a_denial_is_not_given_on_an_old_state() -> None:
    store = MemoryStore()
    account = accounts.quota("c1", "red", "main")
    async with running(store, settings=NEVER_LOOKING) as first:
        await first.submit(commands.SetLimits(account, ("c1/red",), {f"requests.{GPU}": 1}))
        async with running(store, settings=NEVER_LOOKING) as second:
            await first.submit(commands.SetLimits(account, ("c1/red",), {f"requests.{GPU}": 8}))
            answer = await second.submit(commands.Reserve(*WHERE, {GPU: 8}))
            assert not isinstance(answer, Denial)
