"""Scenarios of a what-if: recorded arrivals on other nodes, by other preferences or limits."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import typer
from msgspec import structs

from extender.analysis.arrival_replay import (
    ChooseSeat,
    Replay,
    ReplayOutcome,
    as_recorded,
    by_preferences,
)
from extender.analysis.arrivals import Arrival, ArrivalRecorder, Fleet
from extender.fit.inventory_fit import FitPreferences
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.progress import Progress, bar
from gpuledger.queries.what_if_limits import LimitResult, LimitTrial, TriedLimit
from gpuledger.storage.open_log import OpenLog, open_log
from gpuledger.storage.past_ledger import position_of
from gpuledger.storage.time_ranges import moment_of, ordered
from gpuledger.wiring.extender_from_settings import extender_settings
from ledger.core.model import accounts
from ledger.core.model.cards import Card
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Log, Lost
from ledger.log.recovery.replay import state_at
from ledger.runtime.settings.settings import Settings
from projections.queries.moments import Moment, microseconds, rfc3339

DAY: Final = timedelta(days=1)
"""Default range of arrivals, for a question without a beginning."""

ARRIVALS_MAX: Final = 1_000_000
"""Most arrivals of a replay; a question about more must have a shorter range."""


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LIMIT: Final = re.compile(r"(?:([^/:]+)/)?([^/:]+):([^=:]+)=([0-9]{1,18})")


class WhatIfQuestion(msgspec.Struct, frozen=True):
    """A question: the range of the log, and the changes.

    `nodes` are `+COUNT=NODE`, `without` names of nodes, and `limits` `NAMESPACE/QUOTA:KEY=AMOUNT`
    or `QUOTA:KEY=AMOUNT`. With `keep_types` pods stay on the type of card that they had.
    """

    since: str = ""
    until: str = ""
    nodes: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    keep_types: bool = False


class Scenario(msgspec.Struct, frozen=True):
    """The outcome of the arrivals: `recorded`, `replayed` with the present settings, or `what-if`.

    `not_created` of them would have been refused by another limit.
    """

    name: str
    not_created: int
    outcome: ReplayOutcome


class WhatIfReport(msgspec.Struct, frozen=True):
    """The scenarios of the positions `first` to `last` of the log.

    `arrivals` pods got cards in that time or had cards at its beginning; `unbound` more pods got
    cards and were not bound.
    """

    first: int
    last: int
    since: str
    until: str
    arrivals: int
    unbound: int
    scenarios: list[Scenario]
    limits: list[LimitResult]


class _LogRange(msgspec.Struct):
    """The range of the log by positions and times, and its counters."""

    first: int
    last: int
    begin: int
    end: int
    recording: ArrivalRecorder
    trial: LimitTrial


async def run_scenarios(
    before: Settings, settings: Settings, question: WhatIfQuestion
) -> WhatIfReport:
    """Answer a question, for settings that replace those before.

    Raises CommandError, and the errors of opening and reading the log.
    """
    ordered(question.since, question.until)
    usual, other = _preferences(before), _preferences(settings)
    limits = tuple(_limit(settings.cluster, text) for text in question.limits)
    async with open_log(settings) as opened:
        read = await _read(opened, settings.cluster, question, limits)
    arrivals = read.recording.arrivals()
    if len(arrivals) > ARRIVALS_MAX:
        raise CommandError(
            Exit.USAGE,
            f"{len(arrivals)} arrivals are more than {ARRIVALS_MAX}: give a later --since",
        )
    return WhatIfReport(
        read.first,
        read.last,
        rfc3339(read.begin),
        rfc3339(read.end),
        len(arrivals),
        read.recording.unbound,
        list(_scenarios(read, arrivals, (usual, other), question)),
        read.trial.results(),
    )


def _scenarios(
    read: _LogRange,
    arrivals: list[Arrival],
    preferences: tuple[FitPreferences, FitPreferences],
    question: WhatIfQuestion,
) -> Iterator[Scenario]:
    """Yield three scenarios: the recorded one, its replay, and one with the changes."""
    fleet, (usual, other) = read.recording.fleet, preferences
    chosen = partial(by_preferences, fleet=fleet, keep_types=question.keep_types)
    yield _scenario("recorded", read, fleet, arrivals, as_recorded)
    yield _scenario("replayed", read, fleet, arrivals, chosen(usual))
    fleet = with_copies(fleet, question.nodes, question.without)
    created = [arrival for arrival in arrivals if arrival.uid not in read.trial.refused]
    scenario = _scenario("what-if", read, fleet, created, chosen(other))
    yield msgspec.structs.replace(scenario, not_created=len(arrivals) - len(created))


async def _read(
    opened: OpenLog, cluster: str, question: WhatIfQuestion, limits: tuple[TriedLimit, ...]
) -> _LogRange:
    """Read the range of the log that the question names. Raises CommandError, Lost, Unreachable."""
    log = opened.log
    end = (await log.extent()).last
    last = await position_of(log, moment_of(question.until), end)
    since = await _since(log, question.since, last)
    if isinstance(since, int) and since > max(1, last):
        raise _nothing_from(question.since, last)
    before = min(last, since - 1 if isinstance(since, int) else await position_of(log, since, last))
    with bar("reading the log") as progress:
        state = await state_at(log, before, on_progress=progress)
        begin = microseconds(since) if isinstance(since, datetime) and before else state.time
        read = _LogRange(
            before + 1, last, begin, 0, ArrivalRecorder(cluster, state), LimitTrial(limits, state)
        )
        if last > before:
            await _follow(log, state, read, progress)
    read.end = max(state.time, _time_of(question.until) if last < end else 0)
    if read.begin > read.end:
        raise _nothing_from(question.since, last)
    _check_counted(state, limits)
    typer.echo(f"Positions {read.first} to {last} of {end}.", err=True)
    return read


async def _follow(log: Log, state: State, read: _LogRange, progress: Progress) -> None:
    """Fold and count the records of a range."""
    async for batch in log.read(read.first, read.last):
        for entry in batch:
            record = records.fold(state, entry.position, entry.payload)
            read.begin = read.begin or record.time
            read.recording.note(state, record)
            read.trial.note(state, record)
        progress(state.position, read.last)


async def _since(log: Log, text: str, last: int) -> Moment:
    """Return the first position of the range, or the time of its beginning. Raises CommandError."""
    moment = moment_of(text)
    if isinstance(moment, int) or not last:
        return max(1, moment) if isinstance(moment, int) else 1
    if moment is not None:
        return moment
    payload = await log.get(last)
    if payload is None:
        raise Lost(f"position {last} is missing from the log")
    return _EPOCH + timedelta(microseconds=records.decode(payload)[0].time) - DAY


def _time_of(text: str) -> int:
    moment = moment_of(text)
    return microseconds(moment) if isinstance(moment, datetime) else 0


def _nothing_from(since: str, last: int) -> CommandError:
    """Return the error for a range that ends before it begins."""
    return CommandError(
        Exit.USAGE, f"--since {since} is after position {last}: give an earlier one"
    )


def _check_counted(state: State, limits: tuple[TriedLimit, ...]) -> None:
    """Raise CommandError for a limit on a resource that no quota counts."""
    known = set(state.names)
    for limit in limits:
        if (limit.account, limit.resource) not in known:
            raise CommandError(
                Exit.NOT_FOUND,
                f"nothing counts {limit.resource} on {limit.account}, so what was asked of it is"
                " not known; `gpuledger quota list` lists the counted resources",
            )


def _limit(cluster: str, text: str) -> TriedLimit:
    """Read a limit from the command line. Raises CommandError."""
    form = _LIMIT.fullmatch(text)
    if form is None:
        raise CommandError(
            Exit.USAGE,
            f"--limit {text!r}: write NAMESPACE/QUOTA:KEY=AMOUNT, or QUOTA:KEY=AMOUNT for a"
            " UniverseResourceQuota, such as team/main:limits.nvidia.com/gpumem=64000",
        )
    namespace, quota, key, amount = form.groups()
    account = accounts.quota(cluster, namespace, quota) if namespace else accounts.universe(quota)
    return TriedLimit(account, key, int(amount))


def _preferences(settings: Settings) -> FitPreferences:
    return extender_settings(settings).preferences


def _scenario(
    name: str, read: _LogRange, fleet: Fleet, arrivals: Sequence[Arrival], choose: ChooseSeat
) -> Scenario:
    try:
        replay = Replay(fleet, begin=read.begin, end=read.end)
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from error
    with bar(name) as progress:
        return Scenario(name, 0, replay.run(arrivals, choose, progress))


COPIES_MAX: Final = 10_000
"""Most nodes that can be added at once."""

_COPIES: Final = re.compile(r"\+?([1-9][0-9]{0,5})=(.+)")


def with_copies(fleet: Fleet, more: Sequence[str], without: Iterable[str]) -> Fleet:
    """Return a fleet with `+COUNT=NODE` copies of nodes, and without some. Raises CommandError."""
    changed = dict(fleet)
    for text in more:
        count, node = _copies(text)
        for number in range(1, count + 1):
            suffix = f"-copy-{number}"
            changed[node + suffix] = {
                uuid + suffix: structs.replace(card, uuid=uuid + suffix)
                for uuid, card in _cards_of(fleet, node).items()
            }
    for node in without:
        _cards_of(fleet, node)
        changed.pop(node, None)
    return changed


def _copies(text: str) -> tuple[int, str]:
    form = _COPIES.fullmatch(text)
    if form is None or int(form[1]) > COPIES_MAX:
        raise CommandError(
            Exit.USAGE, f"--nodes {text!r}: write +COUNT=NODE, COUNT from 1 to {COPIES_MAX}"
        )
    return int(form[1]), form[2]


def _cards_of(fleet: Fleet, node: str) -> dict[str, Card]:
    if node not in fleet:
        raise CommandError(
            Exit.NOT_FOUND,
            f"node {node} had no cards in that time; `gpuledger cards` lists nodes with cards",
        )
    return fleet[node]
