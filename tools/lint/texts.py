"""Texts that people read in a tree: documents, docstrings, comments and messages."""

import ast
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from tools.lint.tree import Tree, is_product, is_test

_FENCE: Final = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`[^`]*`")
_TARGET: Final = re.compile(r"(?<=\])\([^)]*\)|https?://[^\s`]+")
COMMENT_OR_STRING: Final = re.compile(
    r"""/\*.*?\*/|//[^\n]*(?:\n[ \t]*//[^\n]*)*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
HASH_COMMENTS: Final = re.compile(r"(?:(?:^|(?<=[\s@]))#+ .*(?:\n[ \t]*(?=# ))?)+", re.MULTILINE)
SQL_COMMENTS: Final = re.compile(r"(?:--.*(?:\n[ \t]*(?=--))?)+")
_MARKS: Final = re.compile(r"(?<=\n)[ \t]*(?:\*|//|#|--)(?= )")
C_SUFFIXES: Final = (".c", ".h", ".S")
_HASHED: Final = (
    *(".yaml", ".yml", ".toml", ".sh", ".mk", ".conf", "Makefile", "Dockerfile", "run"),
    *(".gitignore", ".dockerignore", ".gitattributes"),
)
_WORDS: Final = re.compile(r"\w\s+[\w%]")


class Text(NamedTuple):
    """One piece of prose and the line it begins on."""

    path: str
    line: int
    text: str


def texts(tree: Tree) -> Iterator[Text]:
    """Return all prose of a tree; code within it is blanked."""
    for text in passages(tree):
        yield text._replace(text=_plain(text.text))


def passages(tree: Tree) -> Iterator[Text]:
    """Return all prose of a tree, with the code in backticks within it; fenced code is blanked."""
    for path in tree.paths:
        if path.endswith(".md"):
            yield Text(path, 1, _FENCE.sub(_blanked, tree.text(path)))
        elif path.endswith(".py"):
            yield from _python(tree, path)
        elif path.endswith(C_SUFFIXES):
            yield from _c(path, tree.text(path))
        elif path.endswith(_HASHED):
            yield from _configuration(path, tree.text(path))
        elif path.endswith(".sql"):
            yield from _matches(SQL_COMMENTS, path, tree.text(path))


def _python(tree: Tree, path: str) -> Iterator[Text]:
    """Return docstrings and comments, names of tests, and messages of the product."""
    nodes = tree.nodes(path)
    spans = [node for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr)]
    inside = {id(part) for node in spans if isinstance(node, ast.JoinedStr) for part in node.values}
    documented = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in spans:
        value = _value(node)
        is_read = id(node) in documented or (is_product(path) and _WORDS.search(value))
        if is_read and id(node) not in inside:
            yield Text(path, node.lineno, value)
    yield from _comments(path, tree.text(path), spans)
    if is_test(path):
        for function, _owner in tree.functions(path):
            if function.name.startswith("test_"):
                yield Text(path, function.lineno, function.name.replace("_", " "))


def _value(node: ast.Constant | ast.JoinedStr) -> str:
    """Return the text of a string, with `x` for each value of an f-string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_value(part) if isinstance(part, ast.Constant) else "x" for part in node.values)


def _comments(path: str, source: str, spans: list[ast.Constant | ast.JoinedStr]) -> Iterator[Text]:
    """Return the comments of Python code; those on lines that follow one another are one text."""
    kept, last = "", 0
    for number, text in _hashes(source, spans):
        if kept and number != last + 1:
            yield Text(path, last - kept.count("\n"), kept)
            kept = ""
        kept, last = f"{kept}\n{text}" if kept else text, number
    if kept:
        yield Text(path, last - kept.count("\n"), kept)


def _hashes(source: str, spans: list[ast.Constant | ast.JoinedStr]) -> Iterator[tuple[int, str]]:
    """Return line number and text of each comment: the rest of a line after a `#`."""
    if "#" not in source:
        return
    occupied = [
        ((node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0))
        for node in spans
    ]
    for number, line in enumerate(source.encode().split(b"\n"), 1):
        at = line.find(b"#")
        while at >= 0 and any(begin <= (number, at) < end for begin, end in occupied):
            at = line.find(b"#", at + 1)
        if at >= 0:
            yield number, line[at + 1 :].decode(errors="replace").strip()


def _c(path: str, source: str) -> Iterator[Text]:
    """Return the comments of C code, and the messages of the product."""
    for match in COMMENT_OR_STRING.finditer(source):
        text, line = match[0], source.count("\n", 0, match.start()) + 1
        if text.startswith("/"):
            yield Text(path, line, _MARKS.sub("", text))
        elif is_product(path) and _WORDS.search(text):
            yield Text(path, line, text)


def _configuration(path: str, source: str) -> Iterator[Text]:
    """Return the comments of a file that begins them with `#`, and descriptions of a schema."""
    if "/crds/" in path:
        yield Text(path, 1, source)
        return
    yield from _matches(HASH_COMMENTS, path, source)


def _matches(comments: re.Pattern[str], path: str, source: str) -> Iterator[Text]:
    """Return each match of a pattern for comments, without the marks that begin its lines."""
    for match in comments.finditer(source):
        yield Text(path, source.count("\n", 0, match.start()) + 1, _MARKS.sub("", match[0]))


def _plain(text: str) -> str:
    """Blank code and addresses; line breaks stay."""
    return _CODE.sub(_blanked, _TARGET.sub(_blanked, text))


def _blanked(match: re.Match[str]) -> str:
    return "x" + "\n" * match[0].count("\n")
