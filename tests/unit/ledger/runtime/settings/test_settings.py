"""Settings: every source, every mistake at once, no secret shown."""

from pathlib import Path

import pytest

from ledger.runtime.settings import setting_sources, setting_texts, settings

OWN_PAIR = {"tls_cert": "a.pem", "tls_key": "a.key"}
PROXY = {
    "page_proxy_subjects": "CN=ingress",
    "client_ca": "ca.crt",
    "client_subjects": "CN=kube-apiserver",
}


def problems(
    command_line: dict[str, object] | None = None,
    environment: dict[str, str] | None = None,
    file: str | None = None,
) -> list[str]:
    with pytest.raises(setting_sources.InvalidSettings) as refused:
        setting_sources.load(command_line or {}, environment or {}, file)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize("name", settings.NAMES)
def test_every_setting_is_read(name: str, product: str) -> None:
    assert f"settings.{name}" in product


def test_the_defaults_are_valid() -> None:
    assert setting_sources.load({}, {}).settings == settings.Settings()


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text('shard = "file"\ncluster = "file"\nlog_level = "error"\n')
    loaded = setting_sources.load(
        {"shard": "option", "cluster": None},
        {"GPULEDGER_SHARD": "variable", "GPULEDGER_CLUSTER": "variable"},
        str(file),
    )
    chosen = loaded.settings
    assert (chosen.shard, chosen.cluster, chosen.log_level) == ("option", "variable", "error")
    assert loaded.sources == {
        "shard": "command line",
        "cluster": "environment",
        "log_level": f"file {file}",
    }


def test_a_variable_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text("settle_seconds = 90\n")
    loaded = setting_sources.load({}, {"GPULEDGER_CONFIG": str(file)})
    assert loaded.settings.settle_seconds == 90


def test_texts_become_the_types_they_stand_for() -> None:
    environment = {
        "GPULEDGER_KUBERNETES": "false",
        "GPULEDGER_REPLICAS": "3",
        "GPULEDGER_NATS": "nats://a:4222, nats://b:4222",
        "GPULEDGER_SETTLE_SECONDS": "45.5",
    }
    chosen = setting_sources.load({}, environment).settings
    assert (chosen.kubernetes, chosen.replicas, chosen.settle_seconds) == (False, 3, 45.5)
    assert chosen.nats == ("nats://a:4222", "nats://b:4222")


@pytest.mark.parametrize(
    "name",
    [
        "system:serviceaccount:hami-scheduler",
        "system:serviceaccount:gpu-tools:",
        "system:serviceaccounts:gpu-tools",
        "serviceaccount:gpu-tools:hami-scheduler",
        "system:serviceaccount:*:hami-scheduler",
        "*",
    ],
)
def test_a_trusted_identity_that_no_user_has_is_refused(name: str) -> None:
    [reported] = problems({"trusted_identities": f"alice,{name}"})
    assert name in reported
    assert "system:serviceaccount:NAMESPACE:NAME" in reported


@pytest.mark.parametrize("text", ['[""]', '[" alice"]'])
def test_an_empty_or_padded_identity_of_a_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text(f"trusted_identities = {text}\n")
    [reported] = problems(file=str(file))
    assert "trusted_identities" in reported


@pytest.mark.parametrize(
    "name",
    [
        "system:serviceaccount:gpu-tools:vgpu-hami-device-plugin",
        "system:serviceaccount:a:b.c",
        "system:node:n1",
        "alice@example.com",
        "https://login.example.com#alice",
        "oidc:alice",
        "corp/alice",
    ],
)
def test_every_name_that_a_user_can_have_is_trusted(name: str) -> None:
    loaded = setting_sources.load({"trusted_identities": name}, {})
    assert loaded.settings.trusted_identities == (name,)


@pytest.mark.parametrize("name", ["system:serviceaccount:a:b", "my scheduler", "a/b"])
def test_invalid_scheduler_name_is_refused(name: str) -> None:
    [reported] = problems({"card_schedulers": f"my-scheduler,{name}"})
    assert "schedulerName" in reported


@pytest.mark.parametrize("label", ["tier", "=prod", "tier=a b", "Tier/x=y", "tier=-"])
def test_a_label_of_the_cluster_that_kubernetes_would_not_take_is_refused(label: str) -> None:
    [reported] = problems({"cluster_labels": label})
    assert "cluster_labels" in reported


