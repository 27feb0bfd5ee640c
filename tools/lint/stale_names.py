"""Stale names: names in backticks that look like ours and that the tree does not have.

The rule reads documents, docstrings and comments, and checks in backticks

* paths below a folder of the tree, and names of Python and C files (`lint/tree.py`);
* dotted names that begin with a package, a class or a module of the tree (`Tree.paths`);
* identifiers with an underscore, and in code those in CamelCase: some code must have the word.

It cannot see a stale name that is a single lower-case word, that other code or a text still has, or
that is not in backticks. It does not check words in camelCase, and in documents it does
not check bare words in CamelCase, because Kubernetes names its fields, kinds and reasons so.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import PurePosixPath
from typing import Final

from tools.lint.findings import Finding
from tools.lint.texts import (
    C_SUFFIXES,
    COMMENT_OR_STRING,
    HASH_COMMENTS,
    SQL_COMMENTS,
    passages,
)
from tools.lint.tree import Tree

HISTORY: Final = "CHANGELOG.md"
"""Names of former versions may stand here."""

OWN_FOLDER: Final = "tools/lint/"
"""Its lists of words and exceptions do not count as code that has a name."""

_QUOTED: Final = re.compile(r"`([^`\n]+)`")
_CALL: Final = re.compile(r"\([^()]*\)$")
_WORD: Final = re.compile(r"\w+")
_FILE: Final = re.compile(r"[\w./-]*\w\.(?:py|c|h)")
_PATH: Final = re.compile(r"[\w-]+(?:/[\w.-]+)+/?")
_DOTTED: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_SNAKE: Final = re.compile(
    r"_?[a-z][a-z0-9]*(?:_[a-z0-9]+)+|_[a-z0-9]+|_?[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
)
_CAMEL: Final = re.compile(r"_?(?:[A-Z]+[a-z0-9]+){2,}")
_FOREIGN: Final = ("gpuledger_", "cu", "nvml", "pthread_", "rtld_")
"""Metrics, which other tests check, and names of the driver and of the C library."""

_SUFFIXES: Final = {"io", "toml"}
"""Ends of an API group and of a user's file, which look like members of a package."""

_PLAIN_BASES: Final = {"ABC", "Exception", "Generic", "NamedTuple", "Protocol", "Struct"}
"""Bases that add no member worth naming."""


