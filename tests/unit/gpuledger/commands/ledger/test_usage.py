"""`usage --by` offers the breakdowns of the projection."""

from gpuledger.commands.ledger.usage import BreakdownOption
from projections.queries.universe_shares import UsageBreakdown


def test_usage_has_every_breakdown_of_the_projection() -> None:
    assert [option.value for option in BreakdownOption] == [
        breakdown.value for breakdown in UsageBreakdown
    ]
