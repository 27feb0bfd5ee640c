"""Limits: by the agent's page, which holds at once, or else by the environment, read strictly."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from native.harness.core_programs import GIB, MIB, NO_LIMIT, UUID, Ledger

from vgpu_native.shared.binary_fields import place
from vgpu_native.shared.layout import CORES_OFF, LIMITS, MAY_DISABLE, OVERSUBSCRIBE
from vgpu_native.shared.limits_page import ContainerLimits, DeviceLimits, encode

LARGEST = NO_LIMIT - 1

SIZES = {
    "0": NO_LIMIT,
    "0g": NO_LIMIT,
    "0x0": NO_LIMIT,
    "1": 1,
    "4096": 4096,
    "0x10": 16,
    "0X1F": 31,
    "1b": 1,
    "1k": 1024,
    "100m": 100 * MIB,
    "100M": 100 * MIB,
    "100Mi": 100 * MIB,
    "100MiB": 100 * MIB,
    "100mb": 100 * MIB,
    "2g": 2 * GIB,
    "2Gi": 2 * GIB,
    "1t": 1024 * GIB,
    "1TIB": 1024 * GIB,
    "0x2g": 2 * GIB,
    "010": 10,
}
"""Valid sizes and their bytes; a leading zero does not mean octal."""

BAD = {
    "": 0,
    "-1": 0,
    "+5g": 0,
    "abc": 0,
    " 1g": 0,
    "g": 0,
    "0x": 0,
    "0abc": 0,
    "nan": 0,
    "1.5g": GIB,
    "0.5g": 0,
    "1,5g": 1,
    "1e9": 1,
    "1 g": 1,
    "1g ": GIB,
    "1gg": GIB,
    "1ib": 1,
    "1p": 1,
    "16GiB\n": 16 * GIB,
    "18446744073709551616": LARGEST,
    "99999999999999999999t": LARGEST,
    "16777216t": LARGEST,
    "\xff": 0,
    "`": 0,
    "9" * 4000: LARGEST,
}
"""The stricter reading of invalid sizes: never more than written, and never unlimited."""


@pytest.fixture
def ledger(tmp_path: Path, core_program: Callable[[str], Path]) -> Ledger:
    return Ledger(tmp_path, core_program)


def asked(ledger: Ledger, *words: object, **settings: str) -> tuple[list[int], str]:
    """Return the answers and the log; a variable that is an empty text is set."""
    command = [str(ledger.built("plain/ask")), *map(str, words)]
    environment = ledger.settings() | settings
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return [int(line) for line in done.stdout.split()], done.stderr


@pytest.mark.parametrize(("text", "limit"), SIZES.items())
def test_a_valid_size_is_read_as_written_without_a_log_line(
    ledger: Ledger, text: str, limit: int
) -> None:
    assert asked(ledger, "limit", CUDA_DEVICE_MEMORY_LIMIT=text) == ([limit], "")


@pytest.mark.parametrize(("text", "limit"), BAD.items())
def test_the_stricter_reading_of_a_bad_size_holds_and_is_logged_once(
    ledger: Ledger, text: str, limit: int
) -> None:
    answers, said = asked(ledger, "limit", "limit", "reserve", 1, CUDA_DEVICE_MEMORY_LIMIT=text)
    assert answers == [limit, limit, int(limit > 0)]
    assert said.count("is not a size") + said.count("gpuledger: error") >= 1
    assert said.count("gpuledger: error") == 1
    assert "CUDA_DEVICE_MEMORY_LIMIT" in said


def test_the_limit_of_one_device_overrides_that_of_all(ledger: Ledger) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": "5g", "CUDA_DEVICE_MEMORY_LIMIT_1": "1g"}
    answers, _ = asked(ledger, "limit", "device", 1, "limit", "device", 2, "limit", **limits)
    assert answers == [5 * GIB, GIB, 5 * GIB]


def test_a_device_that_nvml_showed_first_is_limited_by_cudas_ordinal(ledger: Ledger) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT_1": "1g", "CUDA_DEVICE_SM_LIMIT_1": "30"}
    asked = ("assume", 1, "limit", "cores", "device", 1, "limit", "cores", "assume", 1, "limit")
    assert ledger.ask(*asked, **limits) == [NO_LIMIT, 100, GIB, 30, GIB]


def test_all_memory_is_granted_and_counted_when_there_is_no_limit(ledger: Ledger) -> None:
    answers, said = asked(ledger, "limit", "cores", "reserve", 2**50, "used")
    assert (answers, said) == ([NO_LIMIT, 100, 1, 2**50], "")


@pytest.mark.parametrize(
    ("text", "cores", "bad"),
    [
        ("30", 30, False),
        ("1", 1, False),
        ("0", 100, False),
        ("100", 100, False),
        ("250", 100, False),
        ("0x1e", 30, False),
        ("-5", 1, True),
        ("abc", 1, True),
        ("", 1, True),
        ("50%", 50, True),
        ("33.3", 33, True),
        ("99999999999999999999", 100, True),
    ],
)
def test_a_share_of_time_is_read_strictly(ledger: Ledger, text: str, cores: int, bad: bool) -> None:
    answers, said = asked(ledger, "cores", CUDA_DEVICE_SM_LIMIT=text)
    assert answers == [cores]
    assert ("is not a percentage" in said) == bad


@pytest.mark.parametrize("name", ["GPU_CORE_UTILIZATION_POLICY", "CoreLimitSwitch"])
@pytest.mark.parametrize(
    ("text", "cores"),
    [("disable", 100), ("DISABLE", 100), ("force", 30), ("default", 30), ("", 30), ("what", 30)],
)
def test_the_limit_of_time_can_be_switched_off_when_there_is_no_page(
    ledger: Ledger, name: str, text: str, cores: int
) -> None:
    answers, said = asked(ledger, "cores", CUDA_DEVICE_SM_LIMIT="30", **{name: text})
    assert answers == [cores]
    assert ("is not a known policy" in said) == (text == "what")


@pytest.mark.parametrize(
    ("text", "ready"),
    [("true", 0), ("TRUE", 0), ("1", 0), ("false", 1), ("0", 1), ("", 1), ("ja", 1)],
)
def test_control_can_be_switched_off_when_there_is_no_page(
    ledger: Ledger, text: str, ready: int
) -> None:
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": "1m", "CUDA_DISABLE_CONTROL": text}
    answers, said = asked(ledger, "ready", "entry", "reserve", "2m", **limits)
    assert answers == ([1, 0, 0] if ready else [0, NO_LIMIT, 1])
    assert ("neither true nor false" in said) == (text == "ja")
    assert ledger.region.exists() == bool(ready), "what is off leaves no file"


def test_memory_beyond_the_card_can_be_allowed_by_the_environment(ledger: Ledger) -> None:
    assert asked(ledger, "oversubscribes")[0] == [0]
    assert asked(ledger, "oversubscribes", CUDA_OVERSUBSCRIBE="true")[0] == [1]


def test_the_log_level_selects_the_logged_lines(ledger: Ledger) -> None:
    bad = {"CUDA_DISABLE_CONTROL": "ja", "CUDA_DEVICE_MEMORY_LIMIT": "abc"}
    assert asked(ledger, "limit", LIBCUDA_LOG_LEVEL="0", **bad)[1].count("\n") == 1
    assert asked(ledger, "limit", LIBCUDA_LOG_LEVEL="1", **bad)[1].count("\n") == 2


def test_two_bad_variables_are_both_logged(ledger: Ledger) -> None:
    bad = {"CUDA_DEVICE_MEMORY_LIMIT_0": "abc", "CUDA_DEVICE_MEMORY_LIMIT_1": "abc"}
    _, said = asked(ledger, "limit", "device", 1, "limit", **bad)
    assert [name for name in bad if f'{name}="abc" is not a size' in said] == list(bad)


def asked_of(devices: Iterable[int]) -> list[object]:
    """Return words that ask for limits of devices; for those from 16 on a line is logged."""
    return [word for device in devices for word in ("device", device, "limit")]


def test_no_line_comes_twice_within_a_second(ledger: Ledger) -> None:
    began = time.monotonic()
    _, said = asked(ledger, *asked_of(range(20)), *asked_of(range(16, 20)) * 20)
    lines = Counter(said.splitlines())
    assert len(lines) == 4
    assert max(lines.values()) <= int(time.monotonic() - began) + 2


def test_the_log_has_at_most_64_lines_in_a_second(ledger: Ledger) -> None:
    began = time.monotonic()
    _, said = asked(ledger, *asked_of(range(256)))
    assert 4 < said.count("\n") <= 64 * (int(time.monotonic() - began) + 2)


def test_a_program_continues_when_standard_error_is_closed(ledger: Ledger) -> None:
    command = [str(ledger.built("plain/ask")), "limit"]
    environment = ledger.settings() | {"CUDA_DEVICE_MEMORY_LIMIT": "abc"}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        process.stderr.close()
        assert process.stdout.read() == b"0\n"
        assert process.wait() == 0


def paged(ledger: Ledger, *devices: DeviceLimits, flags: int = 0) -> Path:
    """Write a page and have the ledger look there."""
    page = ledger.directory / "limits"
    page.write_bytes(encode(ContainerLimits(devices, flags)))
    ledger.environment["GPULEDGER_LIMITS_FILE"] = str(page)
    return page


def test_the_page_overrides_the_environment(ledger: Ledger) -> None:
    paged(ledger, DeviceLimits(UUID.format(0), 5 * MIB, 40), DeviceLimits(UUID.format(1)))
    limits = {"CUDA_DEVICE_MEMORY_LIMIT": "9g", "CUDA_DEVICE_SM_LIMIT": "90"}
    words = ("limit", "cores", "device", 1, "limit", "cores", "reserve", "9g")
    answers, said = asked(ledger, *words, **limits)
    assert (answers, said) == ([5 * MIB, 40, NO_LIMIT, 100, 1], "")


def test_a_change_of_the_page_holds_at_the_next_decision(ledger: Ledger) -> None:
    page = paged(ledger, DeviceLimits(UUID.format(0), 5 * MIB))
    words = ["reserve", "5m", "reserve", "1m", "wait", "reserve", "1m", "limit", "wait"]
    words += ["limit", "reserve", "1", "used", "release", "6m", "reserve", "1m", "reserve", "1m"]
    with ledger.talking(*words, "wait") as process:
        assert process.answers(2) == [1, 0]
        put(page, 6 * MIB)
        process.go_on()
        assert process.answers(2) == [1, 6 * MIB]
        put(page, MIB)
        process.go_on()
        assert process.answers(5) == [MIB, 0, 6 * MIB, 1, 0]


def put(page: Path, memory: int) -> None:
    with page.open("r+b") as file:
        file.seek(place(LIMITS["memory"]))
        file.write(memory.to_bytes(8, "little"))


def test_the_overhead_that_the_agent_measured_counts(ledger: Ledger) -> None:
    paged(ledger, DeviceLimits(UUID.format(0), 5 * MIB, overhead=3 * MIB))
    assert ledger.ask("used", "reserve", "3m", "reserve", "2m", "used") == [3 * MIB, 0, 1, 5 * MIB]


def test_a_device_gets_no_memory_when_the_page_does_not_name_it(ledger: Ledger) -> None:
    paged(ledger, DeviceLimits(UUID.format(0), 5 * MIB))
    words = ("device", 1, "entry", "limit", "reserve", 1, "charge", 5, "used", "cores")
    done = ledger.run("ask", *words)
    assert done.stdout.split() == ["16", "0", "0", "0", "100"]
    assert "the limits page does not name it" in done.stderr


def test_a_mig_instance_is_found_by_its_uuid(ledger: Ledger) -> None:
    paged(ledger, DeviceLimits(UUID.format(0).replace("GPU-", "MIG-"), 5 * MIB))
    assert ledger.ask("limit") == [5 * MIB]
    assert UUID.format(0).replace("GPU-", "MIG-").encode() in ledger.region.read_bytes()


@pytest.mark.parametrize("flags", [0, MAY_DISABLE])
def test_switches_count_with_a_page_only_if_it_allows_them(ledger: Ledger, flags: int) -> None:
    paged(ledger, DeviceLimits(UUID.format(0), 5 * MIB, 40), flags=flags)
    assert asked(ledger, "ready", CUDA_DISABLE_CONTROL="true")[0] == [0 if flags else 1]
    answers = asked(ledger, "cores", GPU_CORE_UTILIZATION_POLICY="disable")[0]
    assert answers == [100 if flags else 40]


def test_the_page_can_switch_the_limit_of_time_off_and_allow_more_memory(ledger: Ledger) -> None:
    paged(ledger, DeviceLimits(UUID.format(0), 5 * MIB, 40), flags=CORES_OFF | OVERSUBSCRIBE)
    assert ledger.ask("cores", "oversubscribes") == [100, 1]
    paged(ledger, DeviceLimits(UUID.format(0), 5 * MIB, 40))
    assert ledger.ask("cores", "oversubscribes", CUDA_OVERSUBSCRIBE="true") == [40, 0]


@pytest.mark.parametrize(
    "what", ["missing", "short", "version", "magic", "devices", "directory", "pipe"]
)
def test_no_memory_is_granted_when_the_page_is_invalid(ledger: Ledger, what: str) -> None:
    page = paged(ledger, DeviceLimits(UUID.format(0), 5 * MIB))
    content = bytearray(page.read_bytes())
    if what in ("version", "magic", "devices"):
        content[place(LIMITS[what])] += 20
    page.unlink()
    if what == "directory":
        page.mkdir()
    elif what == "pipe":
        os.mkfifo(page)
    elif what != "missing":
        page.write_bytes(content[: 100 if what == "short" else None])
    wide = {"CUDA_DEVICE_MEMORY_LIMIT": "9g", "CUDA_OVERSUBSCRIBE": "true"}
    wide["CUDA_DISABLE_CONTROL"] = "true"
    answers, said = asked(ledger, "limit", "reserve", 1, "oversubscribes", **wide)
    assert answers == [0, 0, 0]
    assert "is not a limits page" in said
