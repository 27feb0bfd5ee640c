"""Audit: the log listed event by event, and verified from end to end."""

from typing import Any

import pytest
from support.harness.projection_harness import SECOND, START, log_of, random_payloads
from support.recorded.golden_logs import GOLDEN, payloads_of

from ledger.core import snapshot_format
from ledger.core.model.state import State
from ledger.log import records
from ledger.log.log_port import Snapshot
from ledger.log.memory_log import MemoryLog
from projections.log_audit import audit_lines
from projections.log_verification import ExpectedHead, verify
from projections.queries.moments import parse, rfc3339
from projections.queries.query_scope import EVERYTHING, QueryScope

PAYLOADS = random_payloads(6, 240)


async def told(log: MemoryLog, scope: QueryScope = EVERYTHING, **moments: Any) -> list[Any]:
    return [line async for line in audit_lines(log, scope, **moments)]


def state_at(position: int) -> State:
    state = State()
    for number, payload in enumerate(PAYLOADS[:position], 1):
        records.fold(state, number, payload)
    return state


async def test_every_event_is_listed_once_in_order() -> None:
    lines = await told(log_of(PAYLOADS))
    expected = [
        (position, type(item.event).__name__)
        for position, payload in enumerate(PAYLOADS, 1)
        for item in records.decode(payload)[0].items
    ]
    assert [(line["position"], line["type"]) for line in lines] == expected


async def test_last_listed_balance_of_an_account_is_its_balance() -> None:
    state, balances = state_at(len(PAYLOADS)), {}
    for line in await told(log_of(PAYLOADS)):
        if line["account"]:
            balances[line["account"]] = line["used_after"]
        for posting in line["postings"]:
            if posting["resource"] in balances.get(posting["account"], ()):
                balances[posting["account"]][posting["resource"]] = posting["used_after"]
    assert {name: used for name, used in balances.items() if name in state.accounts} == {
        name: {key: state.used[line] for key, line in sorted(account.lines.items())}
        for name, account in state.accounts.items()
    }


async def test_a_line_has_what_auditors_ask_for() -> None:
    line = next(listed for listed in await told(log_of(PAYLOADS)) if listed["type"] == "Released")
    wanted = {"position", "time", "type", "cause", "key", "uid", "amounts", "account"}
    assert wanted | {"used_after", "actor"} <= set(line)
    assert line["cause"]


async def test_namespace_is_listed_without_the_others() -> None:
    everything = await told(log_of(PAYLOADS))
    red = await told(log_of(PAYLOADS), QueryScope("red"))
    assert red == [line for line in everything if line["namespace"] == "red"]
    assert await told(log_of(PAYLOADS), QueryScope("red", "c2")) == []


async def test_positions_and_times_bound_the_listed_events() -> None:
    everything = await told(log_of(PAYLOADS))
    wanted = [line for line in everything if 10 <= line["position"] <= 20]
    assert await told(log_of(PAYLOADS), first=10, last=20) == wanted
    times: dict[str, Any] = {
        name: parse(rfc3339(records.decode(PAYLOADS[position - 1])[0].time))
        for name, position in (("first", 10), ("last", 20))
    }
    assert await told(log_of(PAYLOADS), **times) == wanted
    assert await told(log_of(PAYLOADS), first=len(PAYLOADS) + 1) == []
    assert await told(log_of(PAYLOADS), last=parse(rfc3339(START - SECOND))) == []


async def test_a_sound_log_is_verified_with_its_snapshots_and_an_expected_head() -> None:
    log, seen = log_of(PAYLOADS), []
    await log.save_snapshot(Snapshot(12, snapshot_format.encode(state_at(12))))
    report = await verify(
        log, ExpectedHead(9, state_at(9).hash.hex()), on_progress=lambda *now: seen.append(now)
    )
    assert report.ok
    assert report.problem is None
    assert report.records == report.position == len(PAYLOADS)
    assert seen[-1] == (len(PAYLOADS), len(PAYLOADS))


async def test_an_empty_log_is_sound() -> None:
    assert (await verify(log_of([]))).ok


async def test_a_changed_record_is_named() -> None:
    payloads = list(PAYLOADS)
    payloads[4] = payloads[4][:-1] + bytes((payloads[4][-1] ^ 1,))
    report = await verify(log_of(payloads))
    assert (report.ok, report.position) == (False, 4)
    assert "position 5" in str(report.problem)


async def test_record_that_was_sealed_again_is_named() -> None:
    payloads = list(PAYLOADS)
    record, _ = records.decode(payloads[4])
    forged = records.Record(5, record.time + 1, "x", "n", record.previous, 1, record.items)
    payloads[4], _ = records.encode(forged)
    report = await verify(log_of(payloads))
    assert (report.ok, report.position) == (False, 5)
    assert "position 6" in str(report.problem)


async def test_a_removed_record_is_named() -> None:
    report = await verify(log_of([*PAYLOADS[:4], *PAYLOADS[5:]]))
    assert (report.ok, report.position) == (False, 4)
    assert "position 5" in str(report.problem)


async def test_a_lost_tail_is_known_by_an_expected_head() -> None:
    head = state_at(len(PAYLOADS))
    cut = log_of(PAYLOADS[:-2])
    assert (await verify(cut)).ok
    report = await verify(cut, ExpectedHead(head.position, head.hash.hex()))
    assert not report.ok
    assert f"ends at position {len(PAYLOADS) - 2}" in str(report.problem)


async def test_a_lost_tail_is_known_by_a_snapshot() -> None:
    cut = log_of(PAYLOADS[:-2])
    await cut.save_snapshot(
        Snapshot(len(PAYLOADS), snapshot_format.encode(state_at(len(PAYLOADS))))
    )
    assert "its tail is missing" in str((await verify(cut)).problem)


async def test_another_history_is_known_by_an_expected_head() -> None:
    report = await verify(log_of(PAYLOADS), ExpectedHead(9, "0" * 64))
    assert not report.ok
    assert "position 9" in str(report.problem)


async def test_a_snapshot_that_a_replay_does_not_give_is_named() -> None:
    state = state_at(12)
    state.used[0] += 1
    log = log_of(PAYLOADS)
    await log.save_snapshot(Snapshot(12, snapshot_format.encode(state)))
    report = await verify(log)
    assert not report.ok
    assert "position 12: the stored snapshot differs" in str(report.problem)
    assert (await verify(log, check_snapshots=False)).ok


async def test_snapshot_of_an_older_schema_is_compared_by_its_state() -> None:
    newest = max(GOLDEN.glob("*.snapshot-3"))
    payloads = payloads_of(newest.with_suffix(".log"))
    log = log_of(payloads)
    await log.save_snapshot(Snapshot(len(payloads), newest.read_bytes()))
    assert (await verify(log)).ok
    shorter = log_of(payloads)
    await shorter.save_snapshot(Snapshot(len(payloads) - 1, newest.read_bytes()))
    assert "the stored snapshot differs" in str((await verify(shorter)).problem)


@pytest.mark.parametrize("text", ["", "9", "9:", "x:" + "0" * 64, "9:" + "0" * 63])
def test_an_expectation_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not POSITION:HASH"):
        ExpectedHead.parse(text)
