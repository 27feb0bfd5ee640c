"""The manifests are valid for every Kubernetes that is supported, and agree with one another."""

import itertools
import re
import tomllib
from pathlib import Path
from typing import Final

import kubernetes_validate
import pytest
import yaml
from starlette.routing import Route
from support.builders.manifests import DEPLOY, VERSIONS, Manifest, documents, name_of

from extender.preemption import preemption_events
from gpuledger.version import VERSION
from ledger.kube.api.api_resources import POLICIES, UNIVERSE_QUOTAS, Resource
from ledger.kube.client import pod_role
from ledger.log.jetstream.power_cut_safety import SERVER_VERSION_MIN
from ledger.runtime.http.health import Health
from ledger.runtime.http.http_server import DRAIN_SECONDS
from ledger.runtime.settings import setting_sources
from ledger.runtime.settings.settings import Settings
from webhook.configurations import configuration_paths, webhook_configurations
from webhook.gates import waiting_events

ROOT: Final = Path(__file__).parents[3]
SEPARATELY: Final = {"alerts.yaml", "kustomization.yaml", "kustomize-values.yaml"}
"""YAML that `kubectl apply -k deploy` does not apply."""

SCHEDULER: Final = DEPLOY / "scheduler"
"""Applied by itself, where pods are to be placed; see test_scheduler_manifests."""

AGENT: Final = DEPLOY / "agent"
EVICT: Final = DEPLOY / "agent-evict"
"""Applied by itself, on nodes with cards; see test_agent_manifests."""

PREEMPTION: Final = DEPLOY / "preemption"
"""Applied by itself, where pods are evicted for others; see test_scheduler_manifests."""

NETWORK: Final = DEPLOY / "network"
"""Applied separately, with the user's addresses."""

CHART: Final = DEPLOY / "chart"
"""Templates, not manifests; see the folder chart of these tests."""

KREW: Final = DEPLOY / "krew"
"""Read by krew on a laptop, see test_krew_manifest."""

CERTIFICATES: Final = DEPLOY / "certificates"
"""Applied by itself, where the replicas make their certificate."""

FILES: Final = sorted(
    path
    for path in DEPLOY.rglob("*.yaml")
    if path.name not in SEPARATELY
    and not path.is_relative_to(CHART)
    and path.parent not in (SCHEDULER, AGENT, EVICT, PREEMPTION, NETWORK, CERTIFICATES, KREW)
)
KINDS: Final = sorted((ROOT / "webhook" / "kinds" / "builtin").glob("*.yaml"))
OWN_SECONDS: Final = 3
"""Time of the service's end besides draining; see `DRAIN_SECONDS`."""

GIB: Final = 1024**3

MANIFESTS: Final = [document for path in FILES for document in documents(path)]
KUSTOMIZATION: Final = documents(DEPLOY / "kustomization.yaml")[0]


def manifest_named(name: str) -> Manifest:
    """Return the manifest of a kind and name."""
    [manifest] = [candidate for candidate in MANIFESTS if name_of(candidate) == name]
    return manifest


def template_of(workload: str) -> Manifest:
    template: Manifest = manifest_named(workload)["spec"]["template"]
    return template


def container_of(workload: str) -> Manifest:
    [container] = template_of(workload)["spec"]["containers"]
    assert isinstance(container, dict)
    return container


SERVICE: Final = "Deployment/gpuledger"
LOG: Final = "StatefulSet/gpuledger-nats"
WORKLOADS: Final = (SERVICE, LOG)


@pytest.fixture
def settings() -> Settings:
    """Return the settings of the shipped file and of the Deployment's environment.

    Loading fails for a variable that is not a setting.
    """
    container = container_of(SERVICE)
    environment = {
        variable["name"]: variable.get("value", "secret") for variable in container["env"]
    }
    path = environment.pop(setting_sources.CONFIG_VARIABLE)
    [mount] = [
        candidate
        for candidate in container["volumeMounts"]
        if path.startswith(candidate["mountPath"])
    ]
    file = DEPLOY / path.removeprefix(f"{mount['mountPath']}/")
    return setting_sources.load({}, environment, str(file)).settings


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "manifest", [*MANIFESTS, *documents(CERTIFICATES / "access.yaml")], ids=name_of
)
def test_a_manifest_is_valid(manifest: Manifest, version: str) -> None:
    assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_everything_is_applied() -> None:
    resources = {DEPLOY / resource for resource in KUSTOMIZATION["resources"]}
    assert resources == set(FILES)


