"""Shrinking: the shortest script that still breaks the same rule.

Operations are left out, first many at a time and then one by one, as long as the violation remains.
A shorter script is another run, because the rest of a run depends on the seed and on the remaining
operations. It only has to break the same rule.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from simulation.model.operations import Operation
from simulation.run import Result, run_script
from simulation.script.script import Script

RUNS_MAX: Final = 250
"""Runs that finding a shorter script may take."""


def shrink(plan: Script, known: Result, defects: Sequence[str] = ()) -> tuple[Script, Result]:
    """Return a script with as few operations as can be found, and its result."""
    runs = 0
    size = max(1, len(plan.operations) // 2)
    while size:
        shorter = None
        for operations in _without(plan.operations, size):
            runs += 1
            if runs > RUNS_MAX:
                return plan, known
            tried = msgspec.structs.replace(plan, operations=operations)
            result = run_script(tried, defects)
            if _breaks_the_same_rule(result, known):
                shorter = tried, result
                break
        if shorter is None:
            size //= 2
        else:
            plan, known = shorter
            size = min(size, len(plan.operations) // 2) or 1
            if not plan.operations:
                break
    return plan, known


def _without(operations: Sequence[Operation], size: int) -> Iterator[tuple[Operation, ...]]:
    """Yield the operations without `size` of them in a row, for every place, the last first."""
    for start in range(max(0, len(operations) - size), -size, -size):
        first = max(0, start)
        yield (*operations[:first], *operations[first + size :])


def _breaks_the_same_rule(result: Result, known: Result) -> bool:
    rules = [
        outcome.violation.rule if outcome.violation is not None else ""
        for outcome in (result, known)
    ]
    return rules[0] == rules[1]
