"""The catalog: finding kinds, users' own files, and errors of invalid documents."""

import logging
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.builders.kind_objects import BUILTIN, CATALOG, EXAMPLES, FOLDER

from webhook.kinds import kind_catalog
from webhook.kinds.kind_catalog import KindCatalog, KindError

NAMES = {
    "cronjobs.batch",
    "daemonsets.apps",
    "deployments.apps",
    "jobs.batch",
    "jobsets.jobset.x-k8s.io",
    "leaderworkersets.leaderworkerset.x-k8s.io",
    "mpijobs.kubeflow.org",
    "pytorchjobs.kubeflow.org",
    "rayclusters.ray.io",
    "rayjobs.ray.io",
    "rayservices.ray.io",
    "replicasets.apps",
    "statefulsets.apps",
    "tfjobs.kubeflow.org",
    "trainjobs.trainer.kubeflow.org",
}
WIDGET: dict[str, Any] = {
    "group": "example.com",
    "resource": "widgets",
    "kind": "Widget",
    "podSets": [{"template": "spec.template"}],
}


def written(folder: Path, *documents: Any, name: str = "kinds.yaml") -> Path:
    file = folder / name
    file.write_text(yaml.safe_dump_all(documents))
    return file


def test_the_kinds_that_come_along_are_those_of_the_documentation() -> None:
    assert {kind.name for kind in BUILTIN} == NAMES


def test_all_but_a_cron_job_are_charged() -> None:
    assert {kind.name for kind in BUILTIN} - {kind.name for kind in BUILTIN.roots} == {
        "cronjobs.batch"
    }


def test_the_kinds_with_a_scale_are_those_of_their_definitions() -> None:
    assert {kind.name for kind in BUILTIN.scalable} == {
        "deployments.apps",
        "leaderworkersets.leaderworkerset.x-k8s.io",
        "pytorchjobs.kubeflow.org",
        "replicasets.apps",
        "statefulsets.apps",
    }


def test_every_kind_has_controllers() -> None:
    for kind in CATALOG:
        assert kind.controllers, kind.name
        assert all(controller.startswith("system:") for controller in kind.controllers)


def test_every_kind_has_a_file_of_cases() -> None:
    files = {file.stem for file in FOLDER.glob("*.yaml")}
    assert files == {kind.name for kind in CATALOG}


def test_a_kind_is_found_by_resource_and_by_owner_of_any_version() -> None:
    kind = BUILTIN.of_resource("ray.io", "rayclusters")
    assert kind is not None
    assert BUILTIN.of_owner("ray.io/v1alpha1", "RayCluster") is kind
    assert BUILTIN.of_owner("ray.io/v1", "RayCluster") is kind
    assert f"{kind.name}/r" == "rayclusters.ray.io/r"


@pytest.mark.parametrize(
    ("version", "name"), [("v1", "Pod"), ("v1", "Deployment"), ("example.com/v1", "Deployment")]
)
def test_a_kind_of_another_group_is_not_found(version: str, name: str) -> None:
    assert BUILTIN.of_owner(version, name) is None


def test_a_kind_of_the_core_group_is_found_and_named_without_one(tmp_path: Path) -> None:
    named = {"group": "", "resource": "replicationcontrollers", "kind": "ReplicationController"}
    catalog = KindCatalog.load([written(tmp_path, {**WIDGET, **named})])
    kind = catalog.of_owner("v1", "ReplicationController")
    assert kind is not None
    assert f"{kind.name}/web" == "replicationcontrollers/web"


def test_kinds_of_one_name_are_distinguished_by_their_groups() -> None:
    ours, theirs = (
        CATALOG.of_owner(api_version, "Job") for api_version in ("batch/v1", "batch.volcano.sh/v1")
    )
    assert ours is not None
    assert theirs is not None
    assert (ours.name, theirs.name) == ("jobs.batch", "jobs.batch.volcano.sh")


def test_users_kinds_are_read_from_files_and_from_folders(tmp_path: Path) -> None:
    other = {**WIDGET, "resource": "gadgets", "kind": "Gadget"}
    file = written(tmp_path, WIDGET, None, other)
    (tmp_path / "README.md").write_text("not a kind")
    for path in (file, tmp_path):
        catalog = KindCatalog.load([path])
        assert catalog.of_resource("example.com", "widgets") is not None
        assert catalog.of_resource("example.com", "gadgets") is not None


def test_users_kind_replaces_a_built_in_kind_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = {"group": "apps", "resource": "daemonsets", "kind": "DaemonSet"}
    file = written(tmp_path, {**ours, "podSets": [{"template": "spec.template", "count": 8}]})
    with caplog.at_level(logging.INFO):
        catalog = KindCatalog.load([file])
    kind = catalog.of_resource("apps", "daemonsets")
    assert kind is not None
    assert kind.pod_sets[0].count.text == "8"
    [line] = caplog.records
    assert (line.message, vars(line)["kind"]) == ("kind_replaced", "daemonsets.apps")
    assert vars(line)["file"] == str(file)


