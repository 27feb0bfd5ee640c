"""The usage of containers by their regions and by the driver, and reports of a difference."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs
from support.builders.region_files import put_share, region
from support.fakes.fake_nvml import FakeNvml, gpu

from ledger.core.model.cards import Share
from ledger.kube.api.cluster_errors import BudgetExhausted, NotFound
from ledger.kube.api.cluster_ports import PodEvent
from vgpu_native.agent.bypass_detection import (
    SLACK,
    Bypass,
    BypassDetector,
    DriverUsage,
    ReportedUsage,
)
from vgpu_native.agent.bypass_reports import BypassReporter
from vgpu_native.agent.cards.card_announcement import CardOffer
from vgpu_native.agent.cards.card_inventory import CardInventory
from vgpu_native.agent.limits_page_writer import LimitsWriter
from vgpu_native.agent.node_metrics import AgentCollector
from vgpu_native.agent.pod_cgroups import ProcCgroups, pod_in
from vgpu_native.agent.usage_observer import LimitedContainer, UsageObserver
from vgpu_native.nvml.nvml_port import DriverProcess, NvmlDriver
from vgpu_native.plugin.allocation.allocation_store import ContainerOwner
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.shared import limits_page
from vgpu_native.shared.container_limits import limits_of
from vgpu_native.shared.limits_page import MEBIBYTE

UID = "01234567-89ab-cdef-0123-456789abcdef"
CARD = "GPU-0"
POD = ContainerOwner("team", "p", UID, "main")


class ModelCgroups:
    """Pids from 1000 on are in the pod."""

    def pod_of(self, pid: int) -> str:
        return UID if pid >= 1000 else ""


class ModelPods:
    def __init__(self) -> None:
        self.events: list[PodEvent] = []
        self.evicted: list[str] = []
        self.failing: list[Exception] = []

    async def create_event(self, event: PodEvent) -> None:
        self.events.append(event)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        if self.failing:
            raise self.failing.pop()
        self.evicted.append(f"{namespace}/{name}/{uid}")


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml(gpu(0))


@pytest.fixture
def driver(nvml: FakeNvml) -> Iterator[NvmlDriver]:
    driver = NvmlDriver(nvml, 2.0)
    yield driver
    driver.close()


@pytest.fixture
def observer(driver: NvmlDriver) -> UsageObserver:
    return UsageObserver(driver, ModelCgroups(), comparer=BypassDetector())


@pytest.fixture
def held(tmp_path: Path) -> LimitedContainer:
    limits_page.write(tmp_path / "limits", limits_of((Share(CARD, 100, 30),)))
    return LimitedContainer(POD, tmp_path / "limits", tmp_path / "region")


def use(held: LimitedContainer, *amounts: int, spent: int = 0) -> None:
    held.region.write_bytes(region({CARD: amounts}, spent=(spent,)))


async def test_the_usage_of_a_container_has_its_limits(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    use(held, 3, 4, spent=5_000_000_000)
    nvml.running[CARD] = (DriverProcess(1000, 50), DriverProcess(1001, 60), DriverProcess(7, 1000))
    [usage] = (await observer.look([held], [CARD])).uses
    assert (usage.memory_used, usage.memory_limit, usage.cores_limit) == (7, 100 * MEBIBYTE, 30)
    assert (usage.busy_seconds, usage.busy, usage.processes, usage.seen) == (5.0, 0.0, 2, 110)
    use(held, 3, 4, spent=6_000_000_000)
    [usage] = (await observer.look([held], [CARD])).uses
    assert usage.busy > 0
    assert (usage.namespace, usage.pod, usage.container, usage.index) == ("team", "p", "main", 0)


async def test_a_container_uses_nothing_when_it_has_no_region(
    observer: UsageObserver, held: LimitedContainer
) -> None:
    observation = await observer.look([held], [CARD])
    assert [usage.memory_used for usage in observation.uses] == [0]
    assert not observation.broken


async def test_a_broken_region_is_reported_and_claims_nothing(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    held.region.write_bytes(b"nonsense")
    nvml.running[CARD] = (DriverProcess(1000, SLACK + 1),)
    observation = await observer.look([held], [CARD])
    assert set(observation.broken) == {str(held.region)}
    assert [(bypass.uid, bypass.card, bypass.reported) for bypass in observation.drifts] == [
        (UID, CARD, 0)
    ]


async def test_unreadable_files_are_logged_once_until_they_are_readable(
    observer: UsageObserver, held: LimitedContainer
) -> None:
    with capture_logs() as lines:
        for content in (b"nonsense", b"nonsense", None, b"nonsense"):
            held.region.unlink(missing_ok=True)
            if content is not None:
                held.region.write_bytes(content)
            await observer.look([held], [CARD])
    told = [line for line in lines if line["event"] == "container_not_read"]
    assert [(line["namespace"], line["pod"], line["container"]) for line in told] == [
        ("team", "p", "main")
    ] * 2
    assert all(str(held.region) in line["reason"] for line in told)


async def test_only_a_container_that_bypasses_the_library_drifts(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    use(held, 7)
    nvml.running[CARD] = (DriverProcess(1000, SLACK + 7), DriverProcess(8, 10 * SLACK))
    assert not (await observer.look([held], [CARD])).drifts
    nvml.running[CARD] = (DriverProcess(1000, SLACK + 8),)
    [drift] = (await observer.look([held], [CARD])).drifts
    assert (drift.excess, drift.seconds) == (SLACK + 1, 0.0)


GIBIBYTE = 1024 * MEBIBYTE


async def test_a_bypass_is_found_when_the_region_claims_more_than_the_limit(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    limits_page.write(held.page, limits_of((Share(CARD, 8 * 1024, 30),)))
    use(held, 80 * GIBIBYTE)
    nvml.running[CARD] = (DriverProcess(1000, 80 * GIBIBYTE),)
    observation = await observer.look([held], [CARD])
    [drift] = observation.drifts
    assert (drift.reported, drift.seen) == (8 * GIBIBYTE, 80 * GIBIBYTE)
    assert observation.within == {str(held.page): (1, ())}
    await observer.look([held], [CARD])
    again = await observer.look([held], [CARD])
    assert again.overhead == {str(held.page): {CARD: 72 * GIBIBYTE}}


async def test_memory_above_a_lowered_limit_drifts_only_after_a_release(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    container = PlacedContainer("team", "p", UID, "main", 0, (Share(CARD, 4096, 30),), 1)
    limiter = LimitsWriter()
    for memory in (4096, 2048, 1024):
        smaller = msgspec.structs.replace(container, shares=(Share(CARD, memory, 30),))
        limiter.apply({container.key: held.page}, [smaller])

    async def drifts(used: int) -> int:
        use(held, used)
        nvml.running[CARD] = (DriverProcess(1000, used),)
        observation = await observer.look([held], [CARD])
        for page, (generation, cards) in observation.within.items():
            limiter.settle(Path(page), generation, cards)
        return len(observation.drifts)

    assert await drifts(4 * GIBIBYTE) == 0
    assert await drifts(GIBIBYTE) == 0
    assert await drifts(4 * GIBIBYTE) == 1, "it had been released"
    limiter.close()


async def test_the_claims_of_a_pods_containers_are_summed(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml, tmp_path: Path
) -> None:
    other = LimitedContainer(
        ContainerOwner("team", "p", UID, "second"), held.page, tmp_path / "second"
    )
    use(held, 100)
    use(other, 200)
    nvml.running[CARD] = (DriverProcess(1000, SLACK + 301),)
    assert [bypass.reported for bypass in (await observer.look([held, other], [CARD])).drifts] == [
        300
    ]


async def test_no_pod_drifts_when_the_driver_fails(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    use(held, 7)
    nvml.failing = "no permission"
    observation = await observer.look([held], [CARD])
    assert observation.drifts == ()
    assert observation.uses[0].seen is None


async def test_a_bypass_is_found_when_another_card_does_not_respond(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    use(held, 7)
    nvml.failing_cards = {"GPU-lost": "the card is lost"}
    nvml.running[CARD] = (DriverProcess(1000, SLACK + 8),)
    for cards in (["GPU-lost", CARD], [CARD, "GPU-lost"]):
        observation = await observer.look([held], cards)
        assert [bypass.excess for bypass in observation.drifts] == [SLACK + 1]
        assert observation.uses[0].seen == SLACK + 8
        assert set(observation.loads) == {CARD}
    observation = await observer.look([held], ["GPU-lost"])
    assert observation.uses[0].seen is None


async def test_overhead_is_lasting_usage_of_a_known_container(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml, tmp_path: Path
) -> None:
    use(held, 10)
    nvml.running[CARD] = (DriverProcess(1000, 40),)
    assert (await observer.look([held], [CARD])).overhead == {str(held.page): {CARD: 0}}
    assert (await observer.look([held], [CARD])).overhead == {str(held.page): {CARD: 30}}
    nvml.running[CARD] = (DriverProcess(1000, 15),)
    assert (await observer.look([held], [CARD])).overhead == {str(held.page): {CARD: 5}}
    other = LimitedContainer(
        ContainerOwner("team", "p", UID, "second"), held.page, tmp_path / "none"
    )
    assert (await observer.look([held, other], [CARD])).overhead == {}


async def test_overhead_excludes_shares_and_contexts_of_the_region(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    """Contexts of two processes have 500 bytes each. The driver lists their 1,024 shared once."""
    content = region({CARD: (500, 500)})
    put_share(content, 1024, holders=0b11)
    held.region.write_bytes(content)
    nvml.running[CARD] = (DriverProcess(1000, 1524), DriverProcess(1001, 530))
    await observer.look([held], [CARD])
    assert (await observer.look([held], [CARD])).overhead == {str(held.page): {CARD: 30}}


def test_a_drift_lasts_from_its_first_sample_until_a_pause() -> None:
    comparer = BypassDetector(slack=10)
    said, much, little = (
        [ReportedUsage("u", "c", 5)],
        [DriverUsage("u", "c", 16, 1)],
        [DriverUsage("u", "c", 15, 1)],
    )
    assert [bypass.seconds for bypass in comparer.compare(said, much, 100.0)] == [0.0]
    assert [bypass.seconds for bypass in comparer.compare(said, much, 107.0)] == [7.0]
    assert comparer.compare(said, little, 110.0) == ()
    assert [bypass.seconds for bypass in comparer.compare(said, much, 120.0)] == [0.0]
    assert comparer.compare(said, [DriverUsage("u", "c", 25, 2)], 121.0) == ()
    assert comparer.compare([], much, 122.0) == ()


def test_drift_continues_when_a_card_reports_nothing() -> None:
    comparer = BypassDetector(slack=10)
    said, much = [ReportedUsage("u", "c", 5)], [DriverUsage("u", "c", 16, 1)]
    comparer.compare(said, much, 100.0)
    assert comparer.compare(said, [], 105.0, {"c"}) == ()
    assert [bypass.seconds for bypass in comparer.compare(said, much, 107.0)] == [7.0]
    assert comparer.compare(said, [], 110.0, {"another"}) == ()
    assert [bypass.seconds for bypass in comparer.compare(said, much, 112.0)] == [0.0]


async def test_overhead_is_unchanged_when_the_card_does_not_respond(
    observer: UsageObserver, held: LimitedContainer, nvml: FakeNvml
) -> None:
    use(held, 10)
    nvml.running[CARD] = (DriverProcess(1000, 40),)
    for _ in range(2):
        await observer.look([held], [CARD])
    nvml.failing_cards[CARD] = "it does not answer"
    assert (await observer.look([held], [CARD])).overhead == {str(held.page): {CARD: 30}}


def drift(seconds: float) -> Bypass:
    return Bypass(UID, CARD, 5, 10 * MEBIBYTE, seconds)


async def test_a_drift_is_reported_once_and_evicted_only_by_policy() -> None:
    pods = ModelPods()
    reporter = BypassReporter(pods, "report")
    for seconds in (0.0, 14.0, 20.0, 100.0):
        await reporter.report([drift(seconds)], [POD])
    assert [event.reason for event in pods.events] == ["GPUMemoryNotAccountedFor"]
    assert "10 MiB of card GPU-0" in pods.events[0].note
    assert not pods.evicted
    await reporter.report([], [POD])
    await reporter.report([drift(20.0)], [POD])
    assert len(pods.events) == 2


async def test_an_eviction_is_retried_when_a_budget_forbids_it() -> None:
    pods = ModelPods()
    pods.failing = [BudgetExhausted("not now")]
    reporter = BypassReporter(pods, "evict")
    for _ in range(3):
        await reporter.report([drift(61.0)], [POD])
    assert pods.evicted == [f"team/p/{UID}"]
    assert [event.reason for event in pods.events] == [
        "GPUMemoryNotAccountedFor",
        "EvictedForGPUMemory",
    ]


async def test_a_pod_is_not_evicted_again_when_it_is_gone() -> None:
    pods = ModelPods()
    pods.failing = [NotFound("gone")]
    reporter = BypassReporter(pods, "evict")
    for _ in range(3):
        await reporter.report([drift(61.0)], [POD])
    assert not pods.evicted


async def test_drift_is_only_logged_when_there_is_no_cluster() -> None:
    await BypassReporter(None, "evict").report([drift(100.0)], [POD])


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        (f"0::/kubepods/burstable/pod{UID}/abc\n", UID),
        (f"11:memory:/kubepods/pod{UID}/abc\n0::/\n", UID),
        (
            "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod"
            f"{UID.replace('-', '_')}.slice/cri-containerd-abc.scope\n",
            UID,
        ),
        (f"0::/kubepods/pod{UID}/abc/pod{UID[::-1]}\n", UID),
        (f"0::/kubepods/pod{UID}\n", UID),
        (
            "0::/kubepods/pod0123456789abcdef0123456789abcdef/x\n",
            "0123456789abcdef0123456789abcdef",
        ),
        ("0::/system.slice/podman.service\n", ""),
        (f"0::/user.slice/xpod{UID}/abc\n", ""),
        ("", ""),
    ],
)
def test_a_process_is_in_the_pod_of_its_cgroup(tmp_path: Path, text: str, uid: str) -> None:
    assert pod_in(text) == uid
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cgroup").write_text(text)
    assert ProcCgroups(tmp_path).pod_of(7) == uid
    assert ProcCgroups(tmp_path).pod_of(8) == ""


async def test_metrics_are_exported_under_their_documented_names(
    observer: UsageObserver,
    held: LimitedContainer,
    driver: NvmlDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inventory = CardInventory(driver, CardOffer())
    await inventory.look()
    use(held, 7)
    collector = AgentCollector("n0", inventory)
    collector.show(await observer.look([held], [CARD]))
    samples = {sample.name: sample for family in collector.collect() for sample in family.samples}
    assert samples["hami_vgpu_memory_used_bytes"].value == 7
    assert samples["hami_vgpu_memory_limit_bytes"].labels == {
        "namespace": "team",
        "pod": "p",
        "container": "main",
        "vdevice_index": "0",
        "device_uuid": CARD,
    }
    assert samples["hami_host_gpu_memory_used_bytes"].labels["device_type"] == "NVIDIA H200"
    assert samples["gpuledger_device_healthy"].value == 1
    assert samples["gpuledger_container_cores_limit_ratio"].value == 0.3
    assert samples["gpuledger_container_devices_left_out"].value == 0
    assert "gpuledger_card_healthy" not in samples, "the service has this name for another metric"
    with monkeypatch.context() as bounded:
        bounded.setattr("vgpu_native.agent.node_metrics.LIMIT", 0)
        families = {family.name: family for family in collector.collect()}
    assert families["gpuledger_container_devices_left_out"].samples[0].value == 1
    collector = AgentCollector("n0", inventory, legacy=True)
    collector.show(await observer.look([held], [CARD]))
    samples = {sample.name: sample for family in collector.collect() for sample in family.samples}
    assert samples["gpuledger_container_cores_limit"].value == 30
    assert samples["gpuledger_card_healthy"].value == 1
    assert "gpuledger_container_gpu_busy_seconds_total" in samples
