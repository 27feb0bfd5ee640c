"""Scopes and types of cards in quotas, and how users see quotas."""

import uuid
from collections.abc import AsyncIterator
from typing import Final

import pytest

from tests.e2e.harness.agreement import assert_ledger_is_cluster
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import CARDS, MEMORY, pod
from tests.e2e.objects.team import QUOTA, SEEN_SECONDS, Team
from tests.e2e.objects.workloads import TeamWorkloads, job, replicated

pytestmark = pytest.mark.e2e

LINE: Final = f"limits.{CARDS}"
SCOPED: Final = "scoped"
V100: Final[Manifest] = {"annotations": {"nvidia.com/use-gputype": "V100"}}
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture
async def urgent(team: Team) -> AsyncIterator[str]:
    """Make a priority class and return its name."""
    name = f"urgent-{uuid.uuid4().hex[:8]}"
    manifest = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    }
    await team.cluster.must("POST", CLASSES, manifest)
    yield name
    await team.cluster.must("DELETE", f"{CLASSES}/{name}")


async def limit(team: Team, cards: int, **selecting: object) -> None:
    """Create a quota that selects."""
    manifest = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": SCOPED},
        "spec": {"hard": {LINE: str(cards)}, **selecting},
    }
    await team.cluster.must("POST", f"{team.path}/resourcequotas", manifest)
    await team.limits_are({LINE: str(cards)}, SCOPED)


def classes(operator: str, *values: str) -> Manifest:
    """Return a scopeSelector by priority class."""
    expression: Manifest = {"scopeName": "PriorityClass", "operator": operator}
    if values:
        expression["values"] = list(values)
    return {"matchExpressions": [expression]}


def with_class(manifest: Manifest, name: str) -> Manifest:
    manifest["spec"]["template"]["spec"]["priorityClassName"] = name
    return manifest


async def test_a_quota_for_a_priority_class_counts_its_workloads_alone(
    team: Team, urgent: str
) -> None:
    await team.limit({LINE: "9"})
    await limit(team, 2, scopeSelector=classes("In", urgent))
    space = TeamWorkloads(team)
    await space.created(replicated("Deployment", 3, "ordinary"))
    refused = await space.create(with_class(replicated("Deployment", 3, "rush"), urgent))
    assert refused.status == 403
    assert f'quota "{SCOPED}" allows 2, nothing is used' in refused.message
    await space.created(with_class(replicated("Deployment", 2, "rush"), urgent))
    await space.pods_are(5)
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, SCOPED, LINE] == 2
    assert lines[team.namespace, QUOTA, LINE] == 5


async def test_a_quota_for_all_but_a_priority_class_leaves_that_alone(
    team: Team, urgent: str
) -> None:
    await limit(team, 2, scopeSelector=classes("NotIn", urgent))
    space = TeamWorkloads(team)
    await space.created(with_class(replicated("StatefulSet", 3, "rush"), urgent))
    await space.created(replicated("StatefulSet", 2, "ordinary"))
    assert (await space.scale("StatefulSet", "ordinary", 3)).status == 403
    assert (await space.scale("StatefulSet", "rush", 4)).status == 200
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, SCOPED, LINE] == 2


async def test_a_template_that_changes_its_class_changes_quotas(team: Team, urgent: str) -> None:
    await limit(team, 2, scopeSelector=classes("Exists"))
    space = TeamWorkloads(team)
    await space.created(replicated("ReplicaSet", 3))
    change = {"spec": {"template": {"spec": {"priorityClassName": urgent}}}}
    refused = await space.change("ReplicaSet", "web", change)
    assert refused.status == 403
    assert "allows 2, nothing is used" in refused.message
    assert (await space.scale("ReplicaSet", "web", 2)).status == 200
    await space.pods_are(2)
    await assert_ledger_is_cluster(team)
    assert (await space.change("ReplicaSet", "web", change)).status == 200
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, SCOPED, LINE] == 2