def test_all_is_in_the_namespace_of_the_settings(settings: Settings) -> None:
    spaces = {manifest["metadata"].get("namespace") for manifest in MANIFESTS}
    spaces |= {generator.get("namespace") for generator in KUSTOMIZATION["configMapGenerator"]}
    assert spaces - {None} == {settings.namespace}
    assert manifest_named(f"Namespace/{settings.namespace}")


def test_settings_are_those_of_production(settings: Settings) -> None:
    assert settings.production
    assert settings.client_ca
    assert settings.replicas == manifest_named(LOG)["spec"]["replicas"]
    assert container_of(SERVICE)["args"] == ["serve"]


def test_the_files_of_the_config_maps_exist() -> None:
    for generator in KUSTOMIZATION["configMapGenerator"]:
        assert all((DEPLOY / file).is_file() for file in generator["files"])


def test_no_object_has_the_name_of_a_generated_config_map() -> None:
    generated = {generator["name"] for generator in KUSTOMIZATION["configMapGenerator"]}
    assert generated & {manifest["metadata"]["name"] for manifest in MANIFESTS} == set()


def test_every_server_of_the_log_is_named(settings: Settings) -> None:
    log = manifest_named(LOG)
    name, domain = log["metadata"]["name"], log["spec"]["serviceName"]
    hosts = [f"{name}-{number}.{domain}" for number in range(log["spec"]["replicas"])]
    ports = {port["name"]: port["containerPort"] for port in container_of(LOG)["ports"]}
    assert settings.nats == tuple(f"nats://{host}:{ports['client']}" for host in hosts)
    assert settings.nats_monitor == tuple(f"http://{host}:{ports['monitor']}" for host in hosts)
    [routes] = [
        variable["value"] for variable in container_of(LOG)["env"] if variable["name"] == "ROUTES"
    ]
    urls = [f"nats://route:$(ROUTE_PASSWORD)@{host}:{ports['cluster']}" for host in hosts]
    assert routes == f"[{', '.join(urls)}]"
    assert f"user: {settings.nats_user}," in (DEPLOY / "nats.conf").read_text()