def test_everything_wrong_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text('queue_commands_max = "many"\n')
    reported = problems({"listen": "9"}, {"GPULEDGER_LOG_LEVEL": "loud"}, str(file))
    assert [line.partition(" = ")[0] for line in reported] == [
        f"file {file}: queue_commands_max",
        "environment: log_level",
        "command line: listen",
    ]


def test_a_problem_names_source_field_value_and_remedy() -> None:
    [reported] = problems(environment={"GPULEDGER_SETTLE_SECONDS": "0"})
    assert reported.startswith(
        'environment: settle_seconds = "0": give number above 0 at most 3600, for example 60.0'
    )


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [("GPULEDGER_STORE_DR", "GPULEDGER_STORE_DIR"), ("GPULEDGER_LISTENS", "GPULEDGER_LISTEN")],
)
def test_a_misspelt_variable_is_refused_with_the_nearest_name(variable: str, nearest: str) -> None:
    assert problems(environment={variable: "x"}) == [
        f"environment: {variable} = (given): is not a setting; did you mean {nearest}?"
    ]


def test_a_misspelt_key_of_the_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text("memory_facter = 2\n")
    [reported] = problems(file=str(file))
    assert "did you mean memory_factor?" in reported


def test_setting_of_an_earlier_version_is_ignored_and_reported(
    tmp_path: Path,
) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text('stamp_key_file = "/etc/gpuledger/stamp/stamp.key"\n')
    loaded = setting_sources.load(
        {"stamp_key_file": "a"}, {"GPULEDGER_STAMP_KEY_FILE": "b"}, str(file)
    )
    assert loaded.settings == settings.Settings()
    assert [setting.source for setting in loaded.ignored] == [
        f"file {file}",
        "environment",
        "command line",
    ]
    assert {setting.field for setting in loaded.ignored} == {"stamp_key_file"}
    assert "remove it" in loaded.ignored[0].remedy
    assert setting_sources.load({}, {}).ignored == ()


def test_variables_of_a_service_named_gpuledger_are_ignored() -> None:
    links = {
        "GPULEDGER_SERVICE_HOST": "10.96.0.7",
        "GPULEDGER_SERVICE_PORT": "443",
        "GPULEDGER_PORT": "tcp://10.96.0.7:443",
        "GPULEDGER_PORT_443_TCP_ADDR": "10.96.0.7",
    }
    assert setting_sources.load({}, links).settings == settings.Settings()


@pytest.mark.parametrize("content", ["store_dir =", "\udcff"])
def test_a_file_that_is_not_toml_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text(content, errors="surrogateescape")
    [reported] = problems(file=str(file))
    assert "is not TOML" in reported


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    [reported] = problems(file=str(tmp_path / "none.toml"))
    assert "cannot be read" in reported


def test_a_refused_secret_is_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text("nats_password = 20251121\n")
    [reported] = problems(file=str(file))
    assert "20251121" not in reported


def test_secrets_are_masked_in_the_description() -> None:
    environment = {
        "GPULEDGER_NATS": "nats://me:hunter2@host:4222",
        "GPULEDGER_NATS_USER": "me",
        "GPULEDGER_NATS_PASSWORD": "hunter2",
    }
    described = {name: value for name, value, _ in setting_sources.load({}, environment).describe()}
    assert described["nats_password"] == '"********"'
    assert described["nats"] == '["nats://********@host:4222"]'
    assert "hunter2" not in str(described)