async def test_a_quota_for_what_ends_counts_pods_with_a_deadline(team: Team) -> None:
    await limit(team, 2, scopes=["Terminating"])
    space = TeamWorkloads(team)
    short = job(2, "short")
    short["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 600
    await space.created(short)
    await space.created(job(3, "long"))
    limited = pod("limited")
    limited["spec"]["activeDeadlineSeconds"] = 60
    refused = await team.create(limited)
    assert refused.status == 403
    assert "allows 2, 2 are used" in refused.message
    await team.created(pod("endless"))
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, SCOPED, LINE] == 2


async def test_a_type_of_card_has_a_limit_of_its_own(team: Team) -> None:
    line = f"limits.v100.{MEMORY}"
    await team.limit({line: "16000", f"limits.{MEMORY}": "100000"})
    space = TeamWorkloads(team)
    await space.created(replicated("Deployment", 4, "any", memory=8_000))
    refused = await space.create(replicated("Deployment", 3, "typed", memory=8_000, **V100))
    assert refused.status == 403
    assert line in str(refused.body["details"]["causes"])
    assert "allows 16000, nothing is used" in refused.message
    await space.created(replicated("Deployment", 2, "typed", memory=8_000, **V100))
    await space.pods_are(6)
    assert (await team.create(pod("one", memory=1, **V100))).status == 403
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, QUOTA, line] == 16_000
    assert lines[team.namespace, QUOTA, f"limits.{MEMORY}"] == 48_000


async def test_the_type_of_card_of_a_pod_that_exists_stays(team: Team) -> None:
    line = f"limits.v100.{MEMORY}"
    await team.limit({line: "16000"})
    await team.created(pod("one", memory=8_000, **V100))
    path = f"{team.path}/pods/one"
    for other in ("t4", None):
        change = {"metadata": {"annotations": {"nvidia.com/use-gputype": other}}}
        refused = await team.cluster.patch(path, change)
        assert refused.status == 403
        assert "GpuTypeChanged" in refused.message
    lines = await assert_ledger_is_cluster(team)
    assert lines[team.namespace, QUOTA, line] == 8_000


async def test_an_unknown_type_is_refused_with_the_known_ones(team: Team) -> None:
    await team.limit({LINE: "9"})
    unknown = {"nvidia.com/use-gputype": "Voodoo2"}
    refused = await TeamWorkloads(team).create(replicated("Deployment", 1, annotations=unknown))
    assert refused.status == 403
    for word in ("UnknownGpuType", "Voodoo2", "v100", "t4"):
        assert word.lower() in refused.message.lower()


async def test_a_quota_shows_its_usage(team: Team, kubectl: Kubectl) -> None:
    await team.limit({LINE: "4", f"limits.{MEMORY}": "9000"})
    space = TeamWorkloads(team)
    await space.created(replicated("Deployment", 3, memory=2_000))
    await _status_is(team, {LINE: "3", f"limits.{MEMORY}": "6k"})
    described = kubectl.type(f"kubectl -n {team.namespace} describe quota {QUOTA}")
    rows = [line.split() for line in described.splitlines()]
    assert [LINE, "3", "4"] in rows
    assert [f"limits.{MEMORY}", "6k", "9k"] in rows
    await space.delete("Deployment", "web")
    await _status_is(team, {LINE: "0", f"limits.{MEMORY}": "0"})


@pytest.mark.parametrize("key", [MEMORY, "limits.nvidia.com/gpumem-percentage"])
async def test_a_key_that_limits_nothing_is_warned_about(team: Team, key: str) -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "odd"},
        "spec": {"hard": {key: "1000"}},
    }
    answer = await team.cluster.ask("POST", f"{team.path}/resourcequotas", manifest)
    assert answer.status == 201, answer
    assert any(key in warning for warning in answer.warnings), answer.warnings


async def _status_is(team: Team, used: dict[str, str]) -> None:
    path = f"{team.path}/resourcequotas/{QUOTA}"

    async def look() -> Manifest:
        status: Manifest = (await team.cluster.must("GET", path)).get("status", {})
        return status.get("used", {})

    await eventually(
        look, lambda seen: seen == used, within=SEEN_SECONDS, what=f"the status tells {used}"
    )
