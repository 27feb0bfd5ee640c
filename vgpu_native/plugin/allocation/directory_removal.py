"""Directory removal: removes directory trees of any depth and size, which tenants may create.

A nested directory moves to the top before its removal. So at any depth, only a few descriptors are
open, paths stay short, and no function recurses.
"""

import os
import secrets
from pathlib import Path
from typing import Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path) -> None:
    """Remove a directory and its content, without following links. Raises OSError.

    Another call can continue after an error.
    """
    empty_tree(path)
    path.rmdir()


def empty_tree(path: Path) -> None:
    """Remove the content of a directory, without following links. Raises OSError."""
    top = os.open(path, _DIRECTORY)
    try:
        waiting = _emptied(top, top)
        while waiting:
            name = waiting.pop()
            inner = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                waiting += _emptied(inner, top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _emptied(directory: int, top: int) -> list[str]:
    """Remove all files of a directory, and move its directories to the top; return their names."""
    moved = []
    # Read the whole list first, because scandir may repeat or skip entries that are renamed.
    with os.scandir(directory) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_directory in listed:
        if not is_directory:
            os.unlink(name, dir_fd=directory)
            continue
        fresh = secrets.token_hex(16)
        os.rename(name, fresh, src_dir_fd=directory, dst_dir_fd=top)
        moved.append(fresh)
    return moved
