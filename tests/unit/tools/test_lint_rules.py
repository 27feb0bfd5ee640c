"""Each ratchet of `tools.lint` fails on a planted violation, and passes at its bound."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tools.lint import __main__ as lint
from tools.lint.findings import Finding, Rule
from tools.lint.tree import Tree

Plant = Callable[[dict[str, str]], Path]


def files(count: int) -> dict[str, str]:
    """Return a package of so many files."""
    others = {f"webhook/f{number}.txt": "" for number in range(count - 1)}
    return {"webhook/__init__.py": "", **others}


def function(lines: int) -> str:
    """Return a function of so many lines."""
    return "def f() -> None:\n" + "    pass\n" * (lines - 1)


def c_function(lines: int) -> str:
    """Return a function in C of so many lines."""
    return "static int f(int x) {\n" + "  x++;\n" * (lines - 2) + "}\n"


def constructor(parameters: str) -> str:
    """Return a class whose constructor takes these."""
    return f"class Node:\n    def __init__(self, {parameters}) -> None:\n        pass\n"


def by_name(count: int) -> str:
    """Return so many keyword-only parameters."""
    return "*, " + ", ".join(f"p{number}: int" for number in range(count))


LOG = "_log: Final = structlog.get_logger('webhook')\n"
LONG = "def test_" + "x" * 66 + "() -> None: ...\n"

BINDINGS = [
    "import pods as found",
    "from pods import found",
    "try:\n    pass\nexcept OSError as found:\n    pass",
    "match pod:\n    case found:\n        pass",
    "match pod:\n    case Pod() as found:\n        pass",
    "match pod:\n    case [*found]:\n        pass",
    "match pod:\n    case {**found}:\n        pass",
    "with pods as found:\n    pass",
    "async def f():\n    async for found in pods:\n        pass",
    "f = lambda found: 1",
    "def f(*found): ...",
    "if found := f():\n    pass",
]
"""Statements that bind a name."""

VIOLATIONS = {
    "folder-files": ({**files(16)}, {**files(15)}, "webhook", "16 files, at most 15"),
    "file-lines": (
        {"webhook/a.py": "\n" * 401},
        {"webhook/a.py": "\n" * 400},
        "webhook/a.py",
        "401 lines, at most 400",
    ),
    "function-lines": (
        {"webhook/a.py": function(51)},
        {"webhook/a.py": function(50)},
        "webhook/a.py",
        "f() has 51 lines, at most 50",
    ),
    "function-lines in C": (
        {"vgpu_native/src/a.c": c_function(51)},
        {"vgpu_native/src/a.c": c_function(50)},
        "vgpu_native/src/a.c",
        "f() has 51 lines, at most 50",
    ),
    "function-lines in C of a named type": (
        {"vgpu_native/src/a.c": c_function(51).replace("static int", "CUresult")},
        {"vgpu_native/src/a.c": c_function(50).replace("static int", "CUresult")},
        "vgpu_native/src/a.c",
        "f() has 51 lines, at most 50",
    ),
    "class-names": (
        {"webhook/a.py": "class Node: ...\n", "ledger/b.py": "class Node: ...\n"},
        {"webhook/a.py": "class Node: ...\n", "tests/b.py": "class Node: ...\n"},
        "webhook/a.py",
        "public class Node is defined in ledger/b.py too",
    ),
    "class-names of nested classes": (
        {"webhook/a.py": "if x:\n    class Node: ...\n", "ledger/b.py": "class Node: ...\n"},
        {"webhook/a.py": "class Node: ...\n"},
        "webhook/a.py",
        "public class Node is defined in ledger/b.py too",
    ),
    "base-names": (
        {"webhook/cards.py": "", "ledger/cards.py": ""},
        {"webhook/cards.py": "", "tests/cards.py": ""},
        "webhook/cards.py",
        "base name cards is that of ledger/cards.py too",
    ),
    "test-names": (
        {"tests/test_a.py": LONG},
        {"tests/test_a.py": LONG.replace("test_x", "test_")},
        "tests/test_a.py",
        "has 71 characters, at most 70",
    ),
    "local-names of a loop": (
        {"webhook/a.py": "for one in pods:\n    pass\n"},
        {"webhook/a.py": "for pod in pods:\n    pass\n"},
        "webhook/a.py",
        "one fits any value",
    ),
    "local-names of a parameter": (
        {"tests/a.py": "def f(found: int) -> None: ...\n"},
        {"tests/a.py": "def f(free: int) -> None: ...\n"},
        "tests/a.py",
        "found fits any value",
    ),
    "local-names of a function": (
        {"tests/a.py": "def found() -> None: ...\n"},
        {"tests/a.py": "def f() -> None: ...\n"},
        "tests/a.py",
        "found fits any value",
    ),
    **{
        f"local-names {number}": (
            {"webhook/a.py": f"{text}\n"},
            {"webhook/a.py": f"{text.replace('found', 'pod')}\n"},
            "webhook/a.py",
            "found fits any value",
        )
        for number, text in enumerate(BINDINGS)
    },
    "loggers": (
        {"webhook/a.py": "_log = logging.getLogger(__name__)\n"},
        {"webhook/a.py": LOG, "tests/b.py": "logging.getLogger()\n"},
        "webhook/a.py",
        "write _log: Final = structlog.get_logger",
    ),
    "loggers by import": (
        {"webhook/a.py": "from logging import getLogger\n"},
        {"webhook/a.py": "from logging import DEBUG\n"},
        "webhook/a.py",
        "write _log: Final = structlog.get_logger",
    ),
    "loggers by another name": (
        {"webhook/a.py": LOG.replace("_log:", "_logger:")},
        {"webhook/a.py": LOG},
        "webhook/a.py",
        "the logger is named _logger: name it _log",
    ),
    "loggers of attributes": (
        {"webhook/a.py": "self.logger = structlog.get_logger('webhook')\n"},
        {"webhook/a.py": "self._log = structlog.get_logger('webhook')\n"},
        "webhook/a.py",
        "the logger is named logger: name it _log",
    ),
    "loggers by import of the maker": (
        {"webhook/a.py": "from structlog import get_logger\n"},
        {"webhook/a.py": "import structlog\n"},
        "webhook/a.py",
        "write _log: Final = structlog.get_logger",
    ),
    "log-events of bound loggers": (
        {"webhook/a.py": "_log.bind(pod=1).info('pod passed')\n"},
        {"webhook/a.py": "_log.bind(pod=1).info('pod_passed')\n"},
        "webhook/a.py",
        "the log event is 'pod passed'",
    ),
    "log-events by a synonym": (
        {"webhook/a.py": "_log.warn('pod passed')\n"},
        {"webhook/a.py": "_log.warn('pod_passed')\n"},
        "webhook/a.py",
        "the log event is 'pod passed'",
    ),
    "log-events with spaces": (
        {"webhook/a.py": "_log.info('pod passed', pod=1)\n"},
        {"webhook/a.py": "_log.info('pod_passed', pod=1)\n"},
        "webhook/a.py",
        "the log event is 'pod passed'",
    ),
    "log-events with values": (
        {"webhook/a.py": "self._log.info(f'pod_{name}')\n"},
        {"webhook/a.py": "self._log.info('pod_passed', name=name)\n"},
        "webhook/a.py",
        "pass what varies as keyword arguments",
    ),
    "log-events with positions": (
        {"webhook/a.py": "_log.info('pod_passed', name)\n"},
        {"webhook/a.py": "_log.info('pod_passed', name=name)\n"},
        "webhook/a.py",
        "pass what varies as keyword arguments",
    ),
    "constructors of many": (
        {"webhook/a.py": constructor(by_name(11))},
        {"webhook/a.py": constructor(by_name(10))},
        "webhook/a.py",
        "Node() takes 11 parameters, at most 10",
    ),
    "constructors by position": (
        {"webhook/a.py": constructor("a: int, b: int, c: int")},
        {"webhook/a.py": constructor("a: int, b: int, *, c: int")},
        "webhook/a.py",
        "Node() takes 3 positional parameters, at most 2",
    ),
    "spelling": (
        {"README.md": "The ledger recieves it.\n"},
        {"README.md": "The ledger receives it.\n"},
        "README.md",
        "'recieves' looks like a mistake for receives",
    ),
    "spelling of a Dockerfile": (
        {"deploy/Dockerfile": "# The ledger recieves it.\n"},
        {"deploy/Dockerfile": "# The ledger receives it.\n"},
        "deploy/Dockerfile",
        "'recieves' looks like a mistake for receives",
    ),
    "stale-names": (
        {"README.md": "See `open_gate`.\n", "webhook/a.py": "def open_gates(): ...\n"},
        {"README.md": "See `open_gates`.\n", "webhook/a.py": "def open_gates(): ...\n"},
        "README.md",
        "no code has open_gate",
    ),
}
"""A planted violation, the same within the bound, and path and message of the finding."""


@pytest.mark.parametrize("case", VIOLATIONS)
def test_rule_finds_a_planted_violation_and_accepts_the_bound(case: str, plant: Plant) -> None:
    planted, accepted, path, message = VIOLATIONS[case]
    root = plant(planted)
    name = case.split(" ")[0]
    reported = [finding for finding in findings(root, name) if finding.path == path]
    assert [(finding.rule, message in finding.message) for finding in reported] == [(name, True)]
    for planted_path in planted:
        (root / planted_path).unlink()
    assert findings(plant(accepted), name) == []


def test_every_rule_has_a_planted_violation() -> None:
    with_words = {name.split(" ")[0] for name in VIOLATIONS} | {"words"}
    assert with_words == {name_of(rule) for rule in lint.rules()}


def test_files_that_git_ignores_do_not_count(plant: Plant) -> None:
    root = plant({".gitignore": "build/\n", "build/a.py": "\n" * 500})
    assert findings(root, "file-lines") == []


def findings(root: Path, name: str) -> list[Finding]:
    """Return the findings of one rule."""
    rules = {name_of(rule): rule for rule in lint.rules()}
    return list(rules[name](Tree(root)))


def name_of(rule: Rule) -> str:
    """Return the name under which a rule reports."""
    function = getattr(rule, "func", rule)
    return "words" if function.__name__ == "_find" else function.__name__.replace("_", "-")
