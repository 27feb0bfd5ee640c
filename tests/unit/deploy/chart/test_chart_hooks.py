"""Hooks: the jobs of helm run commands of this version, with accounts of few rights."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpuledger.cli.exit_codes import Exit
from gpuledger.command_line import build

HOOKS = {
    "check": ("Pod", "gpuledger-check", "test"),
    "uninstall": ("Job", "gpuledger-uninstall", "pre-delete"),
    "before install": ("Job", "gpuledger-before-install", "pre-install,pre-upgrade"),
    "backup": ("CronJob", "gpuledger-backup", None),
}
SETS = ("check.beforeInstall=true", "backup.enabled=true", "agent.enabled=true")


def pod(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = manifest["spec"]
    for name in ("jobTemplate", "template"):
        spec = spec[name]["spec"] if name in spec else spec
    return spec


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_runs_a_command_with_options_that_it_has(manifest, name: str) -> None:
    kind, called, _ = HOOKS[name]
    [container] = pod(manifest(kind, called, *SETS))["containers"]
    command, *options = container["args"]
    shown = CliRunner().invoke(build(), [command, "--help"], terminal_width=200)
    assert shown.exit_code == 0
    for option in (given for given in options if given.startswith("--")):
        assert f"{option.partition('=')[0]} " in shown.output


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_comes_at_its_time(manifest, name: str) -> None:
    kind, called, when = HOOKS[name]
    notes = manifest(kind, called, *SETS)["metadata"].get("annotations", {})
    assert notes.get("helm.sh/hook") == when


@pytest.mark.parametrize("name", ["uninstall", "before install"])
def test_the_account_of_a_hook_exists_only_meanwhile(rendered, name: str) -> None:
    _, called, when = HOOKS[name]
    owned = [
        each.manifest
        for each in rendered(*SETS)
        if each.manifest["metadata"]["name"].startswith(called)
    ]
    assert {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"} <= {
        manifest["kind"] for manifest in owned
    }
    for manifest in owned:
        notes = manifest["metadata"]["annotations"]
        assert notes["helm.sh/hook"] == when
        assert "hook-succeeded" in notes["helm.sh/hook-delete-policy"]
        last = manifest["kind"] == "Job"
        assert int(notes["helm.sh/hook-weight"]) == (0 if last else -5)


@pytest.mark.parametrize(
    ("sets", "classes"),
    [
        ((), ["", ""]),
        (("nats.storage.class=fast", "backup.storage.class=cold"), ["fast", "cold"]),
        (("nats.storage.class=fast", "backup.existingClaim=mine"), ["fast"]),
        (("nats.mode=external", "nats.servers={nats://a}", "nats.auth.existingSecret=a"), [""]),
    ],
)
def test_the_check_before_an_install_asks_for_the_classes_of_all_volumes(
    manifest, sets: tuple[str, ...], classes: list[str]
) -> None:
    values = ("check.beforeInstall=true", "backup.enabled=true", *sets)
    [container] = pod(manifest("Job", "gpuledger-before-install", *values))["containers"]
    option = "--storage-class="
    asked = [given.removeprefix(option) for given in container["args"] if given.startswith(option)]
    assert asked == classes


def test_the_check_may_only_ask(rendered, manifest) -> None:
    rules = [
        rule
        for each in rendered()
        if each.manifest["kind"] in ("ClusterRole", "Role")
        and each.manifest["metadata"]["name"].startswith("gpuledger-check")
        for rule in each.manifest["rules"]
    ]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"get", "list", "create"}
    [created] = [rule for rule in rules if "create" in rule["verbs"]]
    assert created["resources"] == ["pods"]
    policy = manifest("ValidatingAdmissionPolicy", "gpuledger-check-pods")["spec"]
    assert policy["matchConditions"][0]["expression"].endswith(
        '== "system:serviceaccount:gpu:gpuledger-check"'
    )
    assert policy["validations"][0]["expression"] == "request.dryRun"


def test_the_uninstall_stops_the_agents_in_their_namespace(manifest) -> None:
    role = manifest("Role", "gpuledger-agent-stop", *SETS)
    assert role["metadata"]["namespace"] == "gpuledger-nodes"
    binding = manifest("RoleBinding", "gpuledger-agent-stop", *SETS)
    assert binding["metadata"]["namespace"] == "gpuledger-nodes"
    [account] = binding["subjects"]
    assert (account["namespace"], account["name"]) == ("gpu", "gpuledger-uninstall")


def test_the_uninstall_needs_no_object_that_an_install_may_not_have_made(rendered) -> None:
    """A failed install and an interrupted uninstall leave the hooks' objects only."""
    hooks = [each.manifest for each in rendered(*SETS) if each.template == "jobs/uninstall.yaml"]
    hooks = [each for each in hooks if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    assert {each["metadata"].get("namespace", "gpu") for each in hooks} == {"gpu"}
    maps = {each["metadata"]["name"] for each in hooks if each["kind"] == "ConfigMap"}
    [job] = [each for each in hooks if each["kind"] == "Job"]
    used = [each["configMap"] for each in pod(job)["volumes"] if "configMap" in each]
    assert {each["name"] for each in used} <= maps
    classes = [
        each["spec"]["scopeSelector"]["matchExpressions"][0]["values"]
        for each in hooks
        if each["kind"] == "ResourceQuota"
    ]
    assert classes == [[pod(job)["priorityClassName"]]]


@pytest.mark.parametrize(
    ("sets", "namespace"),
    [
        ((), "gpu"),
        (("agent.enabled=true",), "gpuledger-nodes"),
        (("agent.enabled=true", "agent.namespace=cards"), "cards"),
    ],
)
def test_the_uninstall_looks_for_agents_in_their_namespace(
    manifest, sets: tuple[str, ...], namespace: str
) -> None:
    [container] = pod(manifest("Job", "gpuledger-uninstall", *sets))["containers"]
    assert f"--agent-namespace={namespace}" in container["args"]


ACCOUNT = "system:serviceaccount:gpu:gpuledger-uninstall"


@pytest.mark.parametrize(
    "bound", ["own-pods", "own-quota-status", "removals-of-nodes", "removals-of-quotas"]
)
def test_a_policy_bounds_the_uninstall(manifest, bound: str) -> None:
    policy = manifest("ValidatingAdmissionPolicy", f"gpuledger-{bound}")
    [condition] = policy["spec"]["matchConditions"]
    assert ACCOUNT in condition["expression"]


def test_the_uninstall_may_stop_parts_of_its_release_only(rendered) -> None:
    rules = [
        rule
        for each in rendered(*SETS)
        if each.manifest["kind"] in ("ClusterRole", "Role")
        and each.manifest["metadata"]["name"] in ("gpuledger-uninstall", "gpuledger-agent-stop")
        for rule in each.manifest["rules"]
        if rule["apiGroups"] == ["apps"] and "patch" in rule["verbs"]
    ]
    assert {name for rule in rules for name in rule["resourceNames"]} == {
        "gpuledger",
        "gpuledger-scheduler",
        "gpuledger-agent",
    }


def test_without_the_uninstall_no_policy_names_its_account(rendered) -> None:
    texts = [each.text for each in rendered("uninstall.enabled=false")]
    assert not [text for text in texts if "gpuledger-uninstall" in text]


def test_backups_read_the_log_without_a_token_of_the_cluster(manifest) -> None:
    spec = pod(manifest("CronJob", "gpuledger-backup", *SETS))
    assert spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec


def test_a_backup_that_failed_after_it_was_written_is_not_repeated(manifest) -> None:
    policy = manifest("CronJob", "gpuledger-backup", *SETS)["spec"]["jobTemplate"]["spec"]
    codes = {"containerName": "backup", "operator": "In", "values": [int(Exit.FAILED)]}
    assert policy["podFailurePolicy"]["rules"] == [{"action": "FailJob", "onExitCodes": codes}]


OWN = (
    "extraVolumes[0].name=own",
    "extraVolumes[0].configMap.name=own",
    "extraVolumeMounts[0].name=own",
    "extraVolumeMounts[0].mountPath=/etc/own",
)


@pytest.mark.parametrize("name", ["check", "uninstall", "before install"])
def test_a_hook_reads_the_settings_and_their_files(manifest, name: str) -> None:
    kind, called, _ = HOOKS[name]
    values = ("settings.vendors={ascend}", "settings.vendors_file=/etc/own/v.toml", *OWN)
    spec = pod(manifest(kind, called, *SETS, *values))
    [container] = spec["containers"]
    [config] = [each["value"] for each in container["env"] if each["name"] == "GPULEDGER_CONFIG"]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each.get("configMap") for each in spec["volumes"]}
    assert volumes[mounts["/etc/own"]] == {"name": "own"}
    settings = volumes[mounts[str(Path(config).parent)]]
    text = manifest("ConfigMap", settings["name"], *SETS, *values)["data"][Path(config).name]
    written = tomllib.loads(text)
    assert (written["vendors"], written["namespace"]) == (["ascend"], "gpu")


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize(
    "file", ["vendors_file=/etc/other/v.toml", "pseudonym_key_file=/etc/own/k"]
)
def test_a_hook_mounts_no_volume_that_it_does_not_need(manifest, name: str, file: str) -> None:
    """Another volume may be usable with the service's account only."""
    kind, called, _ = HOOKS[name]
    spec = pod(manifest(kind, called, *SETS, *OWN, f"settings.{file}"))
    assert "own" not in {each["name"] for each in spec["volumes"]}
    assert "own" not in {each["name"] for each in spec["containers"][0]["volumeMounts"]}


