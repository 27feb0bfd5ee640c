"""`gpuledger check --wait` repeats the check until none fails or the time is over."""

import asyncio

import pytest

from gpuledger.check import check_run
from gpuledger.check.install_findings import InstallFinding, failed, passed


async def test_wait_ends_with_the_first_run_without_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_run, "PAUSE_SECONDS", 0.01)
    runs: list[list[InstallFinding]] = [[failed("a", "x", "y")], [passed("a", "x")]]

    async def ask() -> list[InstallFinding]:
        return runs.pop(0)

    assert await check_run.until_passed(ask, 60.0) == [passed("a", "x")]
    assert runs == []


async def test_run_that_takes_too_long_does_not_end_a_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_run, "PAUSE_SECONDS", 0.01)
    runs: list[list[InstallFinding]] = [[failed("a", "x", "y")], [], [passed("a", "x")]]

    async def ask() -> list[InstallFinding]:
        findings = runs.pop(0)
        if not findings:
            raise TimeoutError
        return findings

    assert await check_run.until_passed(ask, 60.0) == [passed("a", "x")]


async def test_findings_stay_when_the_last_run_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(check_run, "PAUSE_SECONDS", 0.0)
    bad = [failed("a", "x", "y")]
    over = asyncio.Event()

    async def ask() -> list[InstallFinding]:
        if not over.is_set():
            over.set()
            return bad
        monkeypatch.setattr(check_run, "PAUSE_SECONDS", 3_600.0)
        raise TimeoutError

    assert await check_run.until_passed(ask, 60.0) == bad


async def test_check_that_never_ends_is_late() -> None:
    async def ask() -> list[InstallFinding]:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await check_run.until_passed(ask, 0.0)


async def test_without_a_wait_the_check_runs_once() -> None:
    bad = [failed("a", "x", "y")]

    async def ask() -> list[InstallFinding]:
        return bad

    assert await check_run.until_passed(ask, 0.0) == bad
