"""The overview: order by pressure, parts of clusters, totals, and what a tenant does not see."""

import asyncio
import re
from pathlib import Path

import pytest
from support.builders.decide_and_fold import record
from support.harness.projection_harness import SECOND, START, log_of, project
from support.pages.page_harness import FakeSource, Tenant, pages

from gpuledger.page.page_source import WAITING_MAX, LogHealth
from gpuledger.page.serving.static_files import EDITION
from ledger.core.model import commands
from ledger.core.model.cards import OWN, Card
from ledger.core.model.state import State
from webhook.gates.waiting_report import WaitingRow

CARDS = "requests.nvidia.com/gpu"
HOSTILE = "<script>alert(1)</script>"


def story() -> list[bytes]:
    """Two clusters share the quota `all`; c1/red is full, c1/blue half full, c2/far over."""
    state, spaces = State(), ("c1/red", "c1/blue", "c2/far")
    limits = dict(zip(spaces, (2, 4, 1), strict=True))
    steps: list[list[commands.AnyCommand]] = [
        [commands.RegisterCluster(name, f"uid-{name}") for name in ("c1", "c2")],
        [
            commands.SetLimits(f"quota/{space}/own", (space,), {CARDS: limit}, "admin")
            for space, limit in limits.items()
        ],
        [commands.SetLimits("universe/all", spaces, {CARDS: 10}, "admin")],
        [
            commands.Observe(space, "pods/p", f"uid-{space}", 7, {"nvidia.com/gpu": 2}, "watch")
            for space in spaces
        ],
        [
            commands.RegisterCards(
                "c1/node", OWN, (Card("GPU-a", 0, "A100", 40_960, 100, 10),), "agent", 1
            )
        ],
    ]
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(steps)]
    return [payload for payload in payloads if payload is not None]


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("overview") / "ledger.sqlite"
    asyncio.run(project(path, log_of(story())))
    return path


async def shown(path: Path, address: str = "/page/", **of: object) -> str:
    async with pages(path, **of) as client:  # type: ignore[arg-type]
        answer = await client.get(address)
    assert answer.status_code == 200, answer.text
    # The hexadecimal edition of the static files may contain a name such as c2.
    return answer.text.replace(EDITION, "")


async def test_quotas_are_sorted_by_the_used_part_of_their_limit(projection: Path) -> None:
    text = await shown(projection)
    rows = [text.index(f'<bdi class="name">{name}</bdi>') for name in ("far", "red", "all", "blue")]
    assert rows == sorted(rows)
    assert "1 GPU over" in text


async def test_reserved_amounts_are_named_once_with_their_unit(tmp_path: Path) -> None:
    state, limits = State(), {CARDS: 8, "limits.nvidia.com/gpumem": 4_096}
    pod = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 512}
    steps: list[list[commands.AnyCommand]] = [
        [commands.SetLimits("quota/c1/red/own", ("c1/red",), limits, "admin")],
        [commands.Reserve("c1/red", "pods/p", "u1", pod, actor="alice")],
        [commands.Observe("c1/red", "pods/q", "u2", 7, {"nvidia.com/gpu": 1}, "watch")],
    ]
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(steps)]
    await project(tmp_path / "ledger.sqlite", log_of([payload for payload in payloads if payload]))
    text = await shown(tmp_path / "ledger.sqlite")
    assert "3 of 8 GPUs, 2 GPUs reserved; 5 GPUs free" in text
    assert "512 MiB of 4 GiB, all reserved; 3.5 GiB free" in text


async def test_a_universe_quota_is_shown_by_cluster(projection: Path) -> None:
    parts = (await shown(projection)).partition("Shared quotas by cluster")[2]
    assert '<bdi class="name">c1</bdi> 4 GPUs' in parts
    assert '<bdi class="name">c2</bdi> 2 GPUs' in parts


async def test_a_reader_of_one_cluster_sees_others_as_one_sum(projection: Path) -> None:
    text = await shown(projection, viewer=Tenant("", cluster="c1"))
    assert "c2" not in text
    assert "far" not in text
    parts = text.partition("Shared quotas by cluster")[2]
    assert '<bdi class="name">c1</bdi> 4 GPUs' in parts
    assert "others 2 GPUs" in parts


