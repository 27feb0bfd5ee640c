"""OCI archives: a tar file in the OCI image layout, as `ctr images import` and `skopeo` read it.

Source of the formats: https://github.com/opencontainers/image-spec, image-layout.md, manifest.md,
config.md and layer.md.
"""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

_WHITEOUT: Final = ".wh."
"""A layer deletes the file NAME of the layers below by the file `.wh.NAME`."""


class Archive(msgspec.Struct, frozen=True):
    """An archive of one image."""

    path: Path
    reference: str
    digest: str
    """The digest of the manifest: `sha256:…`."""

    @property
    def size(self) -> int:
        """Bytes of the compressed layers, as a registry transfers them."""
        return sum(layer["size"] for layer in self.manifest()["layers"])

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        document: dict[str, Any] = self._document(self.digest)
        return document

    def config(self) -> dict[str, Any]:
        """Return the configuration: labels, user, entry point."""
        document: dict[str, Any] = self._document(self.manifest()["config"]["digest"])
        return document

    def files(self) -> dict[str, tarfile.TarInfo]:
        """Return the files of the image by path, which has no leading slash."""
        present: dict[str, tarfile.TarInfo] = {}
        for member, _layer in self._members():
            path = PurePosixPath(member.name)
            if path.name.startswith(_WHITEOUT):
                present.pop(str(path.with_name(path.name.removeprefix(_WHITEOUT))), None)
            else:
                present[str(path)] = member
        return present

    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of each regular file, by path."""
        checksums = {}
        for member, layer in self._members():
            if file := layer.extractfile(member) if member.isfile() else None:
                digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type] # typeshed
                checksums[str(PurePosixPath(member.name))] = digest.hexdigest()
        return checksums

    def matches(self, pattern: re.Pattern[bytes]) -> Iterator[str]:
        """Yield the paths of the regular files whose content matches."""
        for member, layer in self._members():
            file = layer.extractfile(member) if member.isfile() else None
            if file and pattern.search(file.read()):
                yield str(PurePosixPath(member.name))

    def read(self, wanted: str) -> bytes:
        """Return the content of a regular file; raise `FileNotFoundError`."""
        content = None
        for member, layer in self._members():
            if str(PurePosixPath(member.name)) == wanted and (file := layer.extractfile(member)):
                content = file.read()
        if content is None:
            raise FileNotFoundError(f"{self.reference} has no file {wanted}")
        return content

    def _document(self, digest: str) -> Any:
        with tarfile.open(self.path) as archive:
            return json.loads(_blob(archive, digest).read())

    def _members(self) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
        layers = self.manifest()["layers"]
        with tarfile.open(self.path) as archive:
            for described in layers:
                with _opened(archive, described["digest"]) as layer:
                    for member in layer:
                        yield member, layer


def read_archive(path: Path) -> Archive:
    """Return the archive of one image at a path."""
    with tarfile.open(path) as archive:
        file = archive.extractfile("index.json")
        assert file is not None
        (entry,) = json.loads(file.read())["manifests"]
    return Archive(path, entry["annotations"]["org.opencontainers.image.ref.name"], entry["digest"])


def _blob(archive: tarfile.TarFile, digest: str) -> io.BufferedIOBase:
    file = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
    assert file is not None
    return file  # type: ignore[return-value] # typeshed has IO[bytes]


@contextmanager
def _opened(archive: tarfile.TarFile, digest: str) -> Iterator[tarfile.TarFile]:
    with tarfile.open(fileobj=_blob(archive, digest), mode="r:gz") as layer:
        yield layer
