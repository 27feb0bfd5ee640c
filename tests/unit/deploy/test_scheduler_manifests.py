"""The manifests of the scheduler are valid and agree with those of the service."""

from pathlib import Path
from typing import Final

import kubernetes_validate
import pytest
import yaml
from support.builders.manifests import DEPLOY, VERSIONS, Folder, Manifest, documents, name_of
from typer.testing import CliRunner

from extender.extender_routes import PATH
from gpuledger.command_line import build
from gpuledger.version import VERSION
from ledger.kube.vendors.vendors import NVIDIA
from ledger.runtime.settings import setting_sources
from ledger.runtime.settings.settings import Settings

NAME: Final = "gpuledger-scheduler"
SCHEDULER: Final = Folder(DEPLOY / "scheduler")
PREEMPTION: Final = Folder(DEPLOY / "preemption")


def pod() -> Manifest:
    return SCHEDULER.pod_of(f"Deployment/{NAME}")


def told(file: str) -> str:
    text: str = SCHEDULER.manifest(f"ConfigMap/{NAME}-settings")["data"][file]
    return text


@pytest.fixture
def configuration() -> Manifest:
    """The configuration of kube-scheduler."""
    read: Manifest = yaml.safe_load(told("scheduler.yaml"))
    return read


def settings_in(path: Path) -> Settings:
    return setting_sources.load({}, {}, str(path)).settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """The settings of the extender."""
    file = tmp_path / "extender.toml"
    file.write_text(told("extender.toml"))
    return settings_in(file)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", [*SCHEDULER.manifests, *PREEMPTION.manifests], ids=name_of)
def test_a_manifest_of_the_scheduler_is_valid(manifest: Manifest, version: str) -> None:
    assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_everything_in_the_folder_is_applied() -> None:
    for folder in (SCHEDULER, PREEMPTION):
        files = {path.name for path in folder.path.glob("*.yaml")} - {"kustomization.yaml"}
        assert files == set(folder.kustomization["resources"])


def test_only_preemption_brings_the_right_to_evict() -> None:
    def who_may(manifests: list[Manifest]) -> list[str]:
        rules = [(manifest, rule) for manifest in manifests for rule in manifest.get("rules", ())]
        return [
            name_of(manifest) for manifest, rule in rules if "pods/eviction" in rule["resources"]
        ]

    assert who_may(documents(DEPLOY / "rbac.yaml")) == []
    assert who_may(SCHEDULER.manifests) == []
    assert who_may(PREEMPTION.manifests) == ["ClusterRole/gpuledger-preemption"]


def test_the_scheduler_registers_no_webhook() -> None:
    bound = [
        manifest["roleRef"]["name"]
        for manifest in SCHEDULER.manifests
        if manifest["kind"] == "ClusterRoleBinding"
    ]
    assert "gpuledger" in bound
    assert "gpuledger-registration" not in bound


def test_the_extender_writes_the_log_of_the_service(settings: Settings) -> None:
    service = settings_in(DEPLOY / "gpuledger.toml")
    for name in ("cluster", "shard", "nats", "nats_monitor", "nats_user", "replicas", "namespace"):
        assert getattr(settings, name) == getattr(service, name)
    for name in ("vendors", "vendors_file"):
        assert getattr(settings, name) == getattr(service, name), "both charge the same cards"
    assert settings.production


def test_the_extender_runs_in_the_version_of_the_service() -> None:
    [sidecar] = pod()["spec"]["initContainers"]
    assert sidecar["image"] == f"gpuledger:{VERSION}"
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["args"] == ["extender"]
    assert SCHEDULER.kustomization["images"][0]["newTag"] == VERSION


def test_the_scheduler_asks_the_extender_beside_it(
    configuration: Manifest, settings: Settings
) -> None:
    [extender] = configuration["extenders"]
    port = settings.listen.rpartition(":")[2]
    assert extender["urlPrefix"] == f"https://127.0.0.1:{port}{PATH.rstrip('/')}"
    verbs = [extender[f"{verb}Verb"] for verb in ("filter", "bind", "preempt")]
    assert verbs == ["select", "bind", "preempt"]
    assert "prioritizeVerb" not in extender
    assert extender["tlsConfig"]["caFile"] == f"{settings.store_dir}/tls/ca.crt"
    assert float(extender["httpTimeout"].removesuffix("s")) > settings.bind_wait_seconds