class Symbols:
    """The names that a tree defines: paths, words of code, modules and classes with members."""

    def __init__(self, tree: Tree) -> None:
        self.paths = {part for path in tree.paths for part in _parts_of(path)}
        self.top = {path.partition("/")[0] for path in tree.paths if "/" in path}
        self.words = {word for path in tree.paths for word in _WORD.findall(path)}
        self.variables: set[str] = set()
        self.imported = set(sys.stdlib_module_names)
        self.modules: dict[str, set[str]] = defaultdict(set)
        self.classes: dict[str, set[str]] = defaultdict(set)
        self._bases: dict[str, set[str]] = defaultdict(set)
        for path in tree.paths:
            if path.endswith(".py"):
                nodes = tree.nodes(path)
                self._add_module(PurePosixPath(path), nodes[0])
                self._add_nodes(nodes)
            elif not path.endswith(".md") and not path.startswith(OWN_FOLDER):
                self.words.update(_WORD.findall(_code(path, tree.text(path))))

    def is_library(self, name: str) -> bool:
        """Return whether a name is that of a foreign module, such as `asyncio`."""
        return name.islower() and name in self.imported and name not in self.modules

    def has_member(self, name: str, member: str) -> bool:
        """Return whether a class has this member, or a base that the tree does not define."""
        if member in self.classes[name] or member.startswith("__"):
            return True
        bases = self._bases[name] - _PLAIN_BASES - {name}
        return any(base not in self.classes or self.has_member(base, member) for base in bases)

    def _add_module(self, path: PurePosixPath, module: ast.AST) -> None:
        """Add a module by all ends of its dotted name, and to its packages."""
        members = {name for node in ast.iter_child_nodes(module) for name in _bound(node)}
        parts = path.parent.parts if path.stem == "__init__" else path.with_suffix("").parts
        for begin in range(len(parts)):
            self.modules[".".join(parts[begin:])] |= members
        for begin, end in combinations(range(len(parts)), 2):
            self.modules[".".join(parts[begin:end])].add(parts[end])

    def _add_nodes(self, nodes: tuple[ast.AST, ...]) -> None:
        prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant):
                if isinstance(node.value, str) and id(node) not in prose:
                    self.words.update(_WORD.findall(_QUOTED.sub(" ", node.value)))
            elif isinstance(node, ast.Name | ast.Attribute | ast.arg | ast.keyword):
                self._add_name(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.words.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                names = {name.asname or name.name for name in node.names}
                self.imported |= names
                self.words |= names
            elif isinstance(node, ast.ClassDef):
                self.words.add(node.name)
                self.classes[node.name] |= set(_members(node))
                self._bases[node.name] |= set(map(_last_name, node.bases))

    def _add_name(self, node: ast.Name | ast.Attribute | ast.arg | ast.keyword) -> None:
        if isinstance(node, ast.Name):
            name, is_variable = node.id, isinstance(node.ctx, ast.Store)
        elif isinstance(node, ast.Attribute):
            name, is_variable = node.attr, True
        else:
            name, is_variable = node.arg or "", True
        self.words.add(name)
        if is_variable:
            self.variables.add(name)


def stale_names(tree: Tree) -> Iterator[Finding]:
    """Find names in backticks that the tree does not have."""
    symbols = Symbols(tree)
    check = cache(lambda name, in_code: problem(name, symbols, in_code=in_code))
    for path, first, text in passages(tree):
        if path == HISTORY:
            continue
        for match in _QUOTED.finditer(text):
            if wrong := check(match[1], not path.endswith(".md")):
                line = first + text.count("\n", 0, match.start())
                message = (
                    f"`{match[1]}` is stale, {wrong}: write the present name, or list a name that "
                    "is not ours with a reason in tools/lint/exceptions.toml"
                )
                yield Finding("stale-names", path, line, match[1], message)


def problem(name: str, symbols: Symbols, *, in_code: bool) -> str:
    """Return why a name in backticks is stale, empty if it is not."""
    name, _, test = _CALL.sub("", name).partition("::")
    if name.lower().startswith(_FOREIGN):
        return ""
    if _FILE.fullmatch(name) or (_PATH.fullmatch(name) and name.split("/")[0] in symbols.top):
        if name.rstrip("/") not in symbols.paths:
            return "the tree has no such file or folder"
        return f"no code has {test}" if test and test not in symbols.words else ""
    words = name.split(".") if _DOTTED.fullmatch(name) else []
    if not words or symbols.is_library(words[0]):
        return ""
    unknown = (
        f"no code has {word}"
        for word in words
        if word not in symbols.words
        and (_SNAKE.fullmatch(word) or (in_code and _CAMEL.fullmatch(word)))
    )
    return _missing_member(words, symbols, in_code=in_code) or next(unknown, "")


def _missing_member(words: list[str], symbols: Symbols, *, in_code: bool) -> str:
    """Return which part of a dotted name the part before it does not have, empty if all do."""
    first, *rest = words
    if not rest or rest[-1] in _SUFFIXES:
        return ""
    if first in symbols.top:
        return _missing_module(words, symbols) if rest[0].islower() else ""
    if first in symbols.classes:
        missing = not symbols.has_member(first, rest[0])
        return f"class {first} has no member {rest[0]}" if missing else ""
    is_class = _CAMEL.fullmatch(rest[-1]) is not None
    if not in_code or not first.islower() or (first in symbols.variables and not is_class):
        return ""
    if first in symbols.modules:
        missing = rest[0] not in symbols.modules[first]
        return f"module {first} has no {rest[0]}" if missing else ""
    return f"there is no module {first}" if is_class and first not in symbols.imported else ""


def _missing_module(parts: list[str], symbols: Symbols) -> str:
    """Return which part of a dotted path from a package does not exist, empty if all do."""
    for number in range(1, len(parts)):
        module, part = ".".join(parts[:number]), parts[number]
        if module not in symbols.modules:
            return ""
        if part not in symbols.modules[module]:
            return f"module {module} has no {part}"
    return ""


def _parts_of(path: str) -> Iterator[str]:
    """Return the path and each run of folders and names within it."""
    parts = path.split("/")
    for begin, end in combinations(range(len(parts) + 1), 2):
        yield "/".join(parts[begin:end])


def _code(path: str, text: str) -> str:
    """Return a file without its comments."""
    if path.endswith(C_SUFFIXES):
        return COMMENT_OR_STRING.sub(lambda match: " " if match[0][0] == "/" else match[0], text)
    return (SQL_COMMENTS if path.endswith(".sql") else HASH_COMMENTS).sub(" ", text)


def _bound(node: ast.AST) -> Iterator[str]:
    """Return the names that a statement of a module or class defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.AnnAssign | ast.Assign):
        yield from (part.id for part in ast.walk(node) if isinstance(part, ast.Name))
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (name.asname or name.name for name in node.names)
    elif isinstance(node, ast.If | ast.Try):
        for child in ast.iter_child_nodes(node):
            yield from _bound(child)


def _members(owner: ast.ClassDef) -> Iterator[str]:
    """Return methods and fields of a class, and the attributes that its methods assign."""
    for child in owner.body:
        yield from _bound(child)
    for node in ast.walk(owner):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def _last_name(base: ast.expr) -> str:
    """Return the last name of a base class, without its parameters."""
    return ast.unparse(base).split("[")[0].rpartition(".")[2]
