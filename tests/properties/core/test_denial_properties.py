"""Denials: every number of the text is true, and what it advises is admitted and no more is.

The numbers are read back from the text. Each admission is decided again, on the state as it is, on
one where others have released the amounts of the text, and on one that others have left.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
from support.builders.quota_commands import tell
from support.generators.random_commands import random_commands
from support.oracles.denial_text_reader import Advice, Line, advice_of, lines_of

from ledger.core import snapshot_format
from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.accounts import AccountKind, kind, parts, resource_of
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Asker, End, Refute, Reserve
from ledger.core.model.denials import Denial, Reason, brief, sentence
from ledger.core.model.qualified_names import split_qualified
from ledger.core.model.state import Hold, State, put_line

SEEDS, STEPS = 16, 120


def asking(command: Reserve, source: random.Random) -> Reserve:
    """Return a reservation of a workload, or of a pod, as a webhook would ask."""
    if command.key.startswith("pods/"):
        return command
    pods = source.randint(1, 4)
    demand = {name: amount * pods for name, amount in command.demand.items()}
    asker = Asker("Deployment", pods, replicas=source.random() < 0.5)
    return msgspec.structs.replace(command, demand=demand, asker=asker)


def refused(state: State, command: Reserve, demand: Amounts | None = None) -> Denial | None:
    """Return the denial for want of room of a command, or of the same with another demand."""
    if demand is not None:
        known = {name: amount for name, amount in demand.items() if amount}
        command = msgspec.structs.replace(command, demand=known, asker=Asker())
    decision = decide(state, msgspec.structs.replace(command, owner=""))
    return decision if isinstance(decision, Denial) and decision.shortages else None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_text_of_a_denial_is_true(seed: int) -> None:
    told = Counter(_checked(seed))
    assert told["denials"], told


def test_every_form_of_advice_is_among_them() -> None:
    told: Counter[str] = Counter()
    for seed in range(SEEDS, SEEDS + 16):
        told.update(_checked(seed))
    assert not [form for form in ("never", "released", *Advice._fields[2:]) if not told[form]], told


def _checked(seed: int) -> Iterator[str]:
    """Live a life, look at each of its denials and yield their facts."""
    source, state = random.Random(seed), State()
    for step in random_commands(seed, STEPS):
        command = asking(step, source) if isinstance(step, Reserve) else step
        if isinstance(command, Reserve) and not command.forced:
            denial = refused(state, command)
            if denial is not None:
                before = snapshot_format.encode(state)
                yield from _look_at(state, command, denial)
                assert snapshot_format.encode(state) == before
        tell(state, command)


def _look_at(state: State, command: Reserve, denial: Denial) -> Iterator[str]:
    text = sentence(denial)
    lines, advice = lines_of(text), advice_of(text)
    assert lines == list(dict.fromkeys(lines)), text
    for line in lines:
        _look_at_line(state, command, line, text)
    assert advice.never == (denial.reason is Reason.EXCEEDS_LIMIT) == (not denial.transient), text
    assert brief(denial).startswith(text.partition(": ")[0]), text
    short = {line.resource for line in lines}
    _look_at_now(state, command, advice, short, text)
    if advice.never:
        with emptied(state, command) as alone:
            assert refused(alone, command), text
            alike = advice.pods_now is None and advice.now is None
            _look_at_ever(state if alike else alone, command, advice, short, text)
    elif advice.held_back:
        with emptied(state, command) as alone:
            assert not refused(_unseen(alone, command), command), text
    elif advice.released:
        _look_at_released(state, command, lines, advice, text)
    yield "denials"
    yield from (name for name in Advice._fields if getattr(advice, name))


def _look_at_line(state: State, command: Reserve, line: Line, text: str) -> None:
    numbers = _numbers_of(state, command, line)
    assert numbers, text
    assert line.product in (None, line.total), text
    assert not line.lack or (line.lack == "no") == (line.used >= line.limit), text
    [increase] = {_increase(state, command, number) for number in numbers}
    own = {line.own} if line.own else {0, line.used}
    if line.used > line.limit and not increase:
        return  # beyond an envelope of which a part was never asked for
    assert increase in {line.total - amount for amount in own}, text
    assert line.used + increase > line.limit, text


def _numbers_of(state: State, command: Reserve, line: Line) -> list[int]:
    """Return the numbers of the lines that a sentence is true of."""
    cluster, namespace = split_qualified(command.namespace)
    wanted = AccountKind.UNIVERSE if line.is_universe else AccountKind.QUOTA
    place = ("", "") if line.is_universe else (cluster, namespace)
    return [
        number
        for number, (account, key) in enumerate(state.names)
        if kind(account) is wanted
        and parts(account) == (*place, line.quota)
        and account in state.accounts
        and state.accounts[account].lines.get(key) == number
        and resource_of(key) == line.resource
        and (state.limit[number], state.used[number]) == (line.limit, line.used)
    ]


def _increase(state: State, command: Reserve, number: int) -> int:
    """Return by how much a line rises when the command is admitted without limits."""
    before = state.used[number]
    with state.trying():
        decision = decide(state, msgspec.structs.replace(command, forced=True))
        assert not isinstance(decision, Denial)
        for event in decision:
            evolve(state, event, state.time)
        return state.used[number] - before


def _look_at_now(
    state: State, command: Reserve, advice: Advice, short: set[str], text: str
) -> None:
    if advice.pods_now is not None:
        _look_at_pods(state, command, advice.pods_now, text)
    if advice.now is not None:
        demand = _demand(command, advice)
        _look_at_amounts(state, command, demand, dict.fromkeys(short, 0) | advice.now, text)


def _look_at_ever(
    alone: State, command: Reserve, advice: Advice, short: set[str], text: str
) -> None:
    if advice.pods_ever is not None:
        _look_at_pods(alone, command, advice.pods_ever, text)
    if advice.ever is not None:
        demand = _demand(command, advice)
        _look_at_amounts(alone, command, demand, dict.fromkeys(short, 0) | advice.ever, text)


def _demand(command: Reserve, advice: Advice) -> Amounts:
    """Return the demand that amounts are about: that of the object, or of one of its pods."""
    pods = command.asker.pods if advice.single else 1
    return {name: amount // pods for name, amount in command.demand.items()}


def _look_at_pods(state: State, command: Reserve, pods: int, text: str) -> None:
    each = {name: amount // command.asker.pods for name, amount in command.demand.items()}
    if pods:
        assert not refused(
            state, command, {name: pods * amount for name, amount in each.items()}
        ), text
    assert pods < command.asker.pods, text
    more = {name: (pods + 1) * amount for name, amount in each.items()}
    assert refused(state, command, more), text


def _look_at_amounts(
    state: State, command: Reserve, demand: Amounts, amounts: Amounts, text: str
) -> None:
    fits = {**demand, **amounts}
    if any(amounts.values()):
        assert not refused(state, command, fits), text
    for name, amount in amounts.items():
        if amount < demand.get(name, 0):
            assert refused(state, command, {**fits, name: amount + 1}), text


def _look_at_released(
    state: State, command: Reserve, lines: list[Line], advice: Advice, text: str
) -> None:
    """Look whether it fits when so much is released on every short line, and with less not."""
    assert advice.released.keys() == {line.resource for line in lines}, text
    numbered = [(line, number) for line in lines for number in _numbers_of(state, command, line)]
    short = [(*pair, _increase(state, command, pair[1])) for pair in numbered]
    with state.trying():
        for line, number, rise in short:
            others = line.used - (line.total - rise if rise else 0)
            less = min(advice.released[line.resource], others)
            put_line(state, state.used, number, line.used - less)
        assert not refused(state, command), text
        for line, number, rise in short:
            if line.used + rise - line.limit == advice.released[line.resource]:
                with state.trying():
                    put_line(state, state.used, number, state.used[number] + 1)
                    assert refused(state, command), text


@contextmanager
def emptied(state: State, command: Reserve) -> Iterator[State]:
    """Return a state that all objects have left but the one that asks and what it draws from."""
    alone = snapshot_format.decode(snapshot_format.encode(state))
    own = _kept(state, command)
    for namespace, space in list(alone.namespaces.items()):
        for key, entry in list(space.entries.items()):
            for body in entry.bodies():
                if (namespace, key) == (command.namespace, command.key):
                    base = body.base if isinstance(body, Hold) else command.base
                    gone = body.uid != command.uid
                    if not gone and base != command.base:
                        tell(alone, Refute(namespace, key, body.uid, base))
                else:
                    gone = namespace != command.namespace or key not in own
                if gone:
                    tell(alone, End(namespace, key, body.uid, 0, "deleted"))
    alone.ended.clear()
    alone.ended_order.clear()
    yield alone


def _unseen(alone: State, command: Reserve) -> State:
    """Return the state without what the object was."""
    tell(alone, End(command.namespace, command.key, command.uid, 0, "deleted"))
    alone.ended.clear()
    alone.ended_order.clear()
    return alone


def _kept(state: State, command: Reserve) -> set[str]:
    """Return the keys of the roots that an object draws from."""
    entry = state.entry(command.namespace, command.key)
    mine = [
        body
        for body in (() if entry is None else entry.bodies())
        if body.uid == command.uid and getattr(body, "base", command.base) == command.base
    ]
    return {command.root, *(body.root for body in mine)}
