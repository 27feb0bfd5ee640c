"""Values: wrong ones are refused by name and with the remedy, and each has an effect."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gpuledger.version import VERSION
from ledger.runtime.settings.settings import Settings
from tools.manifests.helm_chart import CHART, HelmFailed

FOLDER: Final = Path(__file__).parents[4] / CHART
VALUES: Final[dict[str, Any]] = yaml.safe_load((FOLDER / "values.yaml").read_text())
SCHEMA: Final[dict[str, Any]] = json.loads((FOLDER / "values.schema.json").read_text())
OWN: Final[dict[str, str]] = yaml.safe_load(
    (FOLDER / "templates" / "_requirements.tpl")
    .read_text()
    .partition('"gpuledger.ownSettings" -}}')[2]
    .partition("{{- end }}")[0]
)


def test_without_a_cluster_nothing_is_rendered(rendered) -> None:
    with pytest.raises(HelmFailed) as refused:
        rendered(values="")
    assert "cluster is empty" in str(refused.value)
    assert "--set cluster=east-1" in str(refused.value)


@pytest.mark.parametrize(
    ("sets", "because"),
    [
        (["cluster=East"], "cluster: Does not match pattern"),
        (["replicaCount=two"], "replicaCount: Invalid type. Expected: integer"),
        (["replicas=2"], "Additional property replicas is not allowed"),
        (["image.tags=1"], "image: Additional property tags is not allowed"),
        (["nats.mode=both"], "nats.mode must be one of"),
        (["webhook.failurePolicy=Allow"], "webhook.failurePolicy must be one of"),
        (["settings.vendor=nvidia"], "settings: Additional property vendor is not allowed"),
        (["settings.settle_seconds=many"], "settings.settle_seconds: Invalid type"),
        (["settings.nats_user=x"], "the chart writes this setting; set nats.auth.user instead"),
        (["settings.tls_cert=x"], "set certificates.existingSecret instead"),
        (["settings.pod_name=x"], "settings.pod_name: the chart writes this setting"),
        (["nats.mode=external"], "nats.servers is empty: name your servers"),
        (
            ["nats.mode=external", "nats.servers={nats://a:4222}"],
            "nats.auth.existingSecret is empty",
        ),
        (["production=true"], "set nats.mode=cluster, or production=false"),
        (["production=true", "nats.mode=cluster"], "set webhook.clientCA.existingConfigMap"),
        (
            ["certManager.enabled=true", "certificates.existingSecret=x"],
            "certManager.enabled and certificates.existingSecret: set one of them",
        ),
        (
            ["agent.enabled=true", "nats.auth.existingSecret=x"],
            "agent.auth.existingSecret is empty",
        ),
        (
            ["agent.enabled=true", "agent.auth.existingSecret=x"],
            "the log servers would have another password of agents",
        ),
        (["settings.nats_creds=/etc/own/creds"], "the chart's own log servers have users"),
        (
            [
                *("nats.mode=external", "nats.servers={nats://a:4222}", "agent.enabled=true"),
                "settings.nats_creds=/etc/own/creds",
            ],
            "with nats.auth.existingSecret or external servers",
        ),
        (["podLabels.app\\.kubernetes\\.io/name=x"], "podLabels: the chart writes the label"),
        (["commonLabels.helm\\.sh/chart=x"], "commonLabels: the chart writes the label helm.sh"),
        (["extraVolumes[0].name=settings"], "extraVolumes: the pods of the chart have a volume"),
        (["check.namespace=gpu"], "check.namespace: the webhooks exempt the namespace gpu"),
        (
            ["webhook.exemptNamespaces={team-a}", "check.namespace=team-a"],
            "the webhooks exempt the namespace team-a",
        ),
        (["nats.storage.size=8Gi"], "8GB is not less than the volume (nats.storage.size: 8Gi)"),
        (["nats.storage.size=500G", "nats.storage.maxFileStore=500GB"], "Set it to four fifths"),
        (["agent.enabled=true", "agent.namespace=gpu"], "is the namespace of the release"),
    ],
    ids=lambda given: given[-1] if isinstance(given, list) else "",
)
def test_a_wrong_value_is_refused_by_its_name(rendered, sets: list[str], because: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        rendered(*sets)
    assert because in str(refused.value)


@pytest.mark.parametrize("release", ["1-gpuledger", "my.gpuledger"])
def test_a_release_without_a_name_for_services_is_refused(rendered, release: str) -> None:
    with pytest.raises(HelmFailed, match="the names of the Services would begin with"):
        rendered(release=release)
    rendered("fullnameOverride=gpuledger", release=release)


@pytest.mark.parametrize(
    ("sets", "namespace"), [([], "default"), (["webhook.exemptNamespaces={default}"], "gpu")]
)
def test_without_a_namespace_for_its_probes_there_is_no_test(
    rendered, sets: list[str], namespace: str
) -> None:
    def templates(*further: str) -> set[str]:
        return {each.template for each in rendered(*sets, *further, namespace=namespace)}

    assert "jobs/check.yaml" not in templates()
    assert "jobs/check.yaml" in templates("check.namespace=team-a")


def test_a_value_may_be_removed(rendered) -> None:
    assert rendered("webhook.exemptNamespaces=null")


def test_labels_of_the_chart_are_refused_and_others_are_not(rendered) -> None:
    [deployment] = [
        each.manifest
        for each in rendered()
        if (each.template, each.manifest["kind"]) == ("service/deployment.yaml", "Deployment")
    ]
    of_objects = deployment["metadata"]["labels"].keys()
    of_pods = deployment["spec"]["template"]["metadata"]["labels"].keys()
    for value, labels in (("commonLabels", of_objects), ("podLabels", of_pods)):
        for label in labels:
            given = label.replace(".", r"\.")
            with pytest.raises(HelmFailed, match=f"{value}: the chart writes the label {label}"):
                rendered(f"{value}.{given}=x")
        assert rendered(rf"{value}.app\.kubernetes\.io/environment=test")


def test_no_template_lists_the_objects_of_a_cluster() -> None:
    """A user who installs may have no right to list them, and helm would fail."""
    folder = FOLDER / "templates"
    texts = [path.read_text() for path in folder.rglob("*") if path.is_file()]
    assert not [text for text in texts if re.search(r'lookup "\S+" "\S+" "" ""', text)]


@pytest.mark.parametrize(("size", "most"), [("8.5Gi", "8GB"), ("500G", "465GB"), ("1Ti", "1T")])
def test_a_log_smaller_than_its_volume_is_accepted(rendered, size: str, most: str) -> None:
    assert rendered(f"nats.storage.size={size}", f"nats.storage.maxFileStore={most}")


def test_chart_and_service_have_one_version() -> None:
    chart = yaml.safe_load((FOLDER / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)


def test_settings_that_the_chart_writes_are_settings() -> None:
    assert set(OWN) <= set(Settings.__struct_fields__)


def test_every_value_is_in_the_schema_and_every_schema_has_a_value() -> None:
    assert list(_differences(VALUES, SCHEMA, "")) == []


def _differences(values: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    """Return the paths that are in one of values and schema only."""
    defined = schema.get("$ref", "").rpartition("/")[2]
    properties = SCHEMA["definitions"].get(defined, schema).get("properties")
    if properties is None or defined in ("settings", "resources"):
        return
    if path == ".certManager.issuerRef":
        return  # Empty by default, and with the fields of cert-manager.
    yield from (f"{path}.{name}" for name in values.keys() ^ properties.keys())
    for name in values.keys() & properties.keys():
        if isinstance(values[name], dict):
            yield from _differences(values[name], properties[name], f"{path}.{name}")


WHOLE: Final = (
    *("image", "auth", "resources", "Resources", "prometheus", "requests", "limits"),
    *("podSecurityContext", "containerSecurityContext", "seccompProfile", "capabilities"),
)
"""Ends of paths of maps that templates may read as a whole."""


def test_every_value_reaches_a_template() -> None:
    """A value that no template reads would be accepted and have no effect."""
    folder = FOLDER / "templates"
    texts = "\n".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert [path for path in _leaves(VALUES, "") if not _read(path, texts)] == []


def test_a_value_that_no_template_reads_is_found() -> None:
    assert not _read(".nats.colour", "{{ .Values.nats.mode }}")


def _read(path: str, texts: str) -> bool:
    """Return whether templates read a value, or a map of values that it is in."""
    candidates = [path]
    while (parent := candidates[-1].rpartition(".")[0]).endswith(WHOLE):
        candidates.append(parent)
    return any(re.search(rf"Values{re.escape(each)}\b", texts) for each in candidates)


def _leaves(values: dict[str, Any], path: str) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in ("nodeSelector", "labels"):
            yield from _leaves(value, f"{path}.{name}")
        else:
            yield f"{path}.{name}"


def test_no_value_is_for_tests_alone() -> None:
    words = re.compile(r"test|debug|fake|insecure|hostNetwork|hostAliases|unsafe", re.IGNORECASE)
    assert [path for path in _leaves(VALUES, "") if words.search(path)] == []