def test_identities_may_be_set_for_a_kind() -> None:
    mine = ("system:serviceaccount:mine:operator",)
    kind = KindCatalog.load(controllers={"rayclusters.ray.io": mine}).of_resource(
        "ray.io", "rayclusters"
    )
    assert kind is not None
    assert kind.controllers == mine


def test_identities_of_an_unknown_kind_are_refused() -> None:
    with pytest.raises(KindError, match=r"widgets\.example\.com is not a known kind"):
        KindCatalog.load(controllers={"widgets.example.com": ()})


def test_one_kind_in_two_files_is_refused(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        written(tmp_path, WIDGET, name=name)
    with pytest.raises(KindError, match=r"b\.yaml: widgets\.example\.com .*a\.yaml already"):
        KindCatalog.load([tmp_path])


def test_one_name_for_two_resources_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, WIDGET, {**WIDGET, "resource": "gadgets"})
    with pytest.raises(KindError, match=r"Widget of example\.com is described twice"):
        KindCatalog.load([file])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"resource": None}, ["resource"]),
        ({"resource": "Widgets/x"}, ["resource"]),
        ({"kind": "widget"}, ["kind"]),
        ({"group": "", "resource": "pods", "kind": "Pod"}, ["pods are not a kind of workload"]),
        ({"podsets": []}, ["podsets"]),
        ({"podSets": []}, ["podSets", "length"]),
        ({"podSets": [{}]}, ["podSets[0]", "exactly one of template, podSpec and resources"]),
        ({"podSets": [{"template": "a", "podSpec": "b"}]}, ["podSets[0]", "exactly one"]),
        ({"podSets": [{"template": "spec[0]"}]}, ["podSets[0].template", "'spec[0]'", "write"]),
        ({"podSets": [{"template": 7}]}, ["podSets[0].template", "7 is not a path", "write"]),
        (
            {"podSets": [{"template": "spec.template", "count": "spec.replicas / 2"}]},
            ["podSets[0].count", "spec.replicas / 2", "write whole numbers"],
        ),
        (
            {"podSets": [{"template": "spec.template", "count": ["1"]}]},
            ["podSets[0].count", "is not an expression", "write"],
        ),
        (
            {"podSets": [{"template": "spec.template", "count": "item.replicas"}]},
            ["podSets[0]", "names item or key", "add [*] or .*"],
        ),
        (
            {"podSets": [{"template": "spec.template", "count": "count + 1"}]},
            ["podSets[0]", "do not name count"],
        ),
        ({"finished": "item.done"}, ["'item.done'", "write paths from metadata, spec and status"]),
        ({"scale": "spec.tasks[*].replicas"}, ["scale", "one number in spec"]),
        ({"scale": "status.replicas"}, ["scale", "one number in spec"]),
        ({"controllers": "me"}, ["controllers"]),
    ],
)
def test_a_wrong_document_is_refused_with_file_field_value_and_remedy(
    tmp_path: Path, change: dict[str, Any], said: list[str]
) -> None:
    document = {key: value for key, value in {**WIDGET, **change}.items() if value is not None}
    file = written(tmp_path, WIDGET, {**document})
    with pytest.raises(KindError) as caught:
        KindCatalog.load([file])
    for text in (str(file), "document 2", *said):
        assert text in str(caught.value)


def test_a_file_that_is_missing_or_no_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KindError, match=r"none\.yaml cannot be read"):
        KindCatalog.load([tmp_path / "none.yaml"])
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(KindError, match=r"broken\.yaml is not YAML"):
        KindCatalog.load([broken])
    broken.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(KindError, match=r"broken\.yaml is not YAML"):
        KindCatalog.load([broken])


def test_files_folders_and_kinds_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, WIDGET)
    with monkeypatch.context() as patch:
        patch.setattr(kind_catalog, "FILES_MAX", 0)
        with pytest.raises(KindError, match="more than 0 files"):
            KindCatalog.load([tmp_path])
    with monkeypatch.context() as patch:
        patch.setattr(kind_catalog, "KINDS_MAX", len(NAMES))
        with pytest.raises(KindError, match="more than 15 kinds"):
            KindCatalog.load([file])
    file.write_text("#" * (kind_catalog.FILE_BYTES_MAX + 1))
    with pytest.raises(KindError, match="larger than"):
        KindCatalog.load([file])


def test_the_examples_are_read_as_a_users_folder_is() -> None:
    assert {kind.name for kind in KindCatalog.load([EXAMPLES])} - NAMES == {
        "inferenceservices.serving.kserve.io",
        "jobs.batch.volcano.sh",
        "rollouts.argoproj.io",
    }
