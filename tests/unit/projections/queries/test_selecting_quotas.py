"""Resources and objects that lines of quotas count, by which lines are compared."""

import msgspec
import pytest

from ledger.core.model.traits import Numbered
from projections.queries.quota_usage import Usage
from projections.queries.selecting_quotas import AccountSelection, counted

OWN = Usage("c1", "red", "main", "limits.nvidia.com/gpumem", 9, 0, 0, 0, 9)
SHARED = Usage("", "", "all", "requests.nvidia.com/gpumem", 9, 0, 0, 0, 9)
SELECTS = (Numbered("app", "Exists"),)


def test_account_of_a_line_is_that_of_its_quota() -> None:
    assert OWN.account == "quota/c1/red/main"
    assert SHARED.account == "universe/all"


def test_lines_with_other_prefixes_of_a_resource_count_the_same() -> None:
    assert counted({}, OWN) == counted({}, SHARED)
    other = msgspec.structs.replace(OWN, resource="limits.nvidia.com/gpucores")
    assert counted({}, OWN) != counted({}, other)


@pytest.mark.parametrize(
    "selection", [AccountSelection(None, SELECTS), AccountSelection(None, (), asked_only=True)]
)
def test_lines_with_other_objects_do_not_count_the_same(selection: AccountSelection) -> None:
    assert counted({SHARED.account: selection}, SHARED) != counted({}, OWN)
    both = {SHARED.account: selection, OWN.account: selection}
    assert counted(both, SHARED) == counted(both, OWN)
