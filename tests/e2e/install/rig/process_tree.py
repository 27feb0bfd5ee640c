"""Processes of a node, found below the process that holds its namespaces."""

from collections.abc import Sequence
from pathlib import Path

_PROC = Path("/proc")


def below(root: int, words: Sequence[str]) -> list[int]:
    """Return the descendants of a process whose command lines begin with these words.

    The first word is compared with the last part of the program's path. An interpreter's name
    before it does not count, so that a script is found by its own name.
    """
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid))}
    return sorted(
        pid for pid in parents if _is_below(pid, root, parents) and _begins(pid, list(words))
    )


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _parent(pid: int) -> int:
    try:
        status = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return 0
    state, parent = status.rpartition(")")[2].split()[:2]
    return 0 if state in "ZX" else int(parent)


def _is_below(pid: int, root: int, parents: dict[int, int]) -> bool:
    while pid and pid != root:
        pid = parents.get(pid, 0)
    return pid == root


def _begins(pid: int, words: list[str]) -> bool:
    try:
        given = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False
    named = [Path(given[0]).name, *given[1:]] if given else []
    if named and named[0].startswith("python") and len(given) > 1:
        named = [Path(given[1]).name, *given[2:]]
    return named[: len(words)] == words