def test_the_scheduler_looks_at_every_node_and_leaves_cards_alone(
    configuration: Manifest,
) -> None:
    assert configuration["percentageOfNodesToScore"] == 100
    [profile] = configuration["profiles"]
    assert profile["schedulerName"] == NAME
    [extender] = configuration["extenders"]
    assert extender["nodeCacheCapable"]
    assert [*extender["managedResources"]] == printed()["managedResources"]


def printed(*options: str) -> Manifest:
    """Return the command's output for a scheduler's configuration."""
    shown = CliRunner().invoke(build(), ["scheduler", "resources", *options])
    assert shown.exit_code == 0, shown.output
    read: Manifest = yaml.safe_load(shown.stdout)
    return read


def names_in(extender: Manifest) -> list[str]:
    assert all(resource["ignoredByScheduler"] for resource in extender["managedResources"])
    return [resource["name"] for resource in extender["managedResources"]]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_the_managed_resources_are_those_of_the_vendors_that_are_on(output: str) -> None:
    alone = names_in(printed("-o", output))
    assert alone == [*NVIDIA.names(), "nvidia.com/priority"]
    both = names_in(printed("--vendors", "nvidia,hygon", "-o", output))
    assert both == [*alone, "hygon.com/dcunum", "hygon.com/dcumem", "hygon.com/dcucores"]


def test_vendors_that_are_only_counted_are_left_to_the_scheduler() -> None:
    """Nodes offer a number of them, which only the scheduler looks at."""
    assert names_in(printed("--vendors", "metax,cambricon")) == []
    shown = CliRunner().invoke(
        build(), ["scheduler", "resources", "--vendors", "metax", "-o", "table"]
    )
    assert (shown.exit_code, shown.stdout) == (0, "")


def test_renamed_resources_are_managed_by_their_names(tmp_path: Path) -> None:
    file = tmp_path / "vendors.yaml"
    file.write_text(
        "- name: nvidia\n  count: example.com/gpu\n  memory: example.com/gpumem\n"
        "  priority: example.com/priority\n"
    )
    names = names_in(printed("--vendors-file", str(file)))
    assert names == ["example.com/gpu", "example.com/gpumem", "example.com/priority"]


def test_the_scheduler_may_use_its_own_lease_alone(configuration: Manifest) -> None:
    lease = configuration["leaderElection"]
    assert (lease["resourceName"], lease["resourceNamespace"]) == (NAME, "gpuledger-system")
    _, kept = SCHEDULER.manifest(f"Role/{NAME}")["rules"]
    assert kept["resourceNames"] == [lease["resourceName"]]


def test_every_file_that_is_named_is_mounted(configuration: Manifest) -> None:
    [scheduler] = pod()["spec"]["containers"]
    named = [scheduler["args"][0].partition("=")[2]]
    named.append(configuration["extenders"][0]["tlsConfig"]["caFile"])
    mounts = [mounted["mountPath"] for mounted in scheduler["volumeMounts"]]
    assert all(any(file.startswith(f"{mount}/") for mount in mounts) for file in named)


def test_the_log_lets_the_extender_in() -> None:
    policy = SCHEDULER.manifest("NetworkPolicy/gpuledger-nats-schedulers")["spec"]
    log = next(
        document
        for document in documents(DEPLOY / "nats.yaml")
        if document["kind"] == "StatefulSet"
    )
    assert policy["podSelector"] == log["spec"]["selector"]
    [rule] = policy["ingress"]
    [origin] = rule["from"]
    labels = pod()["metadata"]["labels"]
    assert origin["podSelector"]["matchLabels"].items() <= labels.items()
    [container] = log["spec"]["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {port["port"] for port in rule["ports"]} == {ports["client"], ports["monitor"]}
