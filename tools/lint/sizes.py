"""Sizes: files per folder, lines per file and lines per function."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from tools.lint.findings import Finding
from tools.lint.tree import Tree, folder_of

FOLDER_FILES_MAX: Final = 15
FILE_LINES_MAX: Final = 400
FUNCTION_LINES_MAX: Final = 50

_CODE: Final = (".py", ".c", ".h")
_C: Final = (".c", ".h")
_C_FUNCTION: Final = re.compile(r"^(?=[A-Za-z_]).*?(\w+)\(")


def folder_files(tree: Tree) -> Iterator[Finding]:
    """Find folders that hold too many files; those in sub-folders do not count."""
    for folder, count in sorted(Counter(map(folder_of, tree.paths)).items()):
        if count > FOLDER_FILES_MAX:
            message = (
                f"{count} files, at most {FOLDER_FILES_MAX}: move those of one purpose into a "
                "sub-folder that names it, or merge fragments into the file that uses them"
            )
            yield Finding("folder-files", folder, 1, folder, message)


def file_lines(tree: Tree) -> Iterator[Finding]:
    """Find source files that are too long."""
    for path in tree.paths:
        if path.endswith(_CODE):
            count = tree.text(path).count("\n")
            if count > FILE_LINES_MAX:
                message = f"{count} lines, at most {FILE_LINES_MAX}: split it, one idea a file"
                yield Finding("file-lines", path, 1, path, message)


def function_lines(tree: Tree) -> Iterator[Finding]:
    """Find functions that are too long, in Python and in C; decorators do not count."""
    for path in tree.paths:
        for name, line, count in _functions(tree, path):
            if count > FUNCTION_LINES_MAX:
                message = (
                    f"{name}() has {count} lines, at most {FUNCTION_LINES_MAX}: "
                    "move its steps into functions"
                )
                yield Finding("function-lines", path, line, name, message)


def _functions(tree: Tree, path: str) -> Iterator[tuple[str, int, int]]:
    """Return name, first line and number of lines of each function."""
    if path.endswith(".py"):
        for function, _owner in tree.functions(path):
            last = function.end_lineno or function.lineno
            yield function.name, function.lineno, last - function.lineno + 1
    elif path.endswith(_C):
        name, first = "", 0
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            if begun := _C_FUNCTION.match(line):
                name, first = begun[1], number
            elif line == "}" and name:
                yield name, first, number - first + 1
                name = ""
