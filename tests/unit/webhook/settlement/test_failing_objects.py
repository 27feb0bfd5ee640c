"""An object that cannot be handled stops neither the other objects nor the service.

No such object is known, so each test plants a defect.
"""

import pytest
from support.fakes.apiserver import pod_body
from support.fakes.full_cluster import DEPLOYMENTS, deployment
from support.harness.settlement import DEMAND, full_world, settling

from ledger.kube.watch import failed_objects
from ledger.kube.watch.failed_objects import FailedObjects
from webhook.quotas import resource_quota_accounts
from webhook.settlement import pod_reconciler
from webhook.settlement.pod_reconciler import PodReconciler
from webhook.settlement.workloads import workload_reconciler

GPUS = "limits.nvidia.com/gpu"
DEFECT = "a planted defect"


def defective(monkeypatch, where, name, of):
    """Have a function fail for the object called `bad`, until it is undone."""
    intact = getattr(where, name)

    def fail(*arguments, **options):
        if of(*arguments).metadata.name == "bad":
            raise RuntimeError(DEFECT)
        return intact(*arguments, **options)

    monkeypatch.setattr(where, name, fail)


def quota(value: str) -> dict:
    return {"metadata": {"name": "q"}, "spec": {"hard": {GPUS: value}}}


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "changed"])
async def test_pod_is_skipped_and_named_when_it_cannot_be_handled(monkeypatch, listed):
    with monkeypatch.context() as patch:
        defective(patch, pod_reconciler, "observe_counted_pod", lambda pod, *_: pod)
        async with full_world() as world:
            world.fails = True
            if listed:
                world.server.create("pods", "red", pod_body("bad"))
                world.server.create("pods", "red", pod_body("good"))
            async with settling(world):
                await world.synced()
                if not listed:
                    world.server.create("pods", "red", pod_body("bad"))
                    world.server.create("pods", "red", pod_body("good"))
                await world.until(lambda: world.entry("good") is not None)
                assert world.entry("bad") is None
                expected = f"pods red/bad: not taken in, RuntimeError: {DEFECT}"
                await world.until(lambda: world.settlement.warnings() == [expected])
                assert world.settlement.problems() == []
                assert world.counted[failed_objects.METRIC, "pods"] == 1
                patch.undo()
                world.server.update("pods", "red", "bad")
                await world.until(lambda: world.entry("bad") is not None)
                await world.until(lambda: world.settlement.warnings() == [])


async def test_charge_of_a_pod_stays_when_it_cannot_be_handled(monkeypatch):
    async with full_world() as world:
        world.fails = True
        body = world.server.create("pods", "red", pod_body("bad"))
        await world.reserve("bad", body["metadata"]["uid"])
        defective(monkeypatch, pod_reconciler, "observe_counted_pod", lambda pod, *_: pod)
        async with settling(world):
            await world.synced()
            assert world.entry("bad").charge == DEMAND


async def test_quota_keeps_its_limits_when_it_cannot_be_handled(monkeypatch):
    async with full_world() as world, settling(world):
        await world.synced()
        world.fails = True
        world.server.create("resourcequotas", "red", quota("3"))
        await world.until(lambda: world.limits("q") == {GPUS: 3})
        intact = vars(resource_quota_accounts)["limits_of"]
        with monkeypatch.context() as patch:
            patch.setattr(resource_quota_accounts, "limits_of", _fail)
            world.server.update("resourcequotas", "red", "q", **quota("4"))
            await world.until(lambda: world.counted[failed_objects.METRIC, "quotas"] == 1)
        assert vars(resource_quota_accounts)["limits_of"] is intact
        assert world.limits("q") == {GPUS: 3}
        world.server.update("resourcequotas", "red", "q", **quota("5"))
        await world.until(lambda: world.limits("q") == {GPUS: 5})


def _fail(*_, **__):
    raise RuntimeError(DEFECT)


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "changed"])
async def test_charge_of_a_workload_stays_when_it_cannot_be_read(monkeypatch, listed):
    key = f"{DEPLOYMENTS.name}/bad"
    async with full_world() as world:
        world.fails = True
        world.server.create(DEPLOYMENTS.name, "red", deployment("bad"))
        async with settling(world):
            await world.until(lambda: world.root(key) is not None)
            charged = dict(world.root(key).charge)
            if not listed:
                await world.synced()
                await _misread(world, monkeypatch)
                assert world.root(key).charge == charged
        if listed:
            async with settling(world):
                await _misread(world, monkeypatch)
                assert world.root(key).charge == charged


async def _misread(world, monkeypatch):
    """Change a workload that cannot be read from now on, and wait until others are charged."""
    defective(
        monkeypatch, workload_reconciler, "observe_workload", lambda _, workload, *__: workload
    )
    world.server.update(DEPLOYMENTS.name, "red", "bad", spec=deployment("bad", 5)["spec"])
    world.server.create(DEPLOYMENTS.name, "red", deployment("good"))
    await world.until(lambda: world.root(f"{DEPLOYMENTS.name}/good") is not None)
    expected = f"deployments.apps red/bad: not taken in, RuntimeError: {DEFECT}"
    await world.until(lambda: world.settlement.warnings() == [expected])


async def test_list_is_repeated_when_it_cannot_be_handled(monkeypatch):
    intact, left = PodReconciler._recount, [DEFECT]

    async def recount(self, *arguments):
        if left:
            raise RuntimeError(left.pop())
        await intact(self, *arguments)

    monkeypatch.setattr(PodReconciler, "_recount", recount)
    async with full_world() as world:
        world.fails = True
        world.server.create("pods", "red", pod_body("good"))
        async with settling(world):
            await world.until(lambda: any(DEFECT in line for line in world.settlement.problems()))
            await world.until(lambda: world.entry("good") is not None)
            await world.synced()
            assert world.settlement.problems() == []
            assert world.settlement.warnings() == []


def test_failures_are_kept_and_shown_up_to_their_bounds():
    counted = []
    failed = FailedObjects(lambda *what: counted.append(what))
    for number in range(failed_objects.REMEMBERED_MAX + 3):
        with failed.taking("pods", f"red/{number}"):
            raise RuntimeError("x" * 1_000)
    lines = failed.shown()
    assert len(lines) == failed_objects.SHOWN_MAX + 1
    assert len(lines[0]) < 300
    assert (
        lines[-1] == f"{failed_objects.REMEMBERED_MAX - failed_objects.SHOWN_MAX}"
        " more objects were not taken in"
    )
    assert counted == [(failed_objects.METRIC, "pods")] * (failed_objects.REMEMBERED_MAX + 3)
    failed.forget("quotas")
    assert failed.shown() == lines
    failed.forget("pods")
    assert failed.shown() == []
