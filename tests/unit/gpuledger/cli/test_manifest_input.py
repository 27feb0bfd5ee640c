"""Files given to commands: one object as JSON or YAML, or an error."""

import asyncio
import io
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuledger.cli import manifest_document, manifest_input
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.manifest_document import line_of

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"
FOUND = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}


@pytest.mark.parametrize(
    "content",
    [
        POD.encode(),
        b"---\n" + POD.encode(),
        b"\xef\xbb\xbf" + POD.encode(),
        POD.encode("utf-16"),
        b"{apiVersion: v1, kind: Pod, metadata: {name: p}}",
        b'{"apiVersion": "v1", kind: Pod, metadata: {name: p,}}',
        json.dumps(FOUND).encode(),
        POD.encode() + b"---\n# nothing\n",
    ],
    ids=["block", "marked", "bom", "utf-16", "flow", "mixed", "json", "empty-second"],
)
def test_one_object_is_read_however_it_is_written(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_bytes(content)
    assert json.loads(manifest_input.read(str(file), 10_000)) == FOUND


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty: give one object"),
        (b" \n\t\n", "is empty"),
        (b"# a comment\n", "holds nothing but comments"),
        (b"null", "holds nothing but comments"),
        (b"- a\n- b\n", "holds a list of 2: give one object"),
        (b'[{"kind": "Pod"}]', "holds a list of 1"),
        (b"kind: PodList\nitems: [1, 2, 3]\n", "holds a PodList of 3"),
        (POD.encode() + b"---\n" + POD.encode(), "holds 2 documents, separated by ---: give one"),
        (b"some words", "holds no object, but plain text"),
        (b"5", "holds no object"),
        (b"a: b: c\n", "line 1, column 5: mapping values are not allowed here"),
        (b"a:\n\t- b\n", "line 2, column 1: while scanning"),
        (b'{"kind": "Pod",', "neither JSON nor YAML: line 1"),
        (b"\x00\xff\xfe binary", "not text in UTF-8"),
        (b"a: &b 1\nc: *b\n", "write \\*b out"),
        (b"{" * 4000, "nested too deeply|neither JSON nor YAML"),
        (
            b"a: 2026-99-99\n",
            "line 1, column 4: the value does not fit its type: month must be in 1..12",
        ),
        (
            b"a: 1" + b":1" * 400 + b".5",
            "line 1, column 4: the value does not fit its type: int too large",
        ),
        (b'a: "\\UFFFFFFFF"', "is not valid YAML"),
        (b'a: !!int ""', "line 1, column 4: the value does not fit its type: string index"),
        (b"a: !!bool x", "line 1, column 4: the value does not fit its type: 'x'"),
        (b"a: !!timestamp x", "line 1, column 4: the value does not fit its type"),
        (b"x" * 20_000, "more than 10000 bytes"),
    ],
)
def test_file_without_a_single_object_is_refused_in_one_line(
    content: bytes, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_bytes(content)
    with pytest.raises(CommandError, match=rf"pod\.yaml.*({said})") as stopped:
        manifest_input.read(str(file), 10_000)
    assert stopped.value.status is Exit.USAGE
    assert "\n" not in str(stopped.value)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("missing.yaml", "missing.yaml cannot be read: No such file or directory"),
        ("", "the file '' cannot be read: Is a directory"),
        (".", "cannot be read: Is a directory"),
        ("a\0b", "cannot be read: embedded null byte"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason(
    file: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandError, match=said):
        manifest_input.read(file, 10_000)


def test_standard_input_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    with pytest.raises(CommandError, match=r"^standard input is empty"):
        manifest_input.read("-", 10_000)


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ("$.kind", 1),
        ("$.spec", 2),
        ("$.spec.containers[1].name", 6),
        ("spec.containers[0].resources[nvidia.com/gpu]", 5),
        ("$.spec.containers[0].image", 4),
        ("$.spec.containers[...]", 3),
        ("$.status.phase", 1),
        ("$", 0),
    ],
)
def test_line_of_a_field_is_that_of_its_deepest_part(field: str, line: int) -> None:
    manifest = b"""kind: Pod
spec:
  containers:
  - name: first
    resources: {nvidia.com/gpu: 1}
  - name: second
"""
    assert line_of(manifest, field) == line


def test_line_of_a_field_is_zero_when_the_document_is_invalid() -> None:
    assert line_of(b"kind: [", "$.kind") == 0
    assert line_of(b'kind: "\\UFFFFFFFF"', "$.kind") == 0


async def test_lines_are_found_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most, lock = 0, 0, threading.Lock()

    def slow(content: bytes, field: str, pause: Callable[[], None]) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1
        return 7

    monkeypatch.setattr(manifest_document, "line_of", slow)
    finding = [manifest_document.line_in_thread(b"a: 1", "$.a") for _ in range(4)]
    assert await asyncio.gather(*finding) == [7, 7, 7, 7]
    assert most == 1


async def test_a_line_that_takes_too_long_to_find_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = b"a:\n" + b"- b\n" * 100
    assert await manifest_document.line_in_thread(manifest, "$.a[99]") == 101
    monkeypatch.setattr(manifest_document, "LINE_SECONDS", 0.0)
    assert await manifest_document.line_in_thread(manifest, "$.a[99]") == 0
