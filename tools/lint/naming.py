"""Naming: repeated class names and base names, long names of tests, and empty names of locals."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from tools.lint.findings import Finding
from tools.lint.tree import Tree, is_product, is_test

TEST_NAME_CHARACTERS_MAX: Final = 70

EMPTY_NAMES: Final = frozenset({"one", "found"})
"""Names that fit any value."""

_NAMED: Final = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ExceptHandler,
    ast.MatchAs,
    ast.MatchStar,
)
_SHOWN: Final = 3
_C_SOURCE: Final = ".c"


def class_names(tree: Tree) -> Iterator[Finding]:
    """Find public classes of the product that share their name with another one.

    Tests do not count: a class of a test is read beside the test, and a fake may have the name of
    the thing that it replaces.
    """
    places: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for path in tree.python(product=True):
        for node in tree.nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append((path, node.lineno))
    for name, defined in sorted(places.items()):
        for path, line in defined if len(defined) > 1 else ():
            message = (
                f"public class {name} is defined in {_others(path, [file for file, _ in defined])} "
                "too, and must be unique: add to its name what it is a kind of"
            )
            yield Finding("class-names", path, line, name, message)


def base_names(tree: Tree) -> Iterator[Finding]:
    """Find files of the product that share their base name with another of the same language."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in filter(is_product, tree.paths):
        pure = PurePosixPath(path)
        if pure.suffix in (".py", _C_SOURCE) and not pure.stem.startswith("__"):
            places[pure.suffix, pure.stem].append(path)
    for (_suffix, stem), paths in sorted(places.items()):
        for path in paths if len(paths) > 1 else ():
            message = (
                f"base name {stem} is that of {_others(path, paths)} too: name each file for what "
                "it holds, or list the name with a reason in tools/lint/exceptions.toml"
            )
            yield Finding("base-names", path, 1, stem, message)


def test_names(tree: Tree) -> Iterator[Finding]:
    """Find tests whose names are too long."""
    for path in filter(is_test, tree.python()):
        for function, _owner in tree.functions(path):
            name = function.name
            if name.startswith("test_") and len(name) > TEST_NAME_CHARACTERS_MAX:
                message = (
                    f"{name} has {len(name)} characters, at most {TEST_NAME_CHARACTERS_MAX}: "
                    "write test_<subject>_<behaviour>_when_<condition>"
                )
                yield Finding("test-names", path, function.lineno, name, message)


def local_names(tree: Tree) -> Iterator[Finding]:
    """Find locals, parameters and functions whose name does not show what they are."""
    for path in tree.python():
        for node in tree.nodes(path):
            if (name := _bound_name(node)) in EMPTY_NAMES:
                message = f"{name} fits any value: name what it holds, such as pod or shortages"
                yield Finding("local-names", path, getattr(node, "lineno", 1), name, message)


def _bound_name(node: ast.AST) -> str:
    """Return the name that a node binds in a function or a module, empty without one."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.alias):
        return node.asname or node.name
    if isinstance(node, ast.MatchMapping):
        return node.rest or ""
    return (node.name or "") if isinstance(node, _NAMED) else ""


def _others(path: str, paths: list[str]) -> str:
    others = [other for other in paths if other != path] or [path]
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    return ", ".join(others[:_SHOWN]) + more
