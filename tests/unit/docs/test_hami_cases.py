"""Every behaviour of HAMi is tested, and each difference is in the page, as its rows are cases."""

import pytest
from msgspec import structs
from support.recorded.hami_cases import PAGE, Case, cases, problems, rows_of, summary

ALL = cases()


def test_cases_tests_and_page_agree() -> None:
    assert problems(ALL, PAGE.read_text()) == []


def changed(number: int, **fields: object) -> list[Case]:
    """Return all cases, one of them changed."""
    return [structs.replace(case, **fields) if case is ALL[number] else case for case in ALL]


@pytest.fixture
def same() -> int:
    """Return the number of a case in which ours is the same."""
    return next(number for number, case in enumerate(ALL) if case.tests and not case.difference)


@pytest.fixture
def differs() -> int:
    """Return the number of a case whose row no other names."""
    rows = [case.difference for case in ALL]
    return next(number for number, row in enumerate(rows) if row and rows.count(row) == 1)


@pytest.mark.parametrize(
    "name",
    [
        "tests/unit/docs/test_hami_cases.py::test_that_is_not_there",
        "tests/unit/docs/test_not_there.py::test_cases_tests_and_page_agree",
        "tests/unit/docs/test_hami_cases.py::changed",
        "tests/unit/docs/test_hami_cases.py",
    ],
)
def test_a_test_that_is_not_there_is_found(same: int, name: str) -> None:
    mistakes = problems(changed(same, tests=[name]), PAGE.read_text())
    assert mistakes == [f"{ALL[same].id}: {name} is no test"]


def test_a_row_that_is_not_there_is_found(differs: int) -> None:
    mistakes = problems(changed(differs, difference="Binding: nothing"), PAGE.read_text())
    assert mistakes == [
        f"{ALL[differs].difference}: no case names the row",
        f"{ALL[differs].id}: the page has no row 'Binding: nothing'",
    ]


def test_a_row_that_no_case_names_is_found() -> None:
    page = PAGE.read_text() + "| `something` new | one | another | |\n"
    [mistake] = problems(ALL, page)
    assert mistake.endswith(": something new: no case names the row")


def test_a_row_that_is_there_twice_is_found() -> None:
    page = PAGE.read_text()
    row = next(line for line in reversed(page.splitlines()) if line.startswith("| "))
    assert problems(ALL, f"{page}{row}\n") == [f"{rows_of(page)[-1]}: the row is there twice"]


def test_a_case_that_nothing_shows_is_found(differs: int) -> None:
    [mistake] = problems(changed(differs, tests=[], examples=[]), PAGE.read_text())
    assert mistake == f"{ALL[differs].id}: neither a test nor an example shows what ours does"


def test_an_id_that_is_given_twice_is_found(same: int, differs: int) -> None:
    [mistake] = problems(changed(same, id=ALL[differs].id), PAGE.read_text())
    assert mistake == f"{ALL[differs].id}: the id is given twice"


def test_counts_that_are_not_true_are_found(same: int) -> None:
    fewer = [case for case in ALL if case is not ALL[same]]
    assert problems(fewer, PAGE.read_text()) == [f"the page lacks: {summary(fewer)}"]
