"""The demo as its users run it, and its message when the service cannot start."""

import re
import socket
from pathlib import Path

import pytest
from support.harness.command_line import Ended, gpuledger

from gpuledger.demo.failed_claim import FailedClaim
from gpuledger.demo.narration import FIRST, LAST
from gpuledger.demo.service import DemoService

pytestmark = [pytest.mark.integration, pytest.mark.timeout(170)]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    """One run, with misleading settings around it, and the folder of its files."""
    folder = tmp_path_factory.mktemp("demo")
    ended = gpuledger(
        "demo",
        TMPDIR=str(folder),
        GPULEDGER_NATS="nats://127.0.0.1:9",
        GPULEDGER_CLUSTER="production",
    )
    return ended, folder


def test_every_claim_of_the_demo_holds(shown: tuple[Ended, Path]) -> None:
    ended, _ = shown
    assert ended.status == 0, ended
    claims = [line for line in ended.out.splitlines() if line.startswith("    ok  ")]
    assert f"All {len(claims)} claims held" in ended.out
    assert len(claims) == 14


def test_the_demo_shows_a_denial_a_crash_and_what_was_kept(shown: tuple[Ended, Path]) -> None:
    out = shown[0].out
    assert re.search(r"Error from server \(Forbidden\): .* \[QuotaExceeded; decision ", out)
    assert re.search(r"killed while it worked: \d+ allowed, \d+ denied, [1-9]\d* without", out)
    assert re.search(r"every one of [1-9]\d* acknowledged reservations is there", out)
    digests = re.findall(r"(?:digest at P|digest:|rebuilt:) ([0-9a-f]{64})", out)
    assert len(digests) == 3
    assert len(set(digests)) == 1
    assert "it ended with exit status 0" in out


def test_the_demo_shows_what_its_commands_print(shown: tuple[Ended, Path]) -> None:
    out = shown[0].out
    replayed = out.partition("$ gpuledger audit replay -n serving\n")[2].splitlines()
    first, last = replayed[0].split(), replayed[FIRST + LAST].split()
    assert first == ["POSITION", "AGE", "TYPE", "KEY", "DETAIL"]
    assert re.fullmatch(r"    … \d+ more lines", replayed[FIRST])
    assert (last[2], last[4]) == ("Reserved", "gpu=1,gpumem=8000Mi")
    verified = out.partition("$ gpuledger audit verify -o yaml\n")[2].splitlines()
    assert [line.partition(":")[0].strip() for line in verified[:4]] == [
        "ok",
        "records",
        "position",
        "problem",
    ]


def test_the_readme_shows_the_denial_and_the_usage_of_the_demo(shown: tuple[Ended, Path]) -> None:
    """Names, ids and amounts differ between runs: the order of the reviews is not fixed."""
    text = (Path(__file__).parents[3] / "README.md").read_text()
    console = text.partition("```console\n")[2].partition("```")[0]
    printed = _shape(shown[0].out)
    for step in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        assert _shape(step) in printed


def _shape(text: str) -> str:
    """Return a text without what differs between runs of the demo."""
    text = re.sub(r"Pod \S+", "Pod NAME", text)
    text = re.sub(r"Used by: .* more objects", "Used by: HOLDERS", " ".join(text.split()))
    return re.sub(r"[0-9a-f]{8}-\d+|\d+", "N", text)


def test_the_demo_leaves_nothing_behind(shown: tuple[Ended, Path]) -> None:
    assert list(shown[1].iterdir()) == []


async def test_a_service_that_cannot_listen_is_broken_and_logs_why(tmp_path: Path) -> None:
    service = DemoService(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        service.address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(FailedClaim, match="ended by itself"):
            await service.start()
    assert not service.runs
    assert service.address in "\n".join(service.tail())


async def test_a_command_that_fails_is_broken_with_its_output(tmp_path: Path) -> None:
    service = DemoService(tmp_path)
    with pytest.raises(FailedClaim, match=f"exit status 3: .*{re.escape(str(tmp_path))}"):
        await service.command("usage")
