"""Questions to the active replica: it answers for the others, and silence ends in time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from support.servers.nats_servers import NatsServer, settings_for

from gpuledger.server.endpoints.live_waiting import LiveWaiting, NoCluster, WaitingUnknown
from ledger.log.jetstream.jetstream_log import JetStreamLog
from ledger.log.log_port import Unreachable
from ledger.log.peers import active_replica_questions
from ledger.log.peers.active_replica_questions import QUESTION_BYTES_MAX, ActiveReplicaQuestions
from webhook.gates.waiting_report import WaitingPage, WaitingQuestion, WaitingRow

pytestmark = pytest.mark.integration

ROW = WaitingRow("c", "team", "p", "pods/p", "u", {"nvidia.com/gpu": 1}, "", "2026-01-01", 1, "")
QUESTION = WaitingQuestion("team", 10)


@contextlib.asynccontextmanager
async def replica(
    server: NatsServer, shard: str, cluster: str = "c"
) -> AsyncIterator[ActiveReplicaQuestions]:
    log = await JetStreamLog.connect(settings_for(server, shard))
    questions = ActiveReplicaQuestions(cluster)
    await questions.start(log.connection, log.names)
    # The server answers in order, so that it has the subscription then.
    await log.connection.api("INFO")
    try:
        yield questions
    finally:
        await log.close()


async def test_a_passive_replica_answers_with_the_rows_of_the_active_one(
    nats_server: NatsServer, shard: str
) -> None:
    async with replica(nats_server, shard) as first, replica(nats_server, shard) as second:
        asked = list[WaitingQuestion]()

        def active(question: WaitingQuestion) -> WaitingPage:
            asked.append(question)
            return WaitingPage([ROW], "next")

        LiveWaiting(first, active)
        passive = LiveWaiting(second, lambda _: None)
        assert await passive.page(QUESTION) == WaitingPage([ROW], "next")
        assert asked == [QUESTION]


async def test_the_active_replica_asks_no_other(nats_server: NatsServer, shard: str) -> None:
    async with replica(nats_server, shard) as first, replica(nats_server, shard) as second:
        LiveWaiting(second, lambda _: WaitingPage([]))
        own = LiveWaiting(first, lambda _: WaitingPage([ROW]))
        assert (await own.page(QUESTION)).rows == [ROW]


async def test_silence_of_all_replicas_is_an_error_with_its_remedy(
    nats_server: NatsServer, shard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_replica_questions, "ANSWER_SECONDS", 0.2)
    async with (
        replica(nats_server, shard) as first,
        replica(nats_server, shard, "other-cluster") as second,
    ):
        LiveWaiting(second, lambda _: WaitingPage([ROW]))
        with pytest.raises(WaitingUnknown, match="Try again"):
            await LiveWaiting(first, lambda _: None).page(QUESTION)


async def test_a_question_beyond_its_bound_is_not_answered(
    nats_server: NatsServer, shard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_replica_questions, "ANSWER_SECONDS", 0.5)
    async with replica(nats_server, shard) as first, replica(nats_server, shard) as second:
        first.answer_with(lambda _: b"answer")
        assert await second.ask(b"x" * QUESTION_BYTES_MAX) == b"answer"
        with pytest.raises(TimeoutError):
            await second.ask(b"x" * (QUESTION_BYTES_MAX + 1))


async def test_questions_in_progress_are_bounded(
    nats_server: NatsServer, shard: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_replica_questions, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(active_replica_questions, "ASKED_MAX", 2)
    async with replica(nats_server, shard) as first:
        answers = await asyncio.gather(*(first.ask(b"q") for _ in range(3)), return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == [
            "TimeoutError",
            "TimeoutError",
            "Unreachable",
        ]


async def test_before_the_log_is_open_nothing_is_asked() -> None:
    with pytest.raises(Unreachable, match="not open yet"):
        await ActiveReplicaQuestions("c").ask(b"q")


async def test_without_a_cluster_the_answer_names_the_remedy() -> None:
    with pytest.raises(NoCluster, match="runs with a cluster"):
        await LiveWaiting(ActiveReplicaQuestions("c"), None).page(QUESTION)
