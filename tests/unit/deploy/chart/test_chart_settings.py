"""Settings: the files of the chart are read by the programs that they are for."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.wiring.trusted_identities import trusted_identities
from ledger.runtime.settings import setting_sources
from ledger.runtime.settings.settings import Settings

FILES = {
    "service/settings.yaml": "gpuledger.toml",
    "scheduler/settings.yaml": "extender.toml",
    "agent/settings.yaml": "agent.toml",
}


def loaded(text: str, folder: Path) -> Settings:
    """Return the settings as the program reads them; an unknown or wrong one raises."""
    file = folder / "gpuledger.toml"
    file.write_text(text)
    return setting_sources.load({}, {"GPULEDGER_NATS_PASSWORD": "p"}, str(file)).settings


def texts(objects, name: str) -> list[str]:
    return [
        each.manifest["data"][key]
        for each in objects
        for template, key in FILES.items()
        if each.template == template and key == name
    ]


@pytest.mark.parametrize("file", FILES.values())
def test_every_file_is_read_without_an_error(
    rendered, value_sets: list[str], tmp_path: Path, file: str
) -> None:
    files = [text for values in value_sets for text in texts(rendered(values=values), file)]
    assert files
    for text in files:
        assert loaded(text, tmp_path).cluster == "east-1"


def test_certificates_and_registration_are_those_of_the_release(rendered, tmp_path: Path) -> None:
    [text] = texts(rendered(release="east", namespace="space"), "gpuledger.toml")
    settings = loaded(text, tmp_path)
    assert settings.tls_secret == "east-gpuledger-tls"
    assert settings.register_service == settings.webhook_name == "east-gpuledger"
    assert settings.namespace == "space"
    own = {f"system:serviceaccount:space:east-gpuledger{part}" for part in ("", "-scheduler")}
    assert own <= set(trusted_identities(settings))


@pytest.mark.parametrize("register", ["true", "false"])
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_the_failure_policy_is_that_of_the_values(
    rendered, tmp_path: Path, register: str, policy: str
) -> None:
    sets = (f"webhook.register={register}", f"webhook.failurePolicy={policy}")
    [text] = texts(rendered(*sets), "gpuledger.toml")
    assert loaded(text, tmp_path).webhook_failure_policy == policy


def test_cert_managers_certificate_is_registered_with_its_ca(rendered, tmp_path: Path) -> None:
    [text] = texts(rendered(values="cert-manager"), "gpuledger.toml")
    settings = loaded(text, tmp_path)
    assert settings.tls_secret == ""
    assert settings.register_service == "gpuledger"
    assert Path(settings.tls_ca).parent == Path(settings.tls_cert).parent


def test_cert_manager_writes_no_secret_that_an_upgrade_to_it_deletes(rendered, manifest) -> None:
    made = {
        each.manifest["metadata"]["name"]
        for each in rendered()
        if each.manifest["kind"] == "Secret"
    }
    written = manifest("Certificate", "gpuledger", values="cert-manager")["spec"]["secretName"]
    assert "gpuledger-tls" in made
    assert written not in made
    pod = manifest("Deployment", "gpuledger", values="cert-manager")["spec"]["template"]["spec"]
    [mounted] = [volume["secret"] for volume in pod["volumes"] if volume["name"] == "tls"]
    assert mounted["secretName"] == written


def test_values_of_settings_keep_their_types(rendered, tmp_path: Path) -> None:
    [text] = texts(
        rendered(
            "settings.log_bytes_max=4294967296",
            "settings.pods_only=true",
            "settings.vendors={nvidia,hygon}",
        ),
        "gpuledger.toml",
    )
    settings = loaded(text, tmp_path)
    assert settings.log_bytes_max == 4294967296
    assert settings.pods_only is True
    assert settings.vendors == ("nvidia", "hygon")


def test_users_trusted_identities_follow_those_of_the_release(rendered, tmp_path: Path) -> None:
    [text] = texts(rendered(values="parts", release="east"), "gpuledger.toml")
    settings = loaded(text, tmp_path)
    assert settings.bind_wait_seconds == 12.5
    assert len(settings.trusted_identities) == 3
    assert settings.trusted_identities[2] == "system:serviceaccount:hami:hami-scheduler"
    assert settings.card_schedulers == ("east-gpuledger-scheduler",)


def test_exempt_namespaces_always_have_those_of_the_cluster(rendered, tmp_path: Path) -> None:
    [text] = texts(rendered(values="bare"), "gpuledger.toml")
    assert loaded(text, tmp_path).exempt_namespaces == ("kube-system", "monitoring")


def test_service_extender_and_agent_share_one_log(rendered, tmp_path: Path) -> None:
    objects = rendered("scheduler.enabled=true", "agent.enabled=true", "nats.mode=cluster")
    service, extender, agent = (
        loaded(text, tmp_path) for file in FILES.values() for text in texts(objects, file)
    )
    assert service.nats == extender.nats
    assert service.replicas == extender.replicas == agent.replicas == 3
    assert agent.nats == tuple(url.replace(":4222", ".gpu.svc:4222") for url in service.nats)
    assert agent.nats_user != service.nats_user


def test_the_extender_alone_preempts(rendered, tmp_path: Path) -> None:
    objects = rendered("scheduler.enabled=true", "scheduler.preemption=true")
    [service], [extender] = (texts(objects, name) for name in ("gpuledger.toml", "extender.toml"))
    assert loaded(extender, tmp_path).preemption == "on"
    assert "preemption" not in tomllib.loads(service)


@pytest.mark.parametrize(
    ("vendors", "named"),
    [
        ("{nvidia}", {"nvidia.com/gpu"}),
        ("{ascend,hygon}", {"hygon.com/dcunum"}),
        ("{metax}", set()),
    ],
)
def test_managed_resources_are_those_of_the_vendors(
    manifest, vendors: str, named: set[str]
) -> None:
    settings: dict[str, Any] = manifest(
        "ConfigMap",
        "gpuledger-scheduler-settings",
        "scheduler.enabled=true",
        f"settings.vendors={vendors}",
    )
    [extender] = yaml.safe_load(settings["data"]["scheduler.yaml"])["extenders"]
    names = {resource["name"] for resource in extender["managedResources"]}
    assert named <= names
    assert bool(names) == bool(named)
    assert ("nvidia.com/gpu" in names) == ("nvidia" in vendors)


def test_settings_of_the_extender_come_before_those_of_the_service(
    rendered, tmp_path: Path
) -> None:
    objects = rendered(
        "scheduler.enabled=true",
        "settings.card_schedulers={mine}",
        "scheduler.settings.vendors={hygon}",
        "scheduler.settings.trusted_identities={system:serviceaccount:hami:hami-scheduler}",
    )
    [text] = texts(objects, "extender.toml")
    extender = loaded(text, tmp_path)
    assert extender.trusted_identities == ("system:serviceaccount:hami:hami-scheduler",)
    assert extender.card_schedulers == ("mine",)
    [service] = texts(objects, "gpuledger.toml")
    assert loaded(service, tmp_path).trusted_identities == ()
    [scheduler] = [
        yaml.safe_load(each.manifest["data"]["scheduler.yaml"])
        for each in objects
        if each.template == "scheduler/settings.yaml"
    ]
    managed = {each["name"] for each in scheduler["extenders"][0]["managedResources"]}
    assert "hygon.com/dcunum" in managed
    assert "nvidia.com/gpu" not in managed


OWN = (
    "extraEnv[0].name=OWN",
    "extraEnv[0].value=/etc/variable/own",
    "extraEnv[1].name=GPULEDGER_LISTEN",
    "extraVolumes[0].name=own",
    "extraVolumes[0].configMap.name=own",
    *(
        f"extraVolumeMounts[{number}].{field}"
        for number, path in enumerate(("/etc/own", "/etc/variable/", "/etc/own-not"))
        for field in ("name=own", f"mountPath={path}")
    ),
)
LOGIN = (
    "nats.mode=external",
    "nats.servers={nats://a:4222}",
    "settings.nats_creds=/etc/own/creds",
)
READERS = ("service/deployment.yaml", "scheduler/deployment.yaml", "jobs/backup.yaml")


def reader(objects, template: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the pod of a template, and its container that reads the settings."""
    [spec] = [
        each.manifest["spec"]
        for each in objects
        if each.template == template and each.manifest["kind"] in ("Deployment", "CronJob")
    ]
    for inner in ("jobTemplate", "template"):
        spec = spec[inner]["spec"] if inner in spec else spec
    [container] = [
        each
        for each in (*spec.get("initContainers", ()), *spec["containers"])
        if any(variable["name"] == "GPULEDGER_CONFIG" for variable in each.get("env", ()))
    ]
    return spec, container