async def test_a_tenant_sees_its_quotas_and_sums_of_shared_ones(projection: Path) -> None:
    text = await shown(projection, "/page/?namespace=blue", viewer=Tenant("blue"))
    assert "6 of 10 GPUs; 4 GPUs free" in text
    for name in ("red", "far", "c2", "GPU-a", "Shared quotas by cluster", "Free cards"):
        assert name not in text


async def test_parts_of_clusters_are_not_shown_where_they_do_not_add_up(tmp_path: Path) -> None:
    """Without a quota of its own, the charges of a namespace are added up, now and not later."""
    state, spaces = State(), ("c1/red", "c2/far")
    steps: list[list[commands.AnyCommand]] = [
        [commands.SetLimits("universe/all", spaces, {CARDS: 10}, "admin")],
        [commands.Observe("c1/red", "pods/p", "u", 7, {"nvidia.com/gpu": 3}, "watch")],
        [commands.Observe("c2/far", "pods/p", "u", 8, {"nvidia.com/gpu": 1}, "watch")],
    ]
    payloads = [record(state, step, time=START + n * SECOND) for n, step in enumerate(steps)]
    await project(tmp_path / "ledger.sqlite", log_of([payload for payload in payloads if payload]))
    text = await shown(tmp_path / "ledger.sqlite")
    assert '<bdi class="name">c1</bdi> 3 GPUs' in text
    assert '<bdi class="name">c2</bdi> 1 GPU<' in text
    past = await shown(tmp_path / "ledger.sqlite", "/page/?at=2")
    assert "The parts take longer to add up" in past


def waiting(number: int) -> WaitingRow:
    since = f"2026-01-{number % 28 + 1:02}T00:00:00Z"
    return WaitingRow("c1", "red", f"p{number}", f"pods/p{number}", "u", {}, "", since, number, "")


async def test_waiting_pods_are_counted_where_they_are_known(projection: Path) -> None:
    text = await shown(projection, source=FakeSource(waiting=[waiting(2), waiting(1)]))
    assert "oldest since 2026-01-02T00:00:00Z" in text
    assert "or more" not in text
    many = [waiting(number) for number in range(WAITING_MAX)]
    assert ">500</a> or more" in await shown(projection, source=FakeSource(waiting=many))
    assert "not known here" in await shown(projection, source=FakeSource(waiting=None))


async def test_problems_of_the_log_are_for_readers_of_everything(projection: Path) -> None:
    health = LogHealth(9, "a test", problems=(f"nats://10.0.0.1 {HOSTILE}",))
    text = await shown(projection, source=FakeSource(health=health))
    assert "nats://10.0.0.1 &lt;script&gt;" in text
    assert "4 records behind" in text
    tenant = await shown(
        projection, "/page/?namespace=blue", viewer=Tenant("blue"), source=FakeSource(health=health)
    )
    assert "10.0.0.1" not in tenant
    assert "Ask its operator" in tenant


@pytest.mark.parametrize(
    ("problems", "shown_log"), [((), "not checked"), (("it ended",), "not reached")]
)
async def test_a_log_without_a_position_is_bad_only_with_a_problem(
    projection: Path, problems: tuple[str, ...], shown_log: str
) -> None:
    source = FakeSource(health=LogHealth(None, "a test", problems=problems))
    text = await shown(projection, source=source)
    assert shown_log in text
    assert ('<span class="bad">not reached' in text) == bool(problems)


async def test_a_tenant_follows_the_link_to_the_history_of_a_shared_quota(
    projection: Path,
) -> None:
    async with pages(projection, viewer=Tenant("blue")) as client:
        text = (await client.get("/page/?namespace=blue")).text
        links = re.findall(r'href="(/page/history\?account=universe[^"]*)"', text)
        answers = [await client.get(link.replace("&amp;", "&")) for link in links]
    assert [answer.status_code for answer in answers] == [200]
