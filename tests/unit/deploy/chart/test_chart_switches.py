"""Switches: each part comes with its value, and without it leaves nothing behind."""

from typing import Any

import pytest

SWITCHES: dict[str, tuple[list[str], set[tuple[str, str]]]] = {
    "scheduler": (["scheduler.enabled=true"], {("Deployment", "gpuledger-scheduler")}),
    "preemption": (
        ["scheduler.enabled=true", "scheduler.preemption=true"],
        {
            ("ClusterRole", "gpuledger-preemption"),
            ("ValidatingAdmissionPolicy", "gpuledger-own-evictions"),
        },
    ),
    "agent": (
        ["agent.enabled=true"],
        {("DaemonSet", "gpuledger-agent"), ("Namespace", "gpuledger-nodes")},
    ),
    "evict": (
        ["agent.enabled=true", "agent.evict=true"],
        {("ClusterRole", "gpuledger-agent-evict")},
    ),
    "service monitor": (["serviceMonitor.enabled=true"], {("ServiceMonitor", "gpuledger")}),
    "rules": (["prometheusRule.enabled=true"], {("PrometheusRule", "gpuledger")}),
    "dashboards": (["dashboards.enabled=true"], {("ConfigMap", "gpuledger-dashboards")}),
    "backup": (
        ["backup.enabled=true"],
        {("CronJob", "gpuledger-backup"), ("PersistentVolumeClaim", "gpuledger-backup")},
    ),
    "before install": (["check.beforeInstall=true"], {("Job", "gpuledger-before-install")}),
    "control plane": (
        ["networkPolicy.controlPlane={10.0.0.0/8}"],
        {("NetworkPolicy", "gpuledger")},
    ),
    "cert-manager": (["certManager.enabled=true"], {("Certificate", "gpuledger")}),
}
ON: dict[str, tuple[str, set[tuple[str, str]]]] = {
    "budget": ("podDisruptionBudget.enabled=false", {("PodDisruptionBudget", "gpuledger")}),
    "network": ("networkPolicy.enabled=false", {("NetworkPolicy", "gpuledger-nats")}),
    "quota": ("priorityClassQuota.enabled=false", {("ResourceQuota", "gpuledger-critical-pods")}),
    "definitions": (
        "crds.install=false",
        {("CustomResourceDefinition", "ledgerpolicies.gpuledger.io")},
    ),
    "test": (
        "check.namespace=",
        {("Pod", "gpuledger-check"), ("Role", "gpuledger-check-pods")},
    ),
    "uninstall": ("uninstall.enabled=false", {("Job", "gpuledger-uninstall")}),
    "made certificates": (
        "certificates.existingSecret=x",
        {("Secret", "gpuledger-tls"), ("Role", "gpuledger-certificates")},
    ),
    "made passwords": ("nats.auth.existingSecret=x", {("Secret", "gpuledger-nats")}),
}


def keys(objects) -> set[tuple[str, str]]:
    return {(each.manifest["kind"], each.manifest["metadata"]["name"]) for each in objects}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_part_comes_with_its_switch_only(rendered, name: str) -> None:
    sets, part = SWITCHES[name]
    assert part <= keys(rendered(*sets))
    assert part & keys(rendered()) == set()


@pytest.mark.parametrize("name", ON)
def test_a_part_goes_with_its_switch_only(rendered, name: str) -> None:
    off, part = ON[name]
    assert part <= keys(rendered())
    assert part & keys(rendered(off)) == set()


@pytest.mark.parametrize(("mode", "servers"), [("single", 1), ("cluster", 3)])
def test_the_log_has_the_servers_of_its_mode(manifest, mode: str, servers: int) -> None:
    log = manifest("StatefulSet", "gpuledger-nats", f"nats.mode={mode}")["spec"]
    assert log["replicas"] == servers
    [container] = log["template"]["spec"]["containers"]
    assert ("ROUTES" in {entry["name"] for entry in container["env"]}) == (servers > 1)
    text = manifest("ConfigMap", "gpuledger-nats-settings", f"nats.mode={mode}")["data"][
        "nats.conf"
    ]
    assert ("\ncluster {\n" in text) == (servers > 1)
    assert "sync_interval: always" in text


def test_external_servers_bring_no_log(rendered) -> None:
    kinds = {(kind, name) for kind, name in keys(rendered(values="external")) if "nats" in name}
    assert kinds == set()


def test_definitions_stay_at_an_uninstall_unless_they_are_not_kept(manifest) -> None:
    def policy(*sets: str) -> Any:
        name = "ledgerpolicies.gpuledger.io"
        return manifest("CustomResourceDefinition", name, *sets)["metadata"].get("annotations", {})

    assert policy()["helm.sh/resource-policy"] == "keep"
    assert policy("crds.keep=false") == {}


def test_images_come_from_the_mirror(rendered) -> None:
    objects = rendered(values="external")
    images = {container["image"] for each in objects for container in _containers(each.manifest)}
    assert images
    assert all(image.startswith("mirror.example/gpu/") for image in images)


def test_an_image_may_be_named_by_its_digest(manifest) -> None:
    digest = f"sha256:{'a' * 64}"
    spec = manifest("Deployment", "gpuledger", f"image.digest={digest}")["spec"]["template"]["spec"]
    assert spec["containers"][0]["image"] == f"gpuledger@{digest}"


def _containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    spec = manifest.get("spec", {})
    for name in ("jobTemplate", "template"):
        spec = spec.get(name, {}).get("spec", spec) if name in spec else spec
    if not isinstance(spec, dict):
        return []
    return [*spec.get("containers", ()), *spec.get("initContainers", ())]


def test_every_pod_but_an_agent_runs_confined(rendered, value_sets: list[str]) -> None:
    checked = 0
    for values in value_sets:
        for each in rendered(values=values):
            if each.template.startswith("agent/"):
                continue
            for container in _containers(each.manifest):
                security = container["securityContext"]
                assert security["readOnlyRootFilesystem"], each.template
                assert security["capabilities"] == {"drop": ["ALL"]}, each.template
                assert not security["allowPrivilegeEscalation"], each.template
                assert container["resources"]["limits"]["memory"], each.template
                checked += 1
    assert checked > 20


def test_only_an_unready_scheduler_may_always_be_evicted(rendered) -> None:
    budgets = {
        each.manifest["metadata"]["name"]: each.manifest["spec"].get("unhealthyPodEvictionPolicy")
        for each in rendered("scheduler.enabled=true", "nats.mode=cluster")
        if each.manifest["kind"] == "PodDisruptionBudget"
    }
    assert budgets == {
        # None is ready while the log is away, and a drain of all would delete all heads of it.
        "gpuledger": None,
        "gpuledger-scheduler": "AlwaysAllow",
        "gpuledger-nats": None,  # An unready server may have the only current copy.
    }
