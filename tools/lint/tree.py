"""Tree: the files of a checkout that git does not ignore, and their syntax trees."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

PRODUCT: Final = ("ledger/", "projections/", "webhook/", "extender/", "vgpu_native/", "gpuledger/")
"""The packages that are shipped."""

TESTS: Final = ("tests/", "vgpu_native/tests/")

GIT_SECONDS: Final = 60.0


class Tree:
    """The files below a folder, each read and parsed once. Paths are relative, with slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths = tuple(path for path in _listed(root) if (root / path).is_file())
        self.text = cache(self._text)
        self.nodes = cache(self._nodes)

    def python(self, *, product: bool = False) -> Iterator[str]:
        """Return the Python files, of all folders or of the product only."""
        for path in self.paths:
            if path.endswith(".py") and (not product or is_product(path)):
                yield path

    def functions(
        self, path: str
    ) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, ast.ClassDef | None]]:
        """Return the functions of a Python file, each with the class that it is a method of."""
        for node in self.nodes(path):
            owner = node if isinstance(node, ast.ClassDef) else None
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield child, owner

    def _text(self, path: str) -> str:
        return (self.root / path).read_text(encoding="utf-8", errors="replace")

    def _nodes(self, path: str) -> tuple[ast.AST, ...]:
        """Return the module and all nodes below it, those of the module's body first."""
        return tuple(ast.walk(ast.parse(self.text(path), path)))


def is_product(path: str) -> bool:
    """Return whether a file belongs to a package that is shipped."""
    return path.startswith(PRODUCT) and not is_test(path)


def is_test(path: str) -> bool:
    """Return whether a file belongs to the tests."""
    return path.startswith(TESTS)


def folder_of(path: str) -> str:
    """Return the folder of a file, `.` for the root."""
    return str(PurePosixPath(path).parent)


def _listed(root: Path) -> list[str]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, capture_output=True, check=True, timeout=GIT_SECONDS)
    return sorted(set(done.stdout.decode().split("\0")) - {""})
