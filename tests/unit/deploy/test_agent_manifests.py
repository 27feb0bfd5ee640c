"""The manifests of agents are valid and agree with the service, the log and the agent."""

from typing import Final

import kubernetes_validate
import pytest
import yaml
from support.builders.manifests import DEPLOY, VERSIONS, Folder, Manifest, name_of
from typer.testing import CliRunner

from gpuledger.command_line import build
from gpuledger.node.agent_log_connection import INBOX
from gpuledger.node.agent_settings import AgentSettings
from gpuledger.version import VERSION
from ledger.log.jetstream.stream_configuration import StreamNames
from ledger.runtime.settings import setting_sources
from vgpu_native.plugin.plugin_settings import PluginSettings

NAME: Final = "gpuledger-agent"
SPACE: Final = "gpuledger-nodes"
AGENT: Final = Folder(DEPLOY / "agent")
EVICT: Final = Folder(DEPLOY / "agent-evict")


def pod() -> Manifest:
    return AGENT.pod_of(f"DaemonSet/{NAME}")


def container() -> Manifest:
    [manifest] = pod()["spec"]["containers"]
    assert isinstance(manifest, dict)
    return manifest


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("manifest", [*AGENT.manifests, *EVICT.manifests], ids=name_of)
def test_a_manifest_of_the_agent_is_valid(manifest: Manifest, version: str) -> None:
    assert kubernetes_validate.validate(manifest, version, strict=True) == version


def test_everything_in_the_folder_is_applied() -> None:
    files = {path.name for path in AGENT.path.iterdir()} - {"kustomization.yaml"}
    made = {
        file
        for generator in AGENT.kustomization["configMapGenerator"]
        for file in generator["files"]
    }
    assert files == set(AGENT.kustomization["resources"]) | made
    assert EVICT.kustomization["resources"] == ["../agent", "access.yaml"]
    assert {path.name for path in EVICT.path.iterdir()} == {"access.yaml", "kustomization.yaml"}


def test_agent_reads_the_log_as_another_user_than_the_service() -> None:
    environment = {"GPULEDGER_NATS_PASSWORD": "secret"}
    agent = setting_sources.load({}, environment, str(AGENT.path / "agent.toml")).settings
    service = setting_sources.load({}, {}, str(DEPLOY / "gpuledger.toml")).settings
    assert (agent.cluster, agent.shard) == (service.cluster, service.shard)
    assert agent.nats == tuple(
        url.replace(":4222", ".gpuledger-system.svc:4222") for url in service.nats
    )
    assert agent.nats_user != service.nats_user
    configuration = (DEPLOY / "nats.conf").read_text()
    assert f"user: {agent.nats_user}," in configuration
    assert f'"$JS.{agent.nats_domain}.API.>"' in configuration
    news = StreamNames(agent.shard).news_subject
    assert f'subscribe: ["{INBOX}.>", "{news}"]' in configuration
    assert agent.replicas == service.replicas


def test_options_are_those_of_the_command() -> None:
    command, *options = container()["args"]
    [patch] = EVICT.kustomization["patches"]
    added = [operation["value"] for operation in yaml.safe_load(patch["patch"])]
    assert added == ["--bypass=evict", "--wrong-cards=evict"]
    options += added
    shown = CliRunner().invoke(build(), [command, "--help"], terminal_width=200).output
    assert command == "agent"
    assert all(f"{option.partition('=')[0]} " in shown for option in options)


def test_paths_are_the_same_on_the_host_and_in_the_agent() -> None:
    volumes = {volume["name"]: volume for volume in pod()["spec"]["volumes"]}
    mounted = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    hosts = {
        name: volume["hostPath"]["path"] for name, volume in volumes.items() if "hostPath" in volume
    }
    assert all(mounted[name] == path for name, path in hosts.items())
    plugin: PluginSettings = AgentSettings().plugin_settings()
    assert set(hosts.values()) == {
        str(plugin.state_dir),
        str(plugin.plugins_dir),
        str(plugin.pod_resources.parent),
        str(plugin.library.parent),
        str(plugin.cdi_dir),
    }


def test_nodes_read_no_secret_of_the_service() -> None:
    # The kubelet may read every Secret that a pod of its node names, with all keys.
    assert AGENT.manifest(f"DaemonSet/{NAME}")["metadata"]["namespace"] == SPACE
    assert {variable["name"] for variable in container()["env"] if "valueFrom" in variable} == {
        "GPULEDGER_NATS_PASSWORD",
        "NODE_NAME",
    }
    [source] = [
        variable for variable in container()["env"] if variable["name"] == "GPULEDGER_NATS_PASSWORD"
    ]
    assert source["valueFrom"] == {"secretKeyRef": {"name": NAME, "key": "password"}}


