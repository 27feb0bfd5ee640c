"""The check for a GPU runs on the stub, reports that it did, and finds planted defects."""

import ast
import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from native.harness.builds import BUILD, NATIVE

from vgpu_native.agent.bypass_detection import SLACK

SECONDS = 170
SIZE_MAX = 20 * 2**20
DRIVER_470 = 11040
"""CUDA 11.4, which driver 470 has."""

HOLD = {
    "machine",
    "control",
    "granules",
    "exit",
    "pools",
    "names",
    "allocators",
    "processes-memory",
    "recovery",
}
"""Parts that hold on the stub, also on a busy processor."""

ABSENT = {"runtime", "pytorch", "cupy", "mps"}
"""Parts that need a driver of NVIDIA."""

UNLIMITED = "int without_limits;"
LIAR = """
int cuMemGetInfo_v2(unsigned long *left, unsigned long *total) {
  return *left = *total = 256ul << 20, 0;
}
"""


REFUSING = "int cuCtxSetLimit(int limit, unsigned long value) { return 2; }"

FRAMEWORK = """
class OutOfMemoryError(RuntimeError): pass
class Matrix:
    def __matmul__(self, other): return self
    def __getitem__(self, at): return 1024
taken = []
def alloc(size):
    if len(taken) == 3: raise OutOfMemoryError
    taken.append(size)
    return size
def ones(*sizes, **kind): return Matrix()
def empty(size, **kind): return alloc(size)
def available(): return (512 - 64 * len(taken)) << 20, 1 << 30
class space:
    def __init__(self, **names): self.__dict__.update(names)
def nothing(): pass
uint8 = float32 = None
cuda = space(OutOfMemoryError=OutOfMemoryError, mem_get_info=available, synchronize=nothing,
    is_available=lambda: True, runtime=space(memGetInfo=available), alloc=alloc,
    memory=space(OutOfMemoryError=OutOfMemoryError), Device=lambda: space(synchronize=nothing))
"""


@pytest.fixture(scope="module")
def bundle(make: Callable[..., None]) -> Path:
    make("gpu-bundle")
    return BUILD / "gpu-bundle"


@pytest.fixture(scope="module")
def quick(
    bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, str, dict[str, Any]]:
    """Return the status, the output and the results of a whole quick check."""
    return check(bundle, tmp_path_factory.mktemp("quick"))


def check(bundle: Path, out: Path, *options: str | Path) -> tuple[int, str, dict[str, Any]]:
    command: list[str | Path] = [bundle / "run", "--stub", "--quick", "--out", out, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout, done.stderr
    return done.returncode, done.stdout, results(out)


def results(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "results.json").read_text())
    return content


def only(*parts: str) -> list[str]:
    return [text for part in parts for text in ("--only", part)]


def verdicts(content: dict[str, Any], parts: Sequence[str]) -> set[str]:
    return {content["parts"][part]["verdict"] for part in parts}


def built(folder: Path, source: str) -> Path:
    (folder / "planted.c").write_text(source)
    command: list[str | Path] = ["gcc", "-shared", "-fPIC", folder / "planted.c"]
    subprocess.run([*command, "-o", folder / "planted.so"], check=True, timeout=60)
    return folder / "planted.so"


def test_a_run_on_the_stub_reports_first_that_no_gpu_was_used(
    quick: tuple[int, str, dict[str, Any]],
) -> None:
    _, printed, content = quick
    assert printed.startswith("NOT RUN ON A GPU")
    assert printed.split("\n\n")[2].startswith("NOT RUN ON A GPU")
    assert content["run"]["driver_kind"] == "stub"


def test_a_stub_is_recognised_without_the_option(bundle: Path, tmp_path: Path) -> None:
    env = os.environ | {"LD_LIBRARY_PATH": str(bundle / "stub")}
    env["VGPU_STUB_STATE"] = str(tmp_path / "machine")
    command: list[str | Path] = [bundle / "run", "--out", tmp_path / "out", *only("pools")]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.stdout.startswith("NOT RUN ON A GPU"), done.stdout + done.stderr
    assert verdicts(results(tmp_path / "out"), ["machine", "pools"]) == {"holds"}


def test_every_part_has_a_verdict_with_the_drivers_result(
    quick: tuple[int, str, dict[str, Any]],
) -> None:
    status, printed, content = quick
    parts = content["parts"]
    for name, part in parts.items():
        assert part["verdict"] in ("holds", "fails", "not tried"), name
        assert not part["impossible"], (name, part["reason"])
        assert part["cuda"]["name"].startswith("CUDA_"), name
        assert part["reason"] or part["verdict"] == "holds", name
    assert verdicts(content, sorted(HOLD)) == {"holds"}, printed
    assert verdicts(content, sorted(ABSENT)) == {"not tried"}
    assert parts["allocators"]["cuda"]["code"] == 2
    assert status == int(any(part["verdict"] == "fails" for part in parts.values()))
    assert {"none", "ours"} <= parts["short-kernels"]["compared"][0].keys()


