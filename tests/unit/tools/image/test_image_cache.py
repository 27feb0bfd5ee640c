"""An unchanged tree is built once, and each change of its inputs builds again."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from unit.tools.image.image_archives import write_archive

from tools.image import build as building
from tools.image.buildah import BuildFailed
from tools.image.recipe import TARGETS

ROOT = Path(__file__).parents[4]


class RecordedBuildah:
    """Records the builds, and writes an archive that has only the bill of materials."""

    builds: list[dict[str, Any]]

    def __init__(self, storage: Path) -> None:
        self.storage = storage

    def delete(self) -> None:
        self.storage.rmdir()

    def run(self, *_arguments: str) -> str:
        return ""

    def has(self, _image: str) -> bool:
        return True

    def build(self, tree: Path, **options: Any) -> None:
        self.builds.append(options)

    def write_archive(self, _image: str, path: Path, _reference: str) -> str:
        write_archive(path, {target.bill: b"{}" for target in TARGETS})
        return ""


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    RecordedBuildah.builds = []
    monkeypatch.setattr(building, "Buildah", RecordedBuildah)
    monkeypatch.setattr(building, "fetch", lambda tree, cache: cache / "packages" / "1")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    return RecordedBuildah.builds


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (".dockerignore", "deploy/Dockerfile", "gpuledger/version.py", "LICENSE"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / "tree" / name)
    return tmp_path / "tree"


def test_an_unchanged_tree_is_built_once(
    tree: Path, tmp_path: Path, builds: list[dict[str, Any]]
) -> None:
    for output in ("first", "second"):
        built = building.build(tree, tmp_path / output, cache=tmp_path / "cache")
        assert built.keys() == {"gpuledger", "gpuledger-agent", "gpuledger-nats"}
        assert all(archive.path.is_file() for archive in built.values())
        assert all((tmp_path / output / f"{name}-0.1.0.cdx.json").is_file() for name in built)
    assert [options["stage"] for options in builds] == ["service", "agent", "nats"]


def test_a_changed_file_or_time_builds_again(
    tree: Path, tmp_path: Path, builds: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> int:
        building.build(tree, tmp_path / "out", TARGETS[:1], cache=tmp_path / "cache")
        return len(builds)

    assert build() == 1
    (tree / "LICENSE").write_text("changed")
    assert build() == 2
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000001")
    assert build() == 3
    assert [options["epoch"] for options in builds] == [1_700_000_000] * 2 + [1_700_000_001]


def test_a_base_of_a_registry_is_pulled_and_pip_uses_its_index(
    tree: Path, tmp_path: Path, builds: list[dict[str, Any]]
) -> None:
    base = "registry.example/python:3.11-slim"
    building.build(tree, tmp_path / "out", TARGETS[:1], base=base, cache=tmp_path / "cache")
    (options,) = builds
    assert options["pull"]
    assert options["packages"] is None
    assert options["arguments"] == {"VERSION": "0.1.0", "BUILD_BASE": base, "RUNTIME_BASE": base}


def test_made_bases_need_no_network(
    tree: Path, tmp_path: Path, builds: list[dict[str, Any]]
) -> None:
    building.build(tree, tmp_path / "out", TARGETS[:1], cache=tmp_path / "cache")
    (options,) = builds
    assert not options["pull"]
    assert options["arguments"]["PIP_NO_INDEX"] == "1"
    assert options["arguments"]["RUNTIME_BASE"].startswith("localhost/")


def test_the_cache_keeps_the_newest_results(
    tree: Path, tmp_path: Path, builds: list[dict[str, Any]]
) -> None:
    for number in range(building.KEPT + 2):
        (tree / "LICENSE").write_text(str(number))
        building.build(tree, tmp_path / "out", TARGETS[:1], cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache" / "built").iterdir())) == building.KEPT


def test_an_image_with_a_fault_is_not_kept(
    tree: Path, tmp_path: Path, builds: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(_self: object, _image: str, path: Path, _reference: str) -> str:
        write_archive(path, {"usr/bin/gcc": b"", TARGETS[0].bill: b"{}"})
        return ""

    monkeypatch.setattr(RecordedBuildah, "write_archive", write)
    for _ in range(2):
        with pytest.raises(BuildFailed, match="/usr/bin/gcc: is a tool of builds"):
            building.build(tree, tmp_path / "out", TARGETS[:1], cache=tmp_path / "cache")
    assert len(builds) == 2


def test_layers_of_another_time_are_deleted(
    tree: Path, tmp_path: Path, builds: list[dict[str, Any]]
) -> None:
    for seconds in (1, 1_700_000_000):
        (tmp_path / "cache" / f"storage-{seconds}").mkdir(parents=True)
    building.build(tree, tmp_path / "out", TARGETS[:1], cache=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").glob("storage-*")] == ["storage-1700000000"]
