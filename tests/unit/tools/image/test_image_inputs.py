"""The inputs of a build: the files that .dockerignore lets in, their digest and their time."""

import os
import subprocess
from pathlib import Path

import pytest

from tools.image.image_list import CHECKSUMS, images_of_others, write_checksums
from tools.image.recipe import EPOCH, LOCKS, TARGETS, context_files, digest_of, epoch, version_of

ROOT = Path(__file__).parents[4]
IGNORED = "# Comment\n*\n!LICENSE\n!deploy/locks\n!ledger\nledger/build\n**/__pycache__\n"
FILES = {
    ".dockerignore": IGNORED,
    "deploy/Dockerfile": "FROM scratch\n",
    "deploy/locks/service.lock": "",
    "LICENSE": "",
    "README.md": "",
    "ledger/core/state.py": "",
    "ledger/core/__pycache__/state.pyc": "",
    "ledger/build/made.o": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_files_of_the_build_are_those_that_dockerignore_lets_in(tree: Path) -> None:
    sent = {str(path.relative_to(tree)) for path in context_files(tree)}
    assert sent == {
        "deploy/Dockerfile",
        "deploy/locks/service.lock",
        "LICENSE",
        "ledger/core/state.py",
    }


def test_files_of_this_repository_have_no_tests_and_no_byte_code() -> None:
    sent = {str(path.relative_to(ROOT)) for path in context_files(ROOT)}
    assert {"pyproject.toml", "gpuledger/__main__.py", *LOCKS} <= sent
    assert not any("__pycache__" in path or "tests/" in path for path in sent)
    assert {path for path in sent if path.startswith("tools/")} == {
        "tools/image/bill_of_materials.py"
    }


def test_the_digest_depends_on_content_and_not_on_time(tree: Path) -> None:
    files = context_files(tree)
    before = digest_of(tree, files)
    os.utime(tree / "LICENSE", (1, 1))
    assert digest_of(tree, files) == before
    (tree / "LICENSE").write_text("changed")
    assert digest_of(tree, files) != before


def test_the_time_is_constant_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert epoch() == EPOCH
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000042")
    assert epoch() == 1_700_000_042


def test_a_tree_without_a_version_is_an_error(tree: Path) -> None:
    (tree / "gpuledger").mkdir()
    (tree / "gpuledger" / "version.py").write_text("")
    with pytest.raises(ValueError, match="has no line VERSION"):
        version_of(tree)
    assert version_of(ROOT).count(".") == 2


def test_each_target_is_a_stage_of_the_dockerfile() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    assert all(f" AS {target.stage}\n" in text for target in TARGETS)
    assert all(f"/{target.bill}\n" in text for target in TARGETS)


def test_images_of_others_are_those_of_the_manifests() -> None:
    images = images_of_others(ROOT)
    assert any(image.startswith("registry.k8s.io/kube-scheduler:v") for image in images)
    assert not any("gpuledger" in image for image in images)


def test_sha256sum_accepts_the_checksums_and_finds_a_changed_file(tmp_path: Path) -> None:
    (tmp_path / "images.txt").write_text("a\n")
    write_checksums(tmp_path)
    command = ["sha256sum", "--check", "--quiet", CHECKSUMS]
    done = subprocess.run(command, cwd=tmp_path, timeout=30, check=False, capture_output=True)
    assert done.returncode == 0
    (tmp_path / "images.txt").write_text("b\n")
    done = subprocess.run(command, cwd=tmp_path, timeout=30, check=False, capture_output=True)
    assert done.returncode == 1
