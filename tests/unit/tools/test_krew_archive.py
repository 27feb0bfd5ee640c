"""The krew archive: its manifest by krew's own rules, its content, and its launcher."""

import hashlib
import os
import re
import subprocess
import tarfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gpuledger.version import VERSION
from tools import krew_archive

SOURCE: Final = krew_archive.SOURCES / "gpuledger.yaml"
URL: Final = "https://ledger.example/x/kubectl-gpuledger.tar.gz"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the archive and the manifest."""
    return krew_archive.build(tmp_path_factory.mktemp("krew"), URL).parent


def problems(manifest: dict[str, Any]) -> list[str]:
    """Return the fields that krew's ValidatePlugin refuses, version v1alpha2."""
    spec = manifest.get("spec", {})
    rules = {
        "apiVersion": manifest.get("apiVersion") == "krew.googlecontainertools.github.com/v1alpha2",
        "kind": manifest.get("kind") == "Plugin",
        "name": re.fullmatch(r"[\w-]+", manifest.get("metadata", {}).get("name", "")) is not None,
        "version": re.fullmatch(r"v\d+\.\d+\.\d+", spec.get("version", "")) is not None,
        "shortDescription": re.fullmatch(r".+", spec.get("shortDescription", "")) is not None,
        "platforms": bool(spec.get("platforms")),
    }
    for platform in spec.get("platforms", ()):
        selector = platform.get("selector", {})
        keys = {
            *selector.get("matchLabels", {}),
            *(rule["key"] for rule in selector.get("matchExpressions", ())),
        }
        rules |= {
            "uri": bool(platform.get("uri")),
            "sha256": re.fullmatch(r"[a-f0-9]{64}", platform.get("sha256", "")) is not None,
            "bin": bool(platform.get("bin")),
            "selector": bool(keys) and keys <= {"os", "arch"},
            "files": platform.get("files") is None
            or (
                bool(platform["files"])
                and all(entry.get("from") and entry.get("to") for entry in platform["files"])
            ),
        }
    return [name for name, holds in rules.items() if not holds]


def test_the_manifest_holds_to_the_rules_of_krew(built: Path) -> None:
    assert problems(yaml.safe_load(SOURCE.read_text())) == []
    manifest = yaml.safe_load((built / "gpuledger.yaml").read_text())
    assert problems(manifest) == []
    (platform,) = manifest["spec"]["platforms"]
    archive = (built / krew_archive.ARCHIVE).read_bytes()
    assert (platform["uri"], manifest["spec"]["version"]) == (URL, f"v{VERSION}")
    assert platform["sha256"] == hashlib.sha256(archive).hexdigest()


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (("kind",), "Plugins", "kind"),
        (("metadata", "name"), "a/b", "name"),
        (("spec", "version"), "0.1.0", "version"),
        (("spec", "shortDescription"), "a\nb", "shortDescription"),
        (("spec", "platforms"), [], "platforms"),
    ],
)
def test_the_rules_find_a_wrong_field(path: tuple[str, ...], value: Any, rule: str) -> None:
    manifest = yaml.safe_load(SOURCE.read_text())
    parent = manifest
    for name in path[:-1]:
        parent = parent[name]
    parent[path[-1]] = value
    assert problems(manifest) == [rule]


def test_the_archive_has_the_files_of_the_manifest(built: Path) -> None:
    (platform,) = yaml.safe_load((built / "gpuledger.yaml").read_text())["spec"]["platforms"]
    with tarfile.open(built / krew_archive.ARCHIVE) as archive:
        modes = {entry.name: entry.mode for entry in archive.getmembers()}
    for entry in platform["files"]:
        assert any(fnmatch(name, entry["from"]) for name in modes), entry
    assert modes[platform["bin"]] == 0o755
    assert f"gpuledger-{VERSION}-py3-none-any.whl" in modes


def test_an_unchanged_tree_gives_the_same_archive(built: Path, tmp_path: Path) -> None:
    again = krew_archive.build(tmp_path, URL)
    assert again.read_bytes() == (built / "gpuledger.yaml").read_bytes()


PYTHON: Final = """#!/bin/sh
case "$*" in
-c*) exit 0 ;;
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && exit ;;
esac
printf '%s\\n' "$*" >>"$PIP_LOG"
printf '#!/bin/sh\\necho "ran $*"\\n' >"$(dirname "$0")/kubectl-gpuledger"
chmod +x "$(dirname "$0")/kubectl-gpuledger"
"""
"""A Python whose pip logs its arguments and installs a command that prints its own."""


def launched(folder: Path, python: Path, home: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [folder / "kubectl-gpuledger", "usage"],
        env={
            "PATH": os.defpath,
            "HOME": str(home),
            "GPULEDGER_PYTHON": str(python),
            "PIP_LOG": str(folder / "pip.log"),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def unpacked(built: Path, tmp_path: Path) -> Path:
    with tarfile.open(built / krew_archive.ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def python(folder: Path, script: str) -> Path:
    path = folder / "a python"
    path.write_text(script)
    path.chmod(0o755)
    return path


def test_the_launcher_names_what_it_lacks(unpacked: Path) -> None:
    ended = launched(unpacked, python(unpacked, "#!/bin/sh\nexit 1\n"), unpacked)
    assert (ended.returncode, "older than Python 3.11" in ended.stderr) == (1, True)
    assert not (unpacked / ".cache").exists()


def test_the_launcher_installs_once_with_hashes_into_any_home(unpacked: Path) -> None:
    home = unpacked / "a home"
    for _ in range(2):
        ended = launched(unpacked, python(unpacked, PYTHON), home)
        assert (ended.returncode, ended.stdout) == (0, "ran usage\n"), ended.stderr
    packages, wheel = (unpacked / "pip.log").read_text().splitlines()
    assert f"--require-hashes -r {unpacked}/packages.lock" in packages
    assert "--no-deps --no-index" in wheel
    assert f"gpuledger-{VERSION}-py3-none-any.whl" in wheel