def test_agent_objects_are_in_their_namespace_and_reach_the_log() -> None:
    spaces = {manifest["metadata"].get("namespace", SPACE) for manifest in AGENT.manifests}
    assert spaces == {SPACE, "gpuledger-system"}
    policy = AGENT.manifest("NetworkPolicy/gpuledger-nats-agents")
    [heard] = policy["spec"]["ingress"][0]["from"]
    assert policy["metadata"]["namespace"] == "gpuledger-system"
    assert heard["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": SPACE}
    assert heard["podSelector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()


def test_the_library_is_copied_from_the_image_to_where_the_agent_has_it() -> None:
    [first, _] = pod()["spec"]["initContainers"]
    [script] = first["args"]
    [copy, _, rename] = script.strip().splitlines()
    source, target = copy.split()[1], rename.split()[2]
    assert f"/libvgpu.so {source}\n" in (DEPLOY / "Dockerfile").read_text()
    assert target == str(AgentSettings().plugin_settings().library)


def test_the_agent_is_probed_where_it_listens() -> None:
    [port] = container()["ports"]
    [listen] = [argument for argument in container()["args"] if argument.startswith("--listen=")]
    assert listen.endswith(f":{port['containerPort']}")
    for kind in ("startup", "liveness", "readiness"):
        assert container()[f"{kind}Probe"]["httpGet"]["port"] == port["name"]


def test_the_agent_runs_in_the_version_of_the_service() -> None:
    images = [manifest["image"] for manifest in (container(), *pod()["spec"]["initContainers"])]
    assert set(images) == {f"gpuledger-agent:{VERSION}"}
    assert AGENT.kustomization["images"][0]["newTag"] == VERSION


def test_the_agent_is_confined_to_what_it_needs() -> None:
    security = container()["securityContext"]
    assert security["readOnlyRootFilesystem"]
    assert security["capabilities"]["drop"] == ["ALL"]
    assert "privileged" not in security
    verbs = {
        verb for rule in AGENT.manifest(f"ClusterRole/{NAME}")["rules"] for verb in rule["verbs"]
    }
    assert verbs == {"get", "patch", "create"}


def test_only_the_init_container_that_mounts_slots_is_privileged() -> None:
    library, slots = pod()["spec"]["initContainers"]
    assert slots["securityContext"]["privileged"]
    assert "restartPolicy" not in slots
    assert "privileged" not in library["securityContext"]
    [mount] = slots["volumeMounts"]
    assert mount["mountPropagation"] == "Bidirectional"
    directory = {variable["name"]: variable["value"] for variable in slots["env"]}["DIRECTORY"]
    assert directory == str(AgentSettings().plugin_settings().state_dir / "slots")
    [state] = [
        candidate for candidate in container()["volumeMounts"] if candidate["name"] == mount["name"]
    ]
    assert state["mountPropagation"] == "HostToContainer"


def test_only_agents_that_evict_may_evict() -> None:
    def who_may(manifests: list[Manifest]) -> list[str]:
        rules = [(manifest, rule) for manifest in manifests for rule in manifest.get("rules", ())]
        return [
            name_of(manifest) for manifest, rule in rules if "pods/eviction" in rule["resources"]
        ]

    assert who_may(AGENT.manifests) == []
    assert who_may(EVICT.manifests) == ["ClusterRole/gpuledger-agent-evict"]


@pytest.mark.parametrize("manifests", [AGENT.manifests, EVICT.manifests])
def test_every_policy_is_bound_and_about_the_agents_account(manifests: list[Manifest]) -> None:
    policies = [
        manifest for manifest in manifests if manifest["kind"] == "ValidatingAdmissionPolicy"
    ]
    bindings = [
        manifest for manifest in manifests if manifest["kind"] == "ValidatingAdmissionPolicyBinding"
    ]
    assert policies
    assert [binding["spec"]["policyName"] for binding in bindings] == [
        policy["metadata"]["name"] for policy in policies
    ]
    for policy in policies:
        [condition] = policy["spec"]["matchConditions"]
        assert f'"system:serviceaccount:{SPACE}:{NAME}"' in condition["expression"]


def test_only_labelled_namespaces_reach_agents() -> None:
    policy = AGENT.manifest(f"NetworkPolicy/{NAME}")
    assert policy["metadata"]["namespace"] == SPACE
    assert (
        policy["spec"]["podSelector"]["matchLabels"].items() <= pod()["metadata"]["labels"].items()
    )
    # A pod on the host's network would be under no policy.
    assert not pod()["spec"].get("hostNetwork")
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    [rule] = policy["spec"]["ingress"]
    [source] = rule["from"]
    [(key, value)] = source["namespaceSelector"]["matchLabels"].items()
    assert rule["ports"] == [{"port": container()["ports"][0]["containerPort"]}]
    page = (DEPLOY.parent / "docs" / "how-to" / "node.md").read_text()
    assert f"kubectl label namespace monitoring {key}={value}\n" in page