def test_description_has_the_source_of_each_value() -> None:
    described = setting_sources.load({"shard": "blue"}, {}).describe()
    assert ("shard", '"blue"', "command line") in described
    assert ("cluster", '"local"', "default") in described


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"listen": "127.0.0.1:65536"}, "listen"),
        ({"tls_cert": "a.pem"}, "tls_cert"),
        ({"tls_key": "a.key"}, "tls_key"),
        ({"plain_http": True, "client_ca": "ca.crt"}, "plain_http"),
        ({"plain_http": True, "production": True}, "plain_http"),
        ({"client_subjects": "CN=kube-apiserver"}, "client_subjects"),
        ({"page": "login", "kubernetes": False}, "page"),
        ({"page_proxy_subjects": "CN=ingress"}, "page_proxy_subjects"),
        ({"page_proxy_subjects": "CN=ingress", "client_ca": "ca.crt"}, "page_proxy_subjects"),
        ({**PROXY, "client_subjects": "CN=ingress"}, "page_proxy_subjects"),
        ({**PROXY, "kubernetes": False}, "page_proxy_subjects"),
        ({**PROXY, "page": "off"}, "page_proxy_subjects"),
        ({"kubeconfig": "k", "kubernetes": False}, "kubeconfig"),
        ({"register_webhook": "https://a:1", "kubernetes": False}, "register_webhook"),
        ({"register_webhook": "https://a:1", "plain_http": True}, "register_webhook"),
        ({"tls_ca": "ca.crt"}, "tls_ca"),
        ({"tls_secret": "s", "tls_cert": "a.pem", "tls_key": "a.key"}, "tls_secret"),
        ({"tls_secret": "s", "kubernetes": False}, "tls_secret"),
        ({"tls_secret": "s", "plain_http": True}, "plain_http"),
        ({"register_service": "s"}, "register_service"),
        ({"register_service": "s", **OWN_PAIR}, "register_service"),
        (
            {"register_service": "s", "tls_secret": "s", "register_webhook": "https://a:1"},
            "register_service",
        ),
        (
            {"register_service": "s", **OWN_PAIR, "tls_ca": "ca.crt", "kubernetes": False},
            "register_service",
        ),
        ({"replicas": 3}, "replicas"),
        ({"nats": "nats://a", "nats_creds": "c", "nats_user": "u"}, "nats_creds"),
        ({"nats": "nats://a", "nats_creds": "c", "nats_login_file": "l"}, "nats_login_file"),
        ({"nats": "nats://a", "nats_user": "u", "nats_login_file": "l"}, "nats_login_file"),
        ({"nats_user": "u"}, "nats"),
        ({"nats_login_file": "l"}, "nats"),
        ({"nats_domain": "hub"}, "nats_domain"),
        ({"cluster_labels": "tier=prod,tier=test"}, "cluster_labels"),
        ({"queue_commands_max": 10, "queue_per_namespace_max": 11}, "queue_per_namespace_max"),
        ({"claim_controllers": "system:serviceaccount:a"}, "claim_controllers"),
        ({"claim_schedulers": "system:serviceaccounts"}, "claim_schedulers"),
        ({"other_device_classes": ",".join(map(str, range(257)))}, "other_device_classes"),
        ({"production": True, "settle_seconds": 44}, "settle_seconds"),
        ({"production": True, "settle_seconds": 59}, "settle_seconds"),
    ],
)
def test_settings_that_contradict_one_another_are_refused(
    given: dict[str, object], field: str
) -> None:
    [reported] = problems(given)
    assert f": {field} = " in reported


@pytest.mark.parametrize(
    "name", [name for name in settings.NAMES if setting_texts.meta(name).pattern]
)
def test_a_setting_with_a_pattern_describes_its_values(name: str) -> None:
    assert not setting_texts.wanted(name).startswith("string")


def test_every_setting_is_documented_with_a_sentence() -> None:
    documented = list(setting_texts.documentation())
    assert [entry.name for entry in documented] == list(settings.NAMES)
    assert all(entry.description.endswith(".") for entry in documented)


def test_a_service_is_registered_with_a_ca_of_all_replicas() -> None:
    for given in ({"tls_secret": "s"}, {**OWN_PAIR, "tls_ca": "ca.crt"}):
        assert setting_sources.load({"register_service": "s", **given}, {})


def test_every_example_is_itself_valid() -> None:
    needed = {
        "GPULEDGER_CLIENT_CA": "ca.crt",
        "GPULEDGER_CLIENT_SUBJECTS": "CN=kube-apiserver",
        "GPULEDGER_NATS": "nats://a:4222",
        "GPULEDGER_TLS_SECRET": "gpuledger-tls",
    }
    for name in settings.NAMES:
        for example in setting_texts.meta(name).examples or ():
            given = [example] if setting_texts.is_list(name) else example
            assert setting_sources.load({name: given}, needed)


def test_what_lies_beneath_the_command_line_is_known(tmp_path: Path) -> None:
    file = tmp_path / "gpuledger.toml"
    file.write_text('node_policy = "spread"\n')
    loaded = setting_sources.load(
        {"node_policy": "whole", "weight_slots": "3"},
        {"GPULEDGER_WEIGHT_MEMORY": "2"},
        str(file),
    )
    assert (loaded.settings.node_policy, loaded.settings.weight_slots) == ("whole", 3)
    assert (loaded.without_options.node_policy, loaded.without_options.weight_slots) == (
        "spread",
        1,
    )
    assert loaded.without_options.weight_memory == 2
