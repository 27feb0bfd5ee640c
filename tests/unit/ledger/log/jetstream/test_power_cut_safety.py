"""The durability problems of servers of every kind."""

import pytest

from ledger.log.jetstream import power_cut_safety, server_monitoring, stream_configuration
from ledger.log.jetstream.stream_configuration import StreamNames

ONE = stream_configuration.log_stream(StreamNames("main"), 1, 1_000)
THREE = stream_configuration.log_stream(StreamNames("main"), 3, 1_000)
URLS = ("http://a:8222", "http://b:8222")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool | None]:
    """The answer of each server about syncing."""
    said: dict[str, bool | None] = dict.fromkeys(URLS, True)

    async def sync_always(url: str, deadline: float) -> bool | None:
        return said[url]

    monkeypatch.setattr(server_monitoring, "sync_always", sync_always)
    return said


async def problems(
    version: tuple[int, int, int] = (2, 15, 1),
    config: stream_configuration.StreamConfig = THREE,
    urls: tuple[str, ...] = URLS,
    production: bool = True,
) -> tuple[str, ...]:
    """Ask the gate."""
    durability = await power_cut_safety.inspect(
        version, config, urls, production=production, deadline=1.0
    )
    return durability.problems


@pytest.mark.usefixtures("answers")
async def test_three_syncing_new_servers_have_no_problem() -> None:
    assert await problems() == ()


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize(
    ("version", "old"),
    [((2, 14, 9), True), ((1, 99, 0), True), ((2, 15, 0), False), ((3, 0, 0), False)],
)
async def test_an_old_server_is_a_problem(version: tuple[int, int, int], old: bool) -> None:
    assert any("nats-server is" in problem for problem in await problems(version)) is old


async def test_one_server_that_does_not_sync_is_named(answers: dict[str, bool | None]) -> None:
    answers[URLS[1]] = False
    (problem,) = await problems()
    assert URLS[1] in problem
    assert URLS[0] not in problem
    assert "sync_interval: always" in problem


async def test_server_without_an_answer_is_named(answers: dict[str, bool | None]) -> None:
    answers[URLS[0]] = None
    (problem,) = await problems()
    assert "not known" in problem
    assert URLS[0] in problem


async def test_without_monitoring_addresses_it_is_not_known() -> None:
    (problem,) = await problems(urls=())
    assert "monitoring addresses" in problem


@pytest.mark.usefixtures("answers")
async def test_one_replica_is_a_problem_in_production_only() -> None:
    assert "production needs 3" in (await problems(config=ONE))[0]
    assert await problems(config=ONE, production=False) == ()


@pytest.mark.usefixtures("answers")
async def test_acknowledging_before_writing_is_a_problem() -> None:
    lazy = stream_configuration.StreamConfig(
        "LEDGER-main", [], num_replicas=3, persist_mode="async"
    )
    assert "persist_mode" in (await problems(config=lazy))[0]
