"""Every log that a released version could have written still means what it meant."""

from pathlib import Path

import msgspec
import pytest
from support.recorded.golden_logs import GOLDEN, Expected, amounts_to, payloads_of

from ledger.core.model.events import AnyEvent, Cause
from ledger.log import record_schema, records
from ledger.log.log_port import Lost

LOGS = sorted(GOLDEN.glob("schema-*.log"))
CURRENT = GOLDEN / f"schema-{record_schema.SCHEMA}.log"


def expected_of(path: Path) -> Expected:
    return msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=Expected)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
async def test_a_golden_log_amounts_to_what_was_recorded(path: Path) -> None:
    assert await amounts_to(payloads_of(path)) == expected_of(path)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_golden_log_holds_records_of_its_own_schema(path: Path) -> None:
    schemas = {msgspec.msgpack.decode(payload)[0] for payload in payloads_of(path)}
    assert schemas == {int(path.stem.removeprefix("schema-"))}


def test_there_is_a_golden_log_for_the_schema_that_is_written() -> None:
    assert CURRENT in LOGS, (
        "make one with `PYTHONPATH=tests python -m support.recorded.golden_logs new`"
    )


def test_the_golden_log_has_every_kind_of_event() -> None:
    kinds = {name.split()[0] for name in expected_of(CURRENT).events}
    assert kinds == {kind.__name__ for kind in AnyEvent.__args__}


def test_the_golden_logs_have_every_cause() -> None:
    """Those of earlier versions, too, which nothing writes any more."""
    events = [name for path in LOGS for name in expected_of(path).events]
    causes = {name.split()[1] for name in events if " " in name}
    assert causes == set(Cause)


async def test_one_changed_balance_is_not_what_was_recorded() -> None:
    payloads = payloads_of(CURRENT)
    record, _ = records.decode(payloads[-1])
    record.items[-1].postings[-1:] = [10**6]
    payloads[-1] = records.encode(record)[0]
    with pytest.raises(Lost, match=r"position \d+: balances"):
        await amounts_to(payloads)
