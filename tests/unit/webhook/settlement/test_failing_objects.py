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
        async with full_world() as one:
            one.fails = True
            if listed:
                one.server.create("pods", "red", pod_body("bad"))
                one.server.create("pods", "red", pod_body("good"))
            async with settling(one):
                await one.synced()
                if not listed:
                    one.server.create("pods", "red", pod_body("bad"))
                    one.server.create("pods", "red", pod_body("good"))
                await one.until(lambda: one.entry("good") is not None)
                assert one.entry("bad") is None
                expected = f"pods red/bad: not taken in, RuntimeError: {DEFECT}"
                await one.until(lambda: one.settlement.warnings() == [expected])
                assert one.settlement.problems() == []
                assert one.counted[failed_objects.METRIC, "pods"] == 1
                patch.undo()
                one.server.update("pods", "red", "bad")
                await one.until(lambda: one.entry("bad") is not None)
                await one.until(lambda: one.settlement.warnings() == [])


async def test_charge_of_a_pod_stays_when_it_cannot_be_handled(monkeypatch):
    async with full_world() as one:
        one.fails = True
        body = one.server.create("pods", "red", pod_body("bad"))
        await one.reserve("bad", body["metadata"]["uid"])
        defective(monkeypatch, pod_reconciler, "observe_counted_pod", lambda pod, *_: pod)
        async with settling(one):
            await one.synced()
            assert one.entry("bad").charge == DEMAND


async def test_quota_keeps_its_limits_when_it_cannot_be_handled(monkeypatch):
    async with full_world() as one, settling(one):
        await one.synced()
        one.fails = True
        one.server.create("resourcequotas", "red", quota("3"))
        await one.until(lambda: one.limits("q") == {GPUS: 3})
        intact = vars(resource_quota_accounts)["limits_of"]
        with monkeypatch.context() as patch:
            patch.setattr(resource_quota_accounts, "limits_of", _fail)
            one.server.update("resourcequotas", "red", "q", **quota("4"))
            await one.until(lambda: one.counted[failed_objects.METRIC, "quotas"] == 1)
        assert vars(resource_quota_accounts)["limits_of"] is intact
        assert one.limits("q") == {GPUS: 3}
        one.server.update("resourcequotas", "red", "q", **quota("5"))
        await one.until(lambda: one.limits("q") == {GPUS: 5})


def _fail(*_, **__):
    raise RuntimeError(DEFECT)


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "changed"])
async def test_charge_of_a_workload_stays_when_it_cannot_be_read(monkeypatch, listed):
    key = f"{DEPLOYMENTS.name}/bad"
    async with full_world() as one:
        one.fails = True
        one.server.create(DEPLOYMENTS.name, "red", deployment("bad"))
        async with settling(one):
            await one.until(lambda: one.root(key) is not None)
            charged = dict(one.root(key).charge)
            if not listed:
                await one.synced()
                await _misread(one, monkeypatch)
                assert one.root(key).charge == charged
        if listed:
            async with settling(one):
                await _misread(one, monkeypatch)
                assert one.root(key).charge == charged


async def _misread(one, monkeypatch):
    """Change a workload that cannot be read from now on, and wait until others are charged."""
    defective(
        monkeypatch, workload_reconciler, "observe_workload", lambda _, workload, *__: workload
    )
    one.server.update(DEPLOYMENTS.name, "red", "bad", spec=deployment("bad", 5)["spec"])
    one.server.create(DEPLOYMENTS.name, "red", deployment("good"))
    await one.until(lambda: one.root(f"{DEPLOYMENTS.name}/good") is not None)
    expected = f"deployments.apps red/bad: not taken in, RuntimeError: {DEFECT}"
    await one.until(lambda: one.settlement.warnings() == [expected])


async def test_list_is_repeated_when_it_cannot_be_handled(monkeypatch):
    intact, left = PodReconciler._recount, [DEFECT]

    async def recount(self, *arguments):
        if left:
            raise RuntimeError(left.pop())
        await intact(self, *arguments)

    monkeypatch.setattr(PodReconciler, "_recount", recount)
    async with full_world() as one:
        one.fails = True
        one.server.create("pods", "red", pod_body("good"))
        async with settling(one):
            await one.until(lambda: any(DEFECT in line for line in one.settlement.problems()))
            await one.until(lambda: one.entry("good") is not None)
            await one.synced()
            assert one.settlement.problems() == []
            assert one.settlement.warnings() == []


def test_failures_are_kept_and_shown_up_to_their_bounds():
    counted = []
    found = FailedObjects(lambda *what: counted.append(what))
    for number in range(failed_objects.REMEMBERED_MAX + 3):
        with found.taking("pods", f"red/{number}"):
            raise RuntimeError("x" * 1_000)
    lines = found.shown()
    assert len(lines) == failed_objects.SHOWN_MAX + 1
    assert len(lines[0]) < 300
    assert (
        lines[-1] == f"{failed_objects.REMEMBERED_MAX - failed_objects.SHOWN_MAX}"
        " more objects were not taken in"
    )
    assert counted == [(failed_objects.METRIC, "pods")] * (failed_objects.REMEMBERED_MAX + 3)
    found.forget("quotas")
    assert found.shown() == lines
    found.forget("pods")
    assert found.shown() == []
