"""HAMi cases: each behaviour of HAMi, with gpuledger's tests for it or the difference."""

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec
from support.recorded.hami_examples import Example

ROOT: Final = Path(__file__).parents[3]
CASES: Final = ROOT / "tests" / "fixtures" / "hami"
PAGE: Final = ROOT / "docs" / "reference" / "hami-differences.md"

_HEADING: Final = re.compile(r"## (.+)")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A behaviour of HAMi.

    Without a `difference`, which names a row of the page as `section: first cell`, ours is the
    same. `tests` show what ours does, by path and function, and so do `examples`.
    """

    id: str
    hami: str
    tests: list[str] = []
    difference: str = ""
    examples: list[Example] = []


def cases() -> list[Case]:
    """Return all cases, file by file."""
    all_cases: list[Case] = []
    for path in sorted(CASES.glob("*.toml")):
        all_cases += msgspec.convert(tomllib.loads(path.read_text())["case"], list[Case])
    return all_cases


def rows_of(page: str) -> list[str]:
    """Return the rows of a page's tables as `section: first cell`, without code marks and links."""
    rows, section = [], ""
    for line in page.splitlines():
        if heading := _HEADING.fullmatch(line):
            section = heading[1]
        elif line.startswith("| ") and not line.startswith("| |"):
            first = line.split(" | ")[0].removeprefix("| ").replace("`", "")
            text = _LINK.sub(r"\1", first)
            rows.append(f"{section}: {text}")
    return rows


def counts_of(all_cases: Iterable[Case]) -> tuple[int, int, int]:
    """Return how many cases there are, how many are the same, and how many differ."""
    differ = [bool(case.difference) for case in all_cases]
    return len(differ), len(differ) - sum(differ), sum(differ)


def summary(all_cases: Iterable[Case]) -> str:
    """Return the sentence of the page that counts the cases."""
    every, same, differ = counts_of(all_cases)
    return (
        f"{every} cases. In {same} of them gpuledger behaves the same, and each case names the"
        f" tests that show it. The other {differ} differ, and each names its row in these tables."
    )


def problems(all_cases: list[Case], page: str) -> list[str]:
    """Return where cases, tests and page do not agree."""
    rows = rows_of(page)
    named = {case.difference for case in all_cases}
    problems = [f"{name}: the id is given twice" for name in _twice(case.id for case in all_cases)]
    problems += [f"{row}: the row is there twice" for row in _twice(rows)]
    problems += [f"{row}: no case names the row" for row in rows if row not in named]
    if summary(all_cases) not in " ".join(page.split()):
        problems.append(f"the page lacks: {summary(all_cases)}")
    for case in all_cases:
        problems += [f"{case.id}: {problem}" for problem in _of(case, rows)]
    return problems


def _of(case: Case, rows: list[str]) -> list[str]:
    problems = [f"{test} is no test" for test in case.tests if not _is_test(test)]
    if case.difference and case.difference not in rows:
        problems.append(f"the page has no row {case.difference!r}")
    if not (case.tests or case.examples):
        problems.append("neither a test nor an example shows what ours does")
    if not case.hami.endswith(".") or _ID.fullmatch(case.id) is None:
        problems.append("write a sentence for it, and an id of small letters and hyphens")
    return problems


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _is_test(name: str) -> bool:
    path, _, function = name.partition("::")
    return function in _tests_in(path)


@lru_cache
def _tests_in(path: str) -> frozenset[str]:
    """Return the tests that a file has, none where there is no such file."""
    file = ROOT / path
    if not (file.is_file() and file.name.startswith("test_")):
        return frozenset()
    functions = (
        node.name
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return frozenset(name for name in functions if name.startswith("test_"))
