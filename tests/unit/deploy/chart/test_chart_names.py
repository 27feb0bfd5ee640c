"""Names: everything of a release begins with its name, so that two releases never meet."""

import json
import re

import pytest

CLUSTER_SCOPED = {
    "ClusterRole",
    "ClusterRoleBinding",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "Namespace",
    "CustomResourceDefinition",
}
BECOME_LABELS = {"Deployment", "StatefulSet", "DaemonSet", "CronJob", "Job", "Pod", "Service"}
PARTS = ("scheduler.enabled=true", "agent.enabled=true", "agent.evict=true", "nats.mode=cluster")
MORE = ("scheduler.preemption=true", "backup.enabled=true", "check.beforeInstall=true")


@pytest.mark.parametrize(
    ("release", "prefix"),
    [
        ("gpuledger", "gpuledger"),
        ("my-gpuledger-2", "my-gpuledger-2"),
        ("east", "east-gpuledger"),
        ("e" * 53, f"{'e' * 28}-gpuledger"),
    ],
)
def test_every_object_begins_with_the_name_of_the_release(rendered, release, prefix) -> None:
    objects = rendered(*PARTS, *MORE, release=release)
    names = {(each.manifest["kind"], each.manifest["metadata"]["name"]) for each in objects}
    others = {name for kind, name in names if not re.match(rf"{prefix}(-|$)", name)}
    assert others == {
        "ledgerpolicies.gpuledger.io",
        "universeresourcequotas.gpuledger.io",
        "critical-pods",
    }
    # Names of pods, Services and volumes are labels or host names, also with the suffixes of pods.
    assert all(len(name) <= 53 for kind, name in names if kind in BECOME_LABELS)


def test_two_releases_share_only_the_definitions(rendered) -> None:
    def names(release: str) -> set[tuple[str, str]]:
        return {
            (each.manifest["kind"], each.manifest["metadata"]["name"])
            for each in rendered(*PARTS, *MORE, release=release, namespace=release)
            if each.manifest["kind"] in CLUSTER_SCOPED
        }

    shared = names("east") & names("west")
    assert {kind for kind, _ in shared} == {"CustomResourceDefinition"}


def test_nothing_names_another_release_or_namespace(rendered) -> None:
    """Policies and settings name accounts, Services and Secrets of this release only."""
    for each in rendered(*PARTS, *MORE, release="east", namespace="space"):
        if each.manifest["kind"] == "CustomResourceDefinition":
            continue  # Its descriptions have examples of accounts.
        text = json.dumps(each.manifest)
        for account in re.findall(r"system:serviceaccount:([-a-z0-9]+):([-a-z0-9]+)", text):
            assert account[0] in ("space", "east-gpuledger-nodes"), each.template
            assert account[1].startswith("east-gpuledger"), each.template
        assert "gpuledger-system" not in text
        unnamed = r'"gpuledger-(nats|tls|agent|scheduler|settings|nodes)(?!:)'
        assert not re.search(unnamed, text), each.template


def test_pods_are_selected_by_labels_that_an_upgrade_keeps(rendered) -> None:
    for each in rendered(*PARTS, release="east"):
        spec = each.manifest.get("spec", {})
        if each.manifest["kind"] in ("Deployment", "StatefulSet", "DaemonSet"):
            labels = spec["selector"]["matchLabels"]
            assert set(labels) == {"app.kubernetes.io/name", "app.kubernetes.io/component"}
            assert labels.items() <= spec["template"]["metadata"]["labels"].items()
        for claim in spec.get("volumeClaimTemplates", ()):
            assert "helm.sh/chart" not in claim["metadata"]["labels"]


def test_objects_have_the_recommended_labels(rendered) -> None:
    for each in rendered(*PARTS, *MORE):
        labels = each.manifest["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "gpuledger"
        assert labels["app.kubernetes.io/part-of"] == "gpuledger"


def test_the_log_admits_agents_of_the_given_namespace(rendered) -> None:
    objects = rendered("agent.enabled=true", "agent.namespace=gpu-agents")
    policy = next(
        each.manifest
        for each in objects
        if each.manifest["kind"] == "NetworkPolicy"
        and each.manifest["metadata"]["name"] == "gpuledger-nats-agents"
    )
    assert "gpu-agents" in json.dumps(policy["spec"]["ingress"])


def test_common_labels_are_on_all_objects_and_pods(rendered) -> None:
    objects = rendered(*PARTS, *MORE, "commonLabels.team=a", "podLabels.team=b")
    for each in objects:
        assert each.manifest["metadata"]["labels"]["team"] == "a", each.template
        spec = each.manifest.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec:
            own = "b" if each.template == "service/deployment.yaml" else "a"
            assert spec["template"]["metadata"]["labels"]["team"] == own, each.template
            assert each.text.count("team: ") <= 3
