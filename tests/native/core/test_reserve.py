"""The ledger grants up to the limit, neither more nor less, while processes are killed."""

from collections.abc import Callable
from pathlib import Path

import pytest
from native.harness.core_programs import MIB, Ledger

LIMIT = {"CUDA_DEVICE_MEMORY_LIMIT": "1000m"}
SOON = 40
"""How often a test of a broken ledger tries; it stops when it has found what is wrong."""


@pytest.fixture
def ledger(tmp_path: Path, core_program: Callable[[str], Path]) -> Ledger:
    return Ledger(tmp_path, core_program, dict(LIMIT))


def test_a_request_is_granted_when_it_fits_and_refused_otherwise(ledger: Ledger) -> None:
    asked = ("reserve", "600m", "reserve", "401m", "reserve", "400m", "reserve", "1", "used")
    assert ledger.ask(*asked) == [1, 0, 1, 0, 1000 * MIB]


def test_released_memory_can_be_reserved_again(ledger: Ledger) -> None:
    asked = ("reserve", "600m", "release", "600m", "reserve", "1000m", "used")
    assert ledger.ask(*asked) == [1, 1, 1000 * MIB]


def test_an_excess_release_ends_at_zero_and_is_logged(ledger: Ledger) -> None:
    words = ("reserve", "5m", "release", "6m", "used", "reserve", "1000m")
    done = ledger.run("ask", *words, kind="shipped-plain")
    assert done.stdout.split() == ["1", "0", "1"]
    assert "more of device 0 was given back" in done.stderr


def test_a_forced_charge_counts_beyond_the_limit(ledger: Ledger) -> None:
    asked = ("charge", "1200m", "used", "reserve", "1", "release", "201m", "reserve", "1m")
    assert ledger.ask(*asked) == [1200 * MIB, 0, 1]


@pytest.mark.parametrize("size", [2**64 - 1, 2**63, 2**55 + 1])
@pytest.mark.parametrize("limit", ["1000m", ""])
def test_sizes_that_no_device_has_are_refused(ledger: Ledger, size: int, limit: str) -> None:
    ledger.environment["CUDA_DEVICE_MEMORY_LIMIT"] = limit
    assert ledger.ask("reserve", size, "used", "reserve", "1m", "used") == [0, 0, 1, MIB]


def test_every_device_has_its_own_sum(ledger: Ledger) -> None:
    asked = ("reserve", "900m", "device", 1, "used", "reserve", "900m", "device", 0, "used")
    assert ledger.ask(*asked) == [1, 0, 1, 900 * MIB]


@pytest.mark.parametrize(
    ("processes", "mib", "rounds"), [(2, 600, 10000), (4, 400, 4000), (8, 300, 1500)]
)
def test_simultaneous_requests_are_granted_up_to_the_limit_exactly(
    ledger: Ledger, processes: int, mib: int, rounds: int
) -> None:
    figures = ledger.measured("barrier", processes, mib, rounds)
    assert figures == {"over": 0, "under": 0, "left": 0}


@pytest.mark.parametrize("kind", ["check_then_add", "stores_in_any_order"])
def test_a_broken_ledger_grants_too_much_to_simultaneous_requests(
    ledger: Ledger, kind: str
) -> None:
    assert any(ledger.measured("barrier", 2, 600, 10000, kind=kind)["over"] for _ in range(SOON))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_ledger_without_a_gate_refuses_simultaneous_requests_that_fit(ledger: Ledger) -> None:
    assert any(
        ledger.measured("barrier", 2, 600, 10000, kind="ungated")["under"] for _ in range(SOON)
    )


@pytest.mark.parametrize("processes", [2, 8, 24])
def test_held_memory_is_charged_and_within_the_limit_when_processes_die(
    ledger: Ledger, processes: int
) -> None:
    check_fuzz(ledger, processes, 2500, 7 * processes)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("processes", [2, 3, 8, 24, 64])
def test_held_memory_is_charged_and_within_the_limit_in_a_long_run(
    ledger: Ledger, processes: int, seed: int
) -> None:
    check_fuzz(ledger, processes, 60_000, seed * 1000 + processes)


def check_fuzz(ledger: Ledger, processes: int, milliseconds: int, seed: int) -> None:
    figures = ledger.measured("fuzz", processes, milliseconds, seed)
    print(figures)
    assert (figures["over"], figures["uncharged"], figures["whole"]) == (0, 0, True)
    assert figures["high"] <= processes
    assert min(figures["snapshots"], figures["grants"]) > 20
    assert figures["most"] > 1000


def test_kills_detect_a_ledger_that_trusts_an_earlier_sum(ledger: Ledger) -> None:
    kind = "check_then_add"
    assert any(ledger.measured("fuzz", 8, 500, seed, kind=kind)["over"] for seed in range(SOON))


def test_kills_detect_a_ledger_that_counts_dead_processes(ledger: Ledger) -> None:
    kind = "dead_count"
    assert not all(ledger.measured("fuzz", 8, 500, at, kind=kind)["whole"] for at in range(SOON))


@pytest.mark.parametrize(
    ("what", "stride"),
    [("grant", 1), ("refusal", 13), ("attach", 61), ("thread", 1), ("share", 61), ("join", 11)],
)
def test_a_kill_at_any_instruction_leaves_nothing_behind(
    ledger: Ledger, what: str, stride: int
) -> None:
    check_steps(ledger, what, stride)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("what", "stride"), [("refusal", 1), ("attach", 1), ("share", 7), ("join", 1)]
)
def test_a_kill_at_each_instruction_leaves_nothing_behind(
    ledger: Ledger, what: str, stride: int
) -> None:
    check_steps(ledger, what, stride)


def check_steps(ledger: Ledger, what: str, stride: int) -> None:
    figures = ledger.measured("step", stride, what, kind="shipped-plain")
    print(figures)
    assert figures["wrong"] == 0
    assert figures["steps"] > 100
    assert figures["slowest_ms"] < 100


def test_an_unannounced_slot_is_lost_when_its_process_is_killed(ledger: Ledger) -> None:
    assert ledger.measured("step", 1, "thread", kind="unannounced")["wrong"] == 1


@pytest.mark.parametrize(
    "scenario",
    [
        "stopped",
        "ended",
        "executed",
        "forked",
        "cloned",
        "idle_child",
        "thread_ends",
        "namespaces",
        "filtered",
        "fork_while_attaching",
        "begin_together",
    ],
)
def test_memory_counts_as_long_as_its_process_lives(ledger: Ledger, scenario: str) -> None:
    said = ledger.run("lives", scenario).stdout
    if said.startswith("skip"):
        pytest.skip(said)
    assert said == ""


def test_a_process_without_a_slot_gets_no_memory_and_logs_that_once(ledger: Ledger) -> None:
    done = ledger.run("full")
    assert done.stdout == ""
    assert done.stderr.count("256 processes use") == 1


def test_signals_do_not_change_errno_while_the_gate_is_held(ledger: Ledger) -> None:
    ledger.run("interrupted", CUDA_DEVICE_MEMORY_LIMIT="100m")


@pytest.mark.parametrize("kind", ["shipped-plain", "plain", "address", "thread"])
def test_threads_share_one_slot_from_their_first_call_on(ledger: Ledger, kind: str) -> None:
    assert ledger.run("threads", 8, 3000, kind=kind).stdout == ""


def test_nothing_is_out_of_bounds_or_undefined_at_the_barrier(ledger: Ledger) -> None:
    figures = ledger.measured("barrier", 4, 400, 300, kind="address")
    assert figures == {"over": 0, "under": 0, "left": 0}