@pytest.mark.parametrize("name", READERS)
def test_all_that_read_the_settings_have_their_files(rendered, name: str) -> None:
    objects = rendered(*OWN, *LOGIN, "scheduler.enabled=true", "backup.enabled=true")
    spec, container = reader(objects, name)
    mounts = [each["mountPath"] for each in container["volumeMounts"] if each["name"] == "own"]
    every = ["/etc/own", "/etc/variable/", "/etc/own-not"]
    assert mounts == (every if name == READERS[0] else every[:2])
    assert {"name": "own", "configMap": {"name": "own"}} in spec["volumes"]
    variables = {each["name"] for each in container["env"]}
    assert "OWN" in variables
    assert ("GPULEDGER_LISTEN" in variables) == (name != READERS[1])


@pytest.mark.parametrize("name", READERS[1:])
def test_a_volume_without_files_of_the_settings_is_of_the_service(rendered, name: str) -> None:
    objects = rendered(*OWN[3:], "scheduler.enabled=true", "backup.enabled=true")
    assert "own" not in {each["name"] for each in reader(objects, name)[0]["volumes"]}


def test_a_folder_of_the_settings_has_the_mounts_below_it(rendered) -> None:
    folder = ("settings.workload_kinds={/etc}", "scheduler.enabled=true")
    _, container = reader(rendered(*OWN[3:], *folder), READERS[1])
    assert "/etc/own" in {each["mountPath"] for each in container["volumeMounts"]}


@pytest.mark.parametrize("name", ["nats_creds", "nats_login_file"])
def test_external_servers_take_a_login_from_a_file(rendered, tmp_path: Path, name: str) -> None:
    file = tmp_path / "login"
    file.write_text("user:password")
    objects = rendered(
        *("nats.mode=external", "nats.servers={nats://a:4222}", f"settings.{name}={file}"),
        *("scheduler.enabled=true", "backup.enabled=true"),
    )
    service, extender = tomls = [
        *texts(objects, "gpuledger.toml"),
        *texts(objects, "extender.toml"),
    ]
    assert all("nats_user" not in tomllib.loads(text) for text in tomls)
    assert tomllib.loads(service)[name] == tomllib.loads(extender)[name] == str(file)
    for each in objects:
        assert "GPULEDGER_NATS_PASSWORD" not in each.text, each.template
        assert (each.manifest["kind"], each.manifest["metadata"]["name"]) != (
            "Secret",
            "gpuledger-nats",
        )
