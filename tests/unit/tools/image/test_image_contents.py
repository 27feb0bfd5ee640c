"""The check of an image's files finds each planted fault, and nothing in a clean image."""

from pathlib import Path

import pytest
from unit.tools.image.image_archives import write_archive

from tools.image.contents import faults

CLEAN = {
    "usr/bin/python3.11": b"",
    "opt/gpuledger/bin/gpuledger": b"",
    "opt/gpuledger/lib/python3.11/site-packages/pipeline/make": b"",
    "etc/resolv.conf": b"",
    "usr/lib/libssl.so.3": b"-----BEGIN PRIVATE KEY-----\0",
}
KEY = b"-----BEGIN RSA PRIVATE KEY-----\n" + b"A" * 64


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("usr/bin/gcc-12", "is a tool of builds"),
        ("usr/bin/x86_64-linux-gnu-ld", "is a tool of builds"),
        ("usr/bin/make", "is a tool of builds"),
        ("opt/gpuledger/bin/pip3.11", "is a tool of builds"),
        ("opt/gpuledger/lib/python3.11/site-packages/pip/x.py", "is a package of builds"),
        ("usr/lib/python3/dist-packages/setuptools-66.1.egg-info", "is a package of builds"),
        ("usr/lib/python3.11/ensurepip/_bundled/pip.whl", "is a package of builds"),
        ("var/lib/apt/lists/deb.debian.org_Packages", "is left over from the build"),
        ("root/.cache/pip/1", "is left over from the build"),
        ("var/log/dpkg.log", "is left over from the build"),
    ],
)
def test_a_forbidden_path_is_found(path: str, fault: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar", CLEAN, {path: b""})
    assert list(faults(archive)) == [f"/{path}: {fault}"]


@pytest.mark.parametrize(
    ("path", "content", "fault"),
    [
        ("etc/resolv.conf", b"nameserver 192.0.2.1", "is of the machine of the build"),
        ("etc/tls.key", KEY, "contains a private key"),
    ],
)
def test_forbidden_content_is_found(path: str, content: bytes, fault: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar", CLEAN, {path: content})
    assert list(faults(archive)) == [f"/{path}: {fault}"]


@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        (0o4755, "is set-user-id or set-group-id"),
        (0o2755, "is set-user-id or set-group-id"),
        (0o666, "can be written by user 65532"),
    ],
)
def test_a_forbidden_mode_is_found(mode: int, fault: str, tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar", {"usr/bin/su": b""}, mode=mode)
    assert list(faults(archive)) == [f"/usr/bin/su: {fault}"]


def test_a_clean_image_has_no_faults(tmp_path: Path) -> None:
    assert list(faults(write_archive(tmp_path / "a.tar", CLEAN))) == []


def test_a_deleted_file_is_not_in_the_image(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "a.tar", {"usr/bin/gcc": b""}, {"usr/bin/.wh.gcc": b""})
    assert list(faults(archive)) == []
