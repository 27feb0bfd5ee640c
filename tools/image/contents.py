"""Faults in the files of an image: compilers, package tools, privileges, writable files, keys."""

import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Final

from tools.image.archive import Archive

USER: Final = 65532
"""The user and group that containers run as."""

VOLUMES: Final = frozenset({"tmp"})
"""Paths that any user may write; with a read-only root, each needs a volume."""

_TOOLS: Final = re.compile(
    r"(?:[a-z0-9_]+-linux-gnu-)?(?:gcc|g\+\+|cc|c\+\+|cpp|clang|tcc|ld|as|make|cc1)(?:-[\d.]+)?"
    r"|(?:pip|easy_install|wheel)[\d.]*|hadolint|sudo"
)
"""Names of programs in folders of programs."""

_PACKAGES: Final = re.compile(
    r"(?:^|/)(?:site|dist)-packages/(?:pip|setuptools|wheel|pytest|mypy|hypothesis)(?:/|-[\d.]+\.)"
    r"|/ensurepip/"
)
_LEFTOVERS: Final = re.compile(
    r"^var/lib/apt/lists/.*[^/]$|^var/cache/.*\.(?:deb|bin)$|^root/\.(?:cache|config)/|^var/log/.*\.log$"
    r"|(?:^|/)(?:\.git|pip\.conf|\.netrc|direct_url\.json)$"
)
_MACHINE: Final = frozenset({"etc/hostname", "etc/resolv.conf", "etc/hosts", "etc/machine-id"})
"""Files that a container runtime writes; with content they are of the machine of the build."""

_KEY: Final = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----\s+[A-Za-z0-9+/=]{40}")


def faults(archive: Archive) -> Iterator[str]:
    """Yield a line for each file that must not be in the image."""
    for path, member in archive.files().items():
        for fault, is_found in _FAULTS.items():
            if is_found(path, member):
                yield f"/{path}: {fault}"
    for path in archive.matches(_KEY):
        yield f"/{path}: contains a private key"


def _is_tool(path: str, member: tarfile.TarInfo) -> bool:
    file = PurePosixPath(path)
    return (
        not member.isdir()
        and file.parent.name in {"bin", "sbin"}
        and bool(_TOOLS.fullmatch(file.name))
    )


def _is_writable(path: str, member: tarfile.TarInfo) -> bool:
    if member.issym() or path in VOLUMES:
        return False
    owned = member.uid == USER or (member.gid == USER and member.mode & 0o020)
    return bool(owned or member.mode & 0o002)


_FAULTS: Final[dict[str, Callable[[str, tarfile.TarInfo], bool]]] = {
    "is a tool of builds": _is_tool,
    "is a package of builds": lambda path, _: bool(_PACKAGES.search(path)),
    "is left over from the build": lambda path, member: (
        not member.isdir() and bool(_LEFTOVERS.search(path))
    ),
    "is of the machine of the build": lambda path, member: path in _MACHINE and member.size > 0,
    "is set-user-id or set-group-id": lambda _, member: (
        member.isfile() and bool(member.mode & 0o6000)
    ),
    f"can be written by user {USER}": _is_writable,
}
