"""Line charges: the change of the used amounts of lines, and the rule that each change obeys.

The **postings** of a change are a flat list `[line, delta, used after, …]` of the changed lines, in
order of line numbers.
"""

from collections.abc import Set
from typing import Final

from ledger.core.model.amounts import Amounts
from ledger.core.model.state import POSTINGS, Plan, State, put_line, take_back

Postings = list[int]

TRUTH: Final = 0
"""A charge that may go over a limit: what exists is charged."""
WITHIN_LIMITS: Final = 1
"""A charge that may rise up to the limit."""
FALLING: Final = 2
"""A charge that may not rise."""


class InvariantError(Exception):
    """An event contradicts the state it is applied to: the log or the code is wrong."""


def post_change(state: State, plan: Plan, before: Amounts, after: Amounts, rule: int) -> Postings:
    """Charge the difference of two amounts to every line of a plan.

    Raises InvariantError, with nothing charged, when a line would break the rule.
    """
    if before is after:
        return []
    if not before and rule != FALLING:
        return _begin(state, plan, after, rule)
    if not after:
        return _end(state, plan, before)
    postings: Postings = []
    used, limit = state.used, state.limit
    resources, lines = plan
    for at, resource in enumerate(resources):
        delta = after.get(resource, 0) - before.get(resource, 0)
        if delta:
            line = lines[at]
            new = used[line] + delta
            if new < 0 or (delta > 0 and rule and (rule == FALLING or new > limit[line])):
                raise _refused(state, postings, line, new)
            used[line] = new
            postings += (line, delta, new)
    if postings and state.journal is not None:
        state.journal.append((used, POSTINGS, postings))
    return postings


def _begin(state: State, plan: Plan, after: Amounts, rule: int) -> Postings:
    """Charge amounts where nothing was charged, by a rule other than `FALLING`.

    Most changes are this or `_end`; see `post_change`.
    """
    postings: Postings = []
    used, limit = state.used, state.limit
    resources, lines = plan
    # `zip` with its keyword takes a third longer.
    for at, resource in enumerate(resources):
        delta = after.get(resource)
        if delta:
            line = lines[at]
            new = used[line] + delta
            if rule and new > limit[line]:
                raise _refused(state, postings, line, new)
            used[line] = new
            postings += (line, delta, new)
    if postings and state.journal is not None:
        state.journal.append((used, POSTINGS, postings))
    return postings


def _end(state: State, plan: Plan, before: Amounts) -> Postings:
    """Discharge all amounts; see `post_change`."""
    postings: Postings = []
    used = state.used
    resources, lines = plan
    for at, resource in enumerate(resources):
        delta = before.get(resource)
        if delta:
            line = lines[at]
            new = used[line] - delta
            if new < 0:
                raise _refused(state, postings, line, new)
            used[line] = new
            postings += (line, -delta, new)
    if postings and state.journal is not None:
        state.journal.append((used, POSTINGS, postings))
    return postings


def post_lines(
    state: State,
    old: dict[int, int],
    new: dict[int, int],
    rule: int,
    selecting: Set[int],
) -> Postings:
    """Charge the difference of two sums by line; see `post_change`.

    A line that selects may rise though the charge falls: pods count by their own traits when their
    root goes.
    """
    postings: Postings = []
    for line in sorted(old.keys() | new.keys()):
        delta = new.get(line, 0) - old.get(line, 0)
        if not delta:
            continue
        after = state.used[line] + delta
        if rule == FALLING:
            forbidden = line not in selecting
        else:
            forbidden = rule == WITHIN_LIMITS and after > state.limit[line]
        if after < 0 or (delta > 0 and forbidden):
            raise _broken(state, line, after)
        postings += (line, delta, after)
    for index in range(0, len(postings), 3):
        put_line(state, state.used, postings[index], postings[index + 2])
    return postings


def merged(earlier: Postings, other: Postings) -> Postings:
    """Return the postings of two changes, of which `other` came later, as those of one."""
    if not other:
        return earlier
    changes: dict[int, tuple[int, int]] = {}
    for postings in (earlier, other):
        for index in range(0, len(postings), 3):
            line, delta, after = postings[index : index + 3]
            changes[line] = changes.get(line, (0, 0))[0] + delta, after
    return [
        value for line in sorted(changes) if changes[line][0] for value in (line, *changes[line])
    ]


def _refused(state: State, postings: Postings, line: int, new: int) -> InvariantError:
    """Take the earlier postings of a change back; return the error of the line."""
    take_back(state.used, postings)
    return _broken(state, line, new)


def _broken(state: State, line: int, new: int) -> InvariantError:
    account, key = state.names[line]
    return InvariantError(
        f"{key} of {account} would go from {state.used[line]} to {new}"
        f" with a limit of {state.limit[line]}"
    )