def test_the_log_fits_on_its_volume(settings: Settings) -> None:
    [claim] = manifest_named(LOG)["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "10Gi"
    assert "max_file_store: 8GB\n" in (DEPLOY / "nats.conf").read_text()
    assert settings.log_bytes_max < 8 * GIB / 2


@pytest.mark.parametrize("workload", WORKLOADS)
def test_probes_ask_ports_that_the_container_has(workload: str) -> None:
    container = container_of(workload)
    ports = {port["name"] for port in container["ports"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
    assert {probe["port"] for probe in probes} <= ports


def test_the_service_is_probed_where_it_answers(settings: Settings) -> None:
    container = container_of(SERVICE)
    paths = {route.path for route in Health().routes() if isinstance(route, Route)}
    for kind in ("startup", "liveness", "readiness"):
        probe = container[f"{kind}Probe"]["httpGet"]
        assert probe["path"] in paths
        assert probe["scheme"] == "HTTPS"
    [port] = container["ports"]
    assert settings.listen.endswith(f":{port['containerPort']}")
    [exposed] = manifest_named("Service/gpuledger")["spec"]["ports"]
    assert exposed["targetPort"] == port["name"]
    assert exposed["port"] == webhook_configurations.ServiceReference("", "").port


def test_a_replica_has_time_to_drain() -> None:
    spec = template_of(SERVICE)["spec"]
    pause = container_of(SERVICE)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert spec["terminationGracePeriodSeconds"] > pause + DRAIN_SECONDS + OWN_SECONDS


def test_a_change_of_the_leader_takes_no_replica_out() -> None:
    probe = container_of(SERVICE)["readinessProbe"]
    assert probe["periodSeconds"] * (probe["failureThreshold"] - 1) > 8


ALL_REPLICAS = "Service/gpuledger-replicas"
"""The second Service of a workload, for its readers."""


def selectors() -> list[tuple[str, dict[str, str]]]:
    """Return every selector of pods, with whose it is."""
    selecting = []
    for manifest in MANIFESTS:
        spec = manifest.get("spec", {})
        for field in ("selector", "podSelector"):
            labels = spec.get(field, {})
            if labels:
                selecting.append((name_of(manifest), labels.get("matchLabels", labels)))
    for workload in WORKLOADS:
        spread = template_of(workload)["spec"]["topologySpreadConstraints"]
        selecting += [
            (workload, constraint["labelSelector"]["matchLabels"]) for constraint in spread
        ]
    for rule in manifest_named("NetworkPolicy/gpuledger-nats")["spec"]["ingress"]:
        selecting += [
            ("NetworkPolicy", peer["podSelector"]["matchLabels"]) for peer in rule["from"]
        ]
    return selecting


@pytest.mark.parametrize(("owner", "labels"), selectors())
def test_a_selector_selects_the_pods_of_one_workload(owner: str, labels: dict[str, str]) -> None:
    selected = [
        workload
        for workload in WORKLOADS
        if labels.items() <= template_of(workload)["metadata"]["labels"].items()
    ]
    assert len(selected) == 1
    if "/" in owner and owner != ALL_REPLICAS:
        assert owner.partition("/")[2] == manifest_named(selected[0])["metadata"]["name"]


def test_webhooks_reach_replicas_with_the_role_and_readers_all() -> None:
    role = {pod_role.LABEL: pod_role.REVIEWER}
    reviews, readers = (
        manifest_named(name)["spec"]["selector"] for name in ("Service/gpuledger", ALL_REPLICAS)
    )
    assert reviews == readers | role
    assert role.items() <= template_of(SERVICE)["metadata"]["labels"].items()
    variables = {each["name"]: each.get("valueFrom") for each in container_of(SERVICE)["env"]}
    assert variables["GPULEDGER_POD_NAME"] == {"fieldRef": {"fieldPath": "metadata.name"}}


@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_has_a_service_and_a_disruption_budget(workload: str, kind: str) -> None:
    assert manifest_named(f"{kind}/{manifest_named(workload)['metadata']['name']}")


def test_the_policy_lets_through_what_is_used() -> None:
    ports = {port["name"]: port["containerPort"] for port in container_of(LOG)["ports"]}
    service, peers = manifest_named("NetworkPolicy/gpuledger-nats")["spec"]["ingress"]
    assert {port["port"] for port in service["ports"]} == {ports["client"], ports["monitor"]}
    assert {port["port"] for port in peers["ports"]} == {ports["cluster"]}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_policy_in_front_of_the_service_is_about_its_pods_and_its_port(version: str) -> None:
    [policy] = documents(NETWORK / "service.yaml")
    assert kubernetes_validate.validate(policy, version, strict=True) == version
    [kustomization] = documents(NETWORK / "kustomization.yaml")
    assert kustomization["resources"] == ["service.yaml"]
    template, container = template_of(SERVICE), container_of(SERVICE)
    assert policy["metadata"]["namespace"] == manifest_named(SERVICE)["metadata"]["namespace"]
    selected, role = policy["spec"]["podSelector"]["matchLabels"], {pod_role.LABEL}
    assert selected.items() <= template["metadata"]["labels"].items()
    assert selected.keys() == template["metadata"]["labels"].keys() - role
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    port = container["ports"][0]["name"]
    assert [rule["ports"] for rule in policy["spec"]["ingress"]] == [[{"port": port}]] * 2
    page = (ROOT / "docs" / "how-to" / "kustomize.md").read_text()
    [(key, value)] = policy["spec"]["ingress"][1]["from"][0]["namespaceSelector"][
        "matchLabels"
    ].items()
    assert f"kubectl label namespace monitoring {key}={value}\n" in page


def test_the_image_is_of_this_version() -> None:
    assert container_of(SERVICE)["image"] == f"gpuledger:{VERSION}"
    [image] = KUSTOMIZATION["images"]
    assert image["newTag"] == VERSION
    for page in ("deploy/Dockerfile", "docs/how-to/kustomize.md"):
        assert f"gpuledger:{VERSION} ." in (ROOT / page).read_text()


def test_the_log_is_the_server_that_is_tested_here() -> None:
    locked = (DEPLOY / "locks" / "service.lock").read_text()
    image, _, tag = container_of(LOG)["image"].partition(":")
    version = tag.removesuffix("-alpine")
    assert image == "nats"
    assert f"\nnats-server-bin=={version} \\\n" in locked
    assert tuple(map(int, version.split("."))) >= SERVER_VERSION_MIN
    assert f"`nats:{tag}`" in (ROOT / "docs" / "how-to" / "kustomize.md").read_text()


def test_the_service_may_patch_the_webhooks_that_it_registers() -> None:
    patched = [
        rule["resourceNames"]
        for rule in manifest_named("ClusterRole/gpuledger-registration")["rules"]
        if rule["apiGroups"] == ["admissionregistration.k8s.io"] and "patch" in rule["verbs"]
    ]
    assert patched == [[configuration_paths.NAME]]


def granted() -> dict[tuple[str, str], set[str]]:
    """Return the verbs of the service's role by group and resource."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for rule in manifest_named("ClusterRole/gpuledger")["rules"]:
        for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
            verbs.setdefault((group, resource), set()).update(rule["verbs"])
    return verbs


@pytest.mark.parametrize("file", KINDS, ids=lambda file: file.stem)
def test_service_may_read_every_built_in_kind(file: Path) -> None:
    [kind] = documents(file)
    assert granted()[kind["group"], kind["resource"]] == {"get", "list", "watch"}


@pytest.mark.parametrize("resource", [UNIVERSE_QUOTAS, POLICIES])
def test_the_definitions_are_of_what_the_service_reads(resource: Resource) -> None:
    definition = manifest_named(f"CustomResourceDefinition/{resource.name}")["spec"]
    assert definition["group"] == resource.group
    assert definition["names"]["plural"] == resource.plural
    assert definition["names"]["kind"] == resource.kind
    assert definition["scope"] == ("Namespaced" if resource.namespaced else "Cluster")
    assert [version["name"] for version in definition["versions"]] == [resource.version]
    assert {"get", "list", "watch"} <= granted()[resource.group, resource.plural]


def test_no_rule_grants_everything_of_anything() -> None:
    roles = [manifest for manifest in MANIFESTS if manifest["kind"] == "ClusterRole"]
    # Editors are people, who may delete limits.
    for role in (role for role in roles if not role["metadata"]["name"].endswith("-editor")):
        for rule in role["rules"]:
            named = (*rule.get("apiGroups", ()), *rule.get("resources", ()))
            words = (*named, *rule.get("nonResourceURLs", ()), *rule["verbs"])
            assert not any("*" in word for word in words)
            assert "delete" not in words


def test_every_setting_of_the_shipped_file_has_a_comment() -> None:
    text = (DEPLOY / "gpuledger.toml").read_text()
    assert set(tomllib.loads(text)) <= set(Settings.__struct_fields__)
    assert text.count("\n# ") > 5


def test_the_service_may_report_the_events_that_it_reports_and_no_others() -> None:
    [policy] = [
        document
        for document in yaml.safe_load_all((DEPLOY / "own-writes.yaml").read_text())
        if document["kind"] == "ValidatingAdmissionPolicy"
        and document["metadata"]["name"] == "gpuledger-own-events"
    ]
    [rule] = [
        validation["expression"]
        for validation in policy["spec"]["validations"]
        if validation["expression"].startswith("object.?reason")
    ]
    reported = {
        preemption_events.PREEMPTION_STARTED,
        preemption_events.PREEMPTED,
        waiting_events.REASON,
    }
    assert set(re.findall(r'"(\w+)"', rule)) == reported