@pytest.mark.parametrize("name", ["check", "uninstall", "before install"])
def test_no_variable_of_the_service_overrides_the_settings_of_a_hook(manifest, name: str) -> None:
    kind, called, _ = HOOKS[name]
    given = ("extraEnv[0].name=GPULEDGER_NAMESPACE", "extraEnv[0].value=other")
    [container] = pod(manifest(kind, called, *SETS, *given))["containers"]
    assert {each["name"] for each in container["env"]} == {"GPULEDGER_CONFIG"}


def first_consumers(rendered, *sets: str) -> list[dict[str, Any]]:
    """Return the Jobs that mount the claim of the backups."""
    return [
        each.manifest
        for each in rendered("backup.enabled=true", *sets)
        if each.manifest["kind"] == "Job" and each.template == "jobs/backup.yaml"
    ]


def test_a_pod_mounts_the_claim_of_backups_at_once(rendered) -> None:
    """Else a class that waits for the first consumer leaves it unbound, and helm --wait fails."""
    [job] = first_consumers(rendered)
    assert "helm.sh/hook" not in job["metadata"].get("annotations", {})
    [volume] = pod(job)["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "gpuledger-backup"}
    assert first_consumers(rendered, "backup.existingClaim=mine") == []


def test_another_pod_is_another_job(rendered) -> None:
    values = ((), ("image.tag=9.9.9",), ("nodeSelector.disk=fast",), ("backup.keep=9",))
    names = [first_consumers(rendered, *sets)[0]["metadata"]["name"] for sets in values]
    assert len(set(names)) == 3
    assert names[0] == names[3]


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_runs_on_the_nodes_of_the_service(manifest, name: str) -> None:
    kind, called, _ = HOOKS[name]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    nodes = f"affinity.nodeAffinity.{required}.nodeSelectorTerms[0].matchExpressions[0].key=pool"
    apart = f"affinity.podAntiAffinity.{required}[0].topologyKey=zone"
    spec = pod(manifest(kind, called, *SETS, nodes, apart))
    # Not podAntiAffinity, which keeps replicas of the service apart and could leave a hook no node.
    assert set(spec["affinity"]) == {"nodeAffinity"}


@pytest.mark.parametrize("name", HOOKS)
def test_only_the_uninstall_evicts_pods_of_tenants(rendered, manifest, name: str) -> None:
    """The quota that some providers ask for is not there before an install."""
    kind, called, _ = HOOKS[name]
    given = pod(manifest(kind, called, *SETS)).get("priorityClassName")
    assert given == ("system-cluster-critical" if name == "uninstall" else None)
    [job] = first_consumers(rendered)
    assert "priorityClassName" not in pod(job)
