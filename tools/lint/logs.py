"""Logs: the one way to make a logger, and constant names of log events."""

import ast
import re
from collections.abc import Iterator
from typing import Final

from tools.lint.findings import Finding
from tools.lint.tree import Tree

LOGGER: Final = "_log"
"""Name of the logger of a module."""

_LOGGERS: Final = (LOGGER, "log", "logger", "_logger")
_METHODS: Final = (
    *("debug", "info", "warning", "error", "exception", "critical"),
    *("fatal", "log", "msg", "warn"),
)
_MAKERS: Final = ("getLogger", "get_logger")
_EVENT: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


def loggers(tree: Tree) -> Iterator[Finding]:
    """Find loggers of the product made otherwise, or with another name than `_log`."""
    for path in tree.python(product=True):
        for node in tree.nodes(path):
            if isinstance(node, ast.Attribute | ast.ImportFrom) and _is_get_logger(node):
                message = 'another logger: write _log: Final = structlog.get_logger("<logger>")'
                yield Finding("loggers", path, node.lineno, "getLogger", message)
            elif isinstance(node, ast.AnnAssign | ast.Assign) and (name := _other_name(node)):
                message = f"the logger is named {name}: name it {LOGGER}, as in all modules"
                yield Finding("loggers", path, node.lineno, name, message)


def log_events(tree: Tree) -> Iterator[Finding]:
    """Find events of the product's log that are not constants in snake_case."""
    for path in tree.python(product=True):
        for node in tree.nodes(path):
            if isinstance(node, ast.Call) and _logs(node.func) and not _is_constant_event(node):
                event = ast.unparse(node.args[0]) if node.args else "nothing"
                message = (
                    f"the log event is {event}: write a constant in snake_case, and pass what "
                    "varies as keyword arguments"
                )
                yield Finding("log-events", path, node.lineno, event, message)


def _is_get_logger(node: ast.Attribute | ast.ImportFrom) -> bool:
    if isinstance(node, ast.ImportFrom):
        return any(name.name in _MAKERS for name in node.names)
    return node.attr == "getLogger"


def _other_name(node: ast.AnnAssign | ast.Assign) -> str:
    """Return the name of a logger if it is not `_log`, else an empty text."""
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    made = node.value.func if isinstance(node.value, ast.Call) else None
    is_logger = isinstance(made, ast.Attribute) and made.attr in _MAKERS
    name = ast.unparse(target).rpartition(".")[2]
    return name if is_logger and name != LOGGER else ""


def _logs(function: ast.expr) -> bool:
    if not isinstance(function, ast.Attribute) or function.attr not in _METHODS:
        return False
    owner = function.value
    while isinstance(owner, ast.Call) and isinstance(owner.func, ast.Attribute):
        owner = owner.func.value  # _log.bind(…)
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name in _LOGGERS


def _is_constant_event(call: ast.Call) -> bool:
    event = call.args[0] if len(call.args) == 1 else None
    return (
        isinstance(event, ast.Constant)
        and isinstance(event.value, str)
        and _EVENT.fullmatch(event.value) is not None
    )
