"""Small OCI archives for tests."""

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

from tools.image.archive import Archive, read_archive

REFERENCE = "docker.io/library/gpuledger:0.1.0"


def write_archive(path: Path, *layers: dict[str, bytes], mode: int = 0o644) -> Archive:
    """Write an archive whose layers have these files, and read its index."""
    blobs = [_layer(files, mode) for files in layers]
    manifest: dict[str, Any] = {
        "config": {"digest": _digest(b"{}"), "size": 2},
        "layers": [{"digest": _digest(blob), "size": len(blob)} for blob in blobs],
    }
    text = json.dumps(manifest).encode()
    annotations = {"org.opencontainers.image.ref.name": REFERENCE}
    index = {"manifests": [{"digest": _digest(text), "annotations": annotations}]}
    with tarfile.open(path, "w") as archive:
        for blob in (b"{}", text, *blobs):
            _add(archive, f"blobs/{_digest(blob).replace(':', '/')}", blob)
        _add(archive, "index.json", json.dumps(index).encode())
    return read_archive(path)


def _layer(files: dict[str, bytes], mode: int) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as layer:
        for name, content in files.items():
            _add(layer, name, content, mode)
    return gzip.compress(plain.getvalue(), mtime=0)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