def test_every_part_names_a_file_to_read_and_is_documented(
    quick: tuple[int, str, dict[str, Any]],
) -> None:
    page = (NATIVE.parent / "docs" / "how-to" / "gpu-check.md").read_text()
    for name, part in quick[2]["parts"].items():
        assert f"`{name.removeprefix('hami-')}`" in page, name
        assert not part["promise"] or (NATIVE.parent / part["first_file"]).is_file(), name
        for key in part:
            assert f"`{key}`" in page, key


def test_a_library_without_limits_fails(bundle: Path, tmp_path: Path) -> None:
    parts = ["allocators", "granules", "long-kernels", "names", "pools", "processes-memory"]
    library = built(tmp_path, UNLIMITED)
    status, printed, content = check(bundle, tmp_path, "--library", library, *only(*parts))
    assert (status, verdicts(content, parts)) == (1, {"fails"}), printed
    assert content["parts"]["long-kernels"]["measurements"][0]["value"] > 90


def test_a_library_that_charges_nothing_fails(bundle: Path, tmp_path: Path) -> None:
    parts = ["allocators", "granules", "process-memory"]
    library = built(tmp_path, LIAR)
    status, printed, content = check(bundle, tmp_path, "--library", library, *only(*parts))
    assert (status, verdicts(content, parts)) == (1, {"fails"}), printed
    assert "not charged" in content["parts"]["granules"]["reason"]
    assert "GIVEN ABOVE the limit" in content["parts"]["allocators"]["reason"]


def test_parts_notice_defects_of_their_own(make: Callable[..., None], tmp_path: Path) -> None:
    library = BUILD / "time" / "four_parts" / "libvgpu.so"
    make("gpu-bundle", str(library))
    parts = ["fresh-kernels", "free-async", "handles", "recovery"]
    bundle = BUILD / "gpu-bundle"
    status, printed, content = check(bundle, tmp_path, "--library", library, *only(*parts))
    assert (status, verdicts(content, parts)) == (1, {"fails"}), printed


def test_padding_of_arrays_is_compared_in_both_directions(bundle: Path, tmp_path: Path) -> None:
    """Below a stub with other blocks of rows than the library reckons with."""
    bench = (bundle / "gpu_check" / "bench.py").read_text()
    assert "STUB_ROWS = 128" in bench
    for rows, sign in ((1, "-"), (4096, "")):
        other = Path(shutil.copytree(bundle, tmp_path / f"bundle-{rows}"))
        (other / "gpu_check" / "bench.py").write_text(
            bench.replace("STUB_ROWS = 128", f"STUB_ROWS = {rows}")
        )
        _, _, content = check(other, tmp_path / f"out-{rows}", *only("granules"))
        reason = content["parts"]["granules"]["reason"]
        assert reason.startswith(f"3D arrays: in use and not charged: {sign}"), reason
        assert sign or "charged: -" not in reason, reason


def test_a_refusal_below_the_limit_is_not_reported_as_held(bundle: Path, tmp_path: Path) -> None:
    library = built(tmp_path, LIAR + REFUSING)
    _, _, content = check(bundle, tmp_path, "--library", library, *only("heaps"))
    rows = {row["measure"]: row for row in content["parts"]["heaps"]["measurements"]}
    assert rows["heap of 512 MiB"]["ok"] is False
    assert rows["heap of 512 MiB"]["value"] == "refused, though the limit leaves memory"


def test_the_slack_of_drift_is_that_of_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(NATIVE / "tests" / "gpu")
    drift = importlib.import_module("gpu_check.parts.drift")
    assert drift.SLACK_MIB * 2**20 == SLACK


