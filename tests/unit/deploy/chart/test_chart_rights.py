"""Rights: the accounts of a release may do what its values need, and no more."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuledger.check.before_install import NEEDED

EDIT = "rbac.authorization.k8s.io/aggregate-to-edit"
ADMIN = "rbac.authorization.k8s.io/aggregate-to-admin"
KINDS = ("ledgerpolicies", "universeresourcequotas")
MONITOR = ("agent.enabled=true", "networkPolicy.controlPlane={10.0.0.0/28}")

Manifest = dict[str, Any]


def verbs(role: Manifest, resource: str) -> set[str]:
    rules = [rule for rule in role["rules"] if resource in rule.get("resources", ())]
    return {verb for rule in rules for verb in rule["verbs"]}


@pytest.mark.parametrize(
    ("sets", "places"),
    [
        ((), False),
        (("scheduler.enabled=true",), True),
        (("webhook.clientCA.existingConfigMap=ca",), True),
    ],
)
def test_the_service_binds_pods_only_where_something_places_them(
    manifest: Callable[..., Manifest], sets: tuple[str, ...], *, places: bool
) -> None:
    role = manifest("ClusterRole", "gpuledger", *sets)
    assert verbs(role, "pods/binding") == ({"create"} if places else set())
    assert verbs(role, "nodes") == {
        "get",
        "list",
        "watch",
        "patch",
    }  # It clears HAMi's stale locks.


@pytest.mark.parametrize("registers", [True, False])
def test_the_service_creates_webhooks_only_where_it_registers_them(
    manifest: Callable[..., Manifest], *, registers: bool
) -> None:
    given = f"webhook.register={str(registers).lower()}"
    role = manifest("ClusterRole", "gpuledger-registration", given)
    created = {"create"} if registers else set()
    assert verbs(role, "validatingwebhookconfigurations") == {"get", "patch"} | created


@pytest.mark.parametrize("kind", KINDS)
def test_only_administrators_of_the_cluster_change_limits(
    manifest: Callable[..., Manifest], kind: str
) -> None:
    reader = manifest("ClusterRole", f"gpuledger-{kind}-viewer")["metadata"]["labels"]
    editor = manifest("ClusterRole", f"gpuledger-{kind}-editor")["metadata"]["labels"]
    assert {EDIT, ADMIN} <= reader.keys()
    assert ADMIN in editor
    assert EDIT not in editor


@pytest.mark.parametrize("kind", KINDS)
def test_an_editor_of_limits_may_apply_them(manifest: Callable[..., Manifest], kind: str) -> None:
    role = manifest("ClusterRole", f"gpuledger-{kind}-editor")
    assert {"get", "list", "create", "update", "patch", "delete"} <= verbs(role, kind)


@pytest.mark.parametrize("name", ["gpuledger", "gpuledger-agent"])
def test_network_policies_admit_the_namespace_of_prometheus(
    manifest: Callable[..., Manifest], name: str
) -> None:
    monitored = (
        *MONITOR,
        "serviceMonitor.enabled=true",
        "serviceMonitor.prometheus.namespace=prom",
    )
    wanted = {"kubernetes.io/metadata.name": "prom"}
    assert wanted not in admitted(manifest("NetworkPolicy", name, *MONITOR))
    assert wanted in admitted(manifest("NetworkPolicy", name, *monitored))


def admitted(policy: Manifest) -> list[dict[str, str]]:
    peers = [peer for rule in policy["spec"]["ingress"] for peer in rule["from"]]
    return [
        peer["namespaceSelector"]["matchLabels"] for peer in peers if "namespaceSelector" in peer
    ]


def test_the_check_before_an_install_asks_for_every_kind_of_the_chart(rendered: Any) -> None:
    needed = {(group, resource) for group, resource, _ in NEEDED}
    created = {kind_of(each.manifest) for each in rendered()}
    assert created - needed == set()
    assert needed - created == set()


def kind_of(manifest: Manifest) -> tuple[str, str]:
    """Return the group and the resource of an object."""
    group, _, _ = manifest["apiVersion"].rpartition("/")
    kind = manifest["kind"].lower()
    return group, f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
