"""What `usage --by` offers is what the projection can answer."""

from gpuledger.commands.ledger.usage import BreakdownOption
from projections.queries.shares import UsageBreakdown


def test_usage_can_be_broken_down_by_all_that_the_projection_knows() -> None:
    assert [one.value for one in BreakdownOption] == [one.value for one in UsageBreakdown]