def test_results_of_another_library_are_not_continued(bundle: Path, tmp_path: Path) -> None:
    check(bundle, tmp_path, *only("pools"))
    library = built(tmp_path, UNLIMITED)
    command: list[str | Path] = [bundle / "run", "--stub", "--quick", "--resume", tmp_path]
    for options, status in (["--library", str(library)], 2), ([], 0):
        done = subprocess.run(
            [*command, *only("names"), *options],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == status, done.stderr
        assert ("has library libvgpu.so, and this run" in done.stderr) == (status == 2)


def test_a_value_never_looks_like_the_bound_that_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(NATIVE / "tests" / "gpu")
    outcome = importlib.import_module("gpu_check.outcome")
    for value, text in ((46.98, "46.98 %, expected 47.00 to"), (46.4, "46.4 %, expected 47.0 to")):
        findings = outcome.Findings()
        findings.add("share", value, "%", 47.0, 53.0)
        assert text in findings.verdict()[1]
    findings = outcome.Findings()
    findings.add("share", 46.9999, "%", 47.0, 53.0)
    assert findings.verdict()[0] == "holds"


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_the_program_of_a_framework_prints_steps_and_results(name: str, tmp_path: Path) -> None:
    """With a module that behaves as the framework does."""
    (tmp_path / f"{name}.py").write_text(FRAMEWORK)
    program = NATIVE / "tests" / "gpu" / "gpu_check" / "frameworks" / "framework.py"
    command: list[str | Path] = [sys.executable, program, name]
    done = subprocess.run(
        command,
        input="\n" * 3,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line.split("\t")[:2] for line in done.stdout.splitlines()]
    assert [line[1] for line in lines if line[0] == "step"] == ["context", "product", "full"]
    assert ["given_mib", "192"] in lines
    assert ["refused_by", "OutOfMemoryError"] in lines
    assert lines[-1] == ["product", "right"]


def test_a_function_that_the_table_lacks_is_named(bundle: Path, tmp_path: Path) -> None:
    older = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    table = json.loads((bundle / "functions.json").read_text())
    table["functions"] = [row for row in table["functions"] if not row[0].startswith("cuMemCreate")]
    (older / "functions.json").write_text(json.dumps(table))
    _, _, content = check(older, tmp_path / "out", *only("names"))
    assert content["parts"]["names"]["verdict"] == "fails"
    assert "cuMemCreate" in content["parts"]["names"]["reason"]


def test_a_missing_measurement_is_not_reported_as_held(bundle: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    for program in (broken / "bin").iterdir():
        if program.name != "view":
            program.write_text(
                "#!/bin/sh\necho 'cuInit(0): CUDA_ERROR_NO_DEVICE (100)' >&2\nexit 1\n"
            )
    (broken / "bin" / "probe").write_text("#!/bin/sh\necho 'name\tbut nothing else'\n")
    status, printed, content = check(broken, tmp_path / "out", *only("pools"))
    assert (status, verdicts(content, ["machine", "pools"])) == (2, {"not tried"})
    assert printed.splitlines()[-1] == "NOT measured: machine, pools"
    assert "KeyError" in content["parts"]["machine"]["reason"]
    assert content["parts"]["pools"]["cuda"]["code"] == 100


def test_a_program_that_cannot_run_here_is_not_a_failure(bundle: Path, tmp_path: Path) -> None:
    """Step by step, and at once."""
    older = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    for name in ("share", "steps"):
        (older / "bin" / name).write_text("#!/bin/sh\necho 'there are no pools' >&2\nexit 77\n")
    parts = ["pools", "green-contexts"]
    status, _, content = check(older, tmp_path / "out", *only(*parts))
    assert (status, verdicts(content, parts)) == (0, {"not tried"})
    assert {content["parts"][part]["reason"] for part in parts} == {"there are no pools"}


def test_a_killed_run_keeps_its_parts_and_is_resumed(bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command: list[str | Path] = [bundle / "run", "--stub", "--quick", "--out", out]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        while not running.stdout.readline().startswith("control "):
            assert running.poll() is None
        running.send_signal(signal.SIGKILL)
    assert list(results(out)["parts"]) == ["machine", "control"]
    resumed = [*command[:-2], "--resume", out, "--budget", "5.5"]
    done = subprocess.run(resumed, capture_output=True, text=True, timeout=60, check=False)
    parts = results(out)["parts"]
    assert "kept from before: machine, control" in done.stderr
    assert parts["control"]["complete"]
    assert parts["pools"]["reason"] == "the budget of 6 s is used up"


def test_the_programs_are_built_where_they_do_not_start(bundle: Path, tmp_path: Path) -> None:
    foreign = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    (foreign / "bin" / "view").write_bytes(b"\x7fELF of another machine")
    (foreign / "libvgpu.so").unlink()
    status, printed, content = check(foreign, tmp_path / "out", *only("pools"))
    assert (status, verdicts(content, ["pools"])) == (0, {"holds"}), printed


def test_no_process_keeps_memory_when_the_measurement_fails(bundle: Path, tmp_path: Path) -> None:
    """A process that is left would hold the output pipe open, so that its end never comes."""
    env = os.environ | {"LD_LIBRARY_PATH": str(bundle / "stub")}
    env |= {"LD_PRELOAD": str(built(tmp_path, LIAR)), "VGPU_STUB_STATE": str(tmp_path / "machine")}
    command: list[str | Path] = [bundle / "bin" / "recovery", "3"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is there a limit?" in done.stderr


def test_no_program_needs_a_function_newer_than_driver_470(bundle: Path) -> None:
    table = json.loads((bundle / "functions.json").read_text())["functions"]
    versions = {row[0]: row[2] for row in table}
    for program in (bundle / "bin").iterdir():
        command: list[str | Path] = ["nm", "-D", "--undefined-only", program]
        listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        used = re.findall(r"\bcu[A-Z]\w+", listed.stdout)
        assert not [name for name in used if versions[name] > DRIVER_470], program.name


def test_the_script_has_the_syntax_of_python_39() -> None:
    files = sorted((NATIVE / "tests" / "gpu" / "gpu_check").rglob("*.py"))
    assert len(files) > 10
    for file in files:
        ast.parse(file.read_text(), feature_version=(3, 9))


def test_the_bundle_is_small(bundle: Path) -> None:
    assert sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file()) < SIZE_MAX
