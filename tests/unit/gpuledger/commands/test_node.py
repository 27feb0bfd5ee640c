"""`gpuledger node top` and `gpuledger vgpu selftest`: what they show, and how they end."""

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from support.harness.native_library import built
from typer.testing import CliRunner

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.output import Format
from gpuledger.command_line import build
from gpuledger.commands.node import COLUMNS
from gpuledger.node import library_self_test, node_top
from gpuledger.node.library_self_test import Check, Result

USE = {
    "namespace": "team",
    "pod": "p",
    "uid": "uid-1",
    "container": "main",
    "card": "GPU-0",
    "index": 0,
    "memory_used": 7 * 1024**2,
    "memory_limit": 100 * 1024**2,
    "cores_limit": 30,
    "busy_seconds": 1.5,
    "busy": 12.4,
    "processes": 2,
    "seen": None,
}
VIEW = {"node": "n0", "time": 1.0, "position": 9, "cards": [], "containers": [USE], "drifts": []}


@contextlib.asynccontextmanager
async def answering(status: int, body: str) -> AsyncIterator[str]:
    """Answer everything with this; yields the URL."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_get("/v1/containers", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def test_a_node_is_shown_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    async with answering(200, json.dumps(VIEW)) as url:
        await node_top.watch(url, 1.0, Format.TABLE, COLUMNS, once=True)
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == [column.header for column in COLUMNS.view]
    assert line.split() == ["team", "p", "main", "GPU-0", "7/100", "-", "12/30"]


async def test_node_is_shown_as_its_agent_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    async with answering(200, json.dumps(VIEW)) as url:
        await node_top.watch(url, 1.0, Format.JSON, COLUMNS, once=False)
    assert json.loads(capsys.readouterr().out) == VIEW


@pytest.mark.parametrize(
    ("status", "body", "said"), [(404, "", "answers 404"), (200, "{}", "is not a node's agent")]
)
async def test_other_program_than_an_agent_is_reported(status: int, body: str, said: str) -> None:
    async with answering(status, body) as url:
        with pytest.raises(CommandError, match=said) as stop:
            await node_top.watch(url, 1.0, Format.TABLE, COLUMNS, once=True)
    assert stop.value.status is Exit.FAILED


@pytest.mark.parametrize("body", ["hello", "[" * 100_000])
async def test_other_program_than_an_agent_is_reported_with_json(body: str) -> None:
    async with answering(200, body) as url:
        with pytest.raises(CommandError, match="is not a node's agent") as stop:
            await node_top.watch(url, 1.0, Format.JSON, COLUMNS, once=True)
    assert stop.value.status is Exit.FAILED


@pytest.mark.parametrize("output", [Format.JSON, Format.TABLE])
async def test_an_answer_that_comes_in_many_pieces_is_shown_whole(
    capsys: pytest.CaptureFixture[str], output: Format
) -> None:
    many = {**VIEW, "containers": [{**USE, "pod": f"p{number}"} for number in range(2_000)]}
    async with answering(200, json.dumps(many)) as url:
        await node_top.watch(url, 1.0, output, COLUMNS, once=True)
    assert "p1999" in capsys.readouterr().out


async def test_an_answer_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_top, "ANSWER_BYTES_MAX", 100)
    async with answering(200, json.dumps(VIEW)) as url:
        with pytest.raises(CommandError, match="more than 100 bytes") as stop:
            await node_top.watch(url, 1.0, Format.TABLE, COLUMNS, once=True)
    assert stop.value.status is Exit.FAILED


@pytest.mark.parametrize(
    ("agent", "status"),
    [
        ("http://127.0.0.1:1", Exit.UNREACHABLE),
        ("nonsense", Exit.USAGE),
        ("http://[::", Exit.USAGE),
    ],
)
async def test_absent_agent_is_reported(agent: str, status: Exit) -> None:
    with pytest.raises(CommandError, match="--agent") as stop:
        await node_top.watch(agent, 1.0, Format.TABLE, COLUMNS, once=True)
    assert stop.value.status is status
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("results", "status"),
    [
        ((Result.HOLDS,), Exit.OK),
        ((Result.HOLDS, Result.UNCHECKED), Exit.NOT_READY),
        ((Result.UNCHECKED, Result.FAILS), Exit.FAILED),
    ],
)
def test_checks_amount_to_an_exit_code(results: tuple[Result, ...], status: Exit) -> None:
    assert library_self_test.status_of([Check("c", result) for result in results]) is status


def test_a_library_that_is_not_there_fails() -> None:
    [check] = library_self_test.checks(Path("/nowhere/libvgpu.so"), "libcuda.so.1")
    assert check.result is Result.FAILS
    assert "make native" in check.detail


def test_selftest_fails_for_a_file_that_is_not_a_library(tmp_path: Path) -> None:
    (tmp_path / "libvgpu.so").write_bytes(b"\x7fELF")
    (tmp_path / "libvgpu.so").chmod(stat.S_IRWXU)
    [check] = library_self_test.checks(tmp_path / "libvgpu.so", "libcuda.so.1")
    assert check.result is Result.FAILS


def test_the_library_passes_with_the_stub_driver() -> None:
    driver = built() / "stub" / "libcuda.so.1"
    done = CliRunner().invoke(
        build(),
        ["vgpu", "selftest", "--library", str(built() / "libvgpu.so"), "--driver", str(driver)],
    )
    assert done.exit_code == Exit.OK, done.output
    assert "256 MiB were shown and held" in done.output


@pytest.mark.parametrize("name", ["with a space", "with:colon", "with$ORIGIN"])
def test_a_library_is_checked_wherever_it_is(tmp_path: Path, name: str) -> None:
    library = tmp_path / name / "libvgpu.so"
    library.parent.mkdir()
    library.symlink_to(built() / "libvgpu.so")
    driver = built() / "stub" / "libcuda.so.1"
    checks = list(library_self_test.checks(library, str(driver)))
    assert [check.result for check in checks] == [Result.HOLDS] * 3, checks


def test_without_a_driver_limits_are_unchecked() -> None:
    checks = {
        check.name: check
        for check in library_self_test.checks(built() / "libvgpu.so", "/none/libcuda.so.1")
    }
    assert checks["limits"].result is Result.UNCHECKED
    assert checks["loads"].result is Result.HOLDS


def test_a_library_that_limits_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver instead of the library, so that no limit applies."""
    driver = built() / "stub" / "libcuda.so.1"
    monkeypatch.setattr(library_self_test, "EXPORTS", ("cuMemAlloc_v2",))
    checks = {check.name: check for check in library_self_test.checks(driver, str(driver))}
    assert checks["limits"].result is Result.FAILS
    assert "cuMemGetInfo shows" in checks["limits"].detail
