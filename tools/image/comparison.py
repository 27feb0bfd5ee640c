"""The files in which two images differ."""

import tarfile
from collections.abc import Iterator

from tools.image.archive import Archive


def differences(first: Archive, second: Archive) -> Iterator[str]:
    """Yield a line for each path whose type, content, owner, mode or time differs, sorted."""
    before, after = _described(first), _described(second)
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield f"/{path}: {before.get(path, 'absent')} and {after.get(path, 'absent')}"


def _described(archive: Archive) -> dict[str, str]:
    contents = archive.checksums()
    return {
        path: f"{_attributes(member)} {contents.get(path, member.linkname)}"
        for path, member in archive.files().items()
    }


def _attributes(member: tarfile.TarInfo) -> str:
    kind = member.type.decode()
    return f"type {kind}, {member.mode:o}, {member.uid}:{member.gid}, {member.mtime}"
