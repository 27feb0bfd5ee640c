"""Mistakes on the command line end in one sentence and an exit code, and never in a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from gpuledger.cli import time_options
from gpuledger.cli.exit_codes import Exit
from gpuledger.command_line import build
from gpuledger.version import VERSION

APP = build()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files that no command can use."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("kind: Pod\n")
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    frame = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n"
    (tmp_path / "framed").write_text(frame.format("Z2FyYmFnZQ=="))
    (tmp_path / "folder").mkdir()
    return tmp_path


def run(line: str) -> Result:
    return CliRunner().invoke(APP, line.split())


@pytest.mark.parametrize("line", ["-h", "usage -h", "quota -h", "quota set -h", "demo -h"])
def test_a_short_option_shows_the_help(line: str) -> None:
    result = run(line)
    assert result.exit_code == 0
    assert "Usage: " in result.stdout
    assert "Examples:" in result.stdout


def test_the_version_is_an_option_too() -> None:
    assert run("--version").stdout == f"gpuledger {VERSION}\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("usge", "Did you mean 'usage'?"),
        ("usage extra", "unexpected extra argument"),
        ("usage -o xml", "is not one of 'table', 'wide', 'name', 'csv', 'json', 'yaml'"),
        ("usage --at yesterday", "neither a position such as 1234 nor a time"),
        ("usage --at -5", "neither a position"),
        ("usage --at 99999999999999999999", "neither a position"),
        ("usage --at 2026-13-01", "neither a position"),
        ("usage --store-dir text", "store_dir = text: is a file; name a directory"),
        ("serve --no-kubernetes --store-dir text", "is a file; name a directory"),
        ("usage --shard A_B", "a name of a-z, 0-9 and -"),
        ("usage --config missing.toml", "No such file or directory"),
        ("usage --config folder", "Is a directory"),
        ("usage --config binary", "is not TOML"),
        ("usage --nats http://host:4222", "is not the URL of a server; write nats://HOST:PORT"),
        ("usage --nats nats://host:99999", "is not the URL of a server"),
        ("usage --server localhost:18443", "begins with https://, or http:// on loopback"),
        ("usage --server https://host/v1", "a URL without a path that begins with https://"),
        ("usage --server https://[::1", "write https://HOST:PORT, up to port 65535"),
        ("usage --server https://host:99999", "write https://HOST:PORT, up to port 65535"),
        ("usage --server http://host", "http shows the token to the network; give an https URL"),
        ("serve --listen here", "give HOST:PORT"),
        ("serve --listen 127.0.0.1:99999", "beyond 65535"),
        ("history --since 3 --until 1", "--since 3 is after --until 1: exchange them"),
        ("denials --since 2026-02-01 --until 2026-01-01", "exchange them"),
        ("audit replay --since 3 --until 1", "exchange them"),
        ("what-if --since 3 --until 1", "exchange them"),
        ("resize -n a p -c main", "nothing would change"),
        ("resize -n a p -c main --memory 99999999999999999999", "less than or equal"),
        ("resize -n a p -c main --memory -1", "greater than or equal"),
        ("restore missing", "missing: No such file or directory; nothing was restored"),
        ("restore folder", "folder: Is a directory; nothing was restored"),
        ("webhook print --url http://host --ca text", "is not https://HOST"),
        ("webhook print --url https://host:99999 --ca text", "is not https://HOST"),
        ("webhook print --service A_B --ca text", "is not the name of a Service"),
        ("webhook print --service a --ca text", "text holds no certificate in PEM"),
        ("webhook print --service a --ca framed", "framed holds no certificate in PEM"),
        ("import hami --kubeconfig missing", "missing: No such file or directory; name a readable"),
        ("import hami --kubeconfig text", "text: it is not a kubeconfig"),
        (
            "quota set -n a q requests.nvidia.com/gpu=1.5",
            "requests.nvidia.com/gpu=1.5 is refused: 1.5 is not a whole number and holds as 1;"
            " write 1",
        ),
        (
            "quota set -n a q nvidia.com/gpu=2",
            "nvidia.com/gpu=2 is refused: Kubernetes does not enforce this key; write limits.",
        ),
        (
            "quota set -n a q limits.nvidia.com/gpumen=16",
            "limits.nvidia.com/gpumen=16 is refused: Kubernetes does not enforce this key and it is"
            " not a managed resource; write one of nvidia.com/gpu,",
        ),
        ("quota set -n a q pods=2", "pods=2 is refused: pods limits no managed resource"),
        ("usage --at=", "'' is not a valid POSITION|TIME: give one such as"),
        ("history --since=", "'' is not a valid POSITION|TIME: give one such as"),
        ("usage --at 2999-01-01", "--at 2999-01-01 is in the future: give an earlier time"),
        ("cards --at 2999-01-01", "--at 2999-01-01 is in the future: give an earlier time"),
        ("usage -o xml", "'--output' / '-o': 'xml' is not one of"),
        ("usage --by node", "'--by': 'node' is not one of"),
        ("resize -n a p -c main --memory 16Gi", "'16Gi' should be a valid integer"),
        ("resize -n a p -c main --memory 16Gi", "write 16384 for 16Gi"),
        ("resize -n a p -c main --memory 0", "'0' should be greater than or equal to 1"),
        ("history --limit x", "'x' should be a valid integer"),
        ("node top --agent nowhere", "write http://HOST:PORT"),
        ("node top --agent http://127.0.0.1:99999", "write http://HOST:PORT"),
        ("explain -f folder", "folder cannot be read: Is a directory"),
        ("explain -f empty", "empty is empty"),
        ("fit -f binary", "binary is neither JSON nor YAML"),
    ],
)
def test_wrong_usage_is_reported_with_its_remedy(line: str, said: str) -> None:
    result = run(line)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert said in " ".join(result.stderr.split())
    assert "Errno" not in result.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("serve --kubeconfig missing --store-dir s", "missing: No such file or directory"),
        ("serve --kubeconfig empty --store-dir s", "empty: it is not a kubeconfig"),
        ("serve --kubeconfig text --store-dir s", "text: it is not a kubeconfig"),
        ("serve --kubeconfig binary --store-dir s", "binary: it is not YAML"),
    ],
)
def test_a_kubeconfig_that_is_none_is_named(line: str, said: str) -> None:
    result = run(line)
    assert result.exit_code == Exit.UNREACHABLE
    assert f"no credentials from {said}" in result.stderr


def _options() -> list[tuple[str, typer.core.TyperOption]]:
    listed: list[tuple[str, typer.core.TyperOption]] = []

    def look(path: str, command: object) -> None:
        if isinstance(command, typer.core.TyperGroup):
            for name, below in command.commands.items():
                look(f"{path} {name}", below)
        elif isinstance(command, typer.core.TyperCommand):
            options = (
                option for option in command.params if isinstance(option, typer.core.TyperOption)
            )
            listed.extend((path, option) for option in options)

    look("", typer.main.get_command(APP))
    return listed


def test_options_of_time_are_called_and_written_alike_everywhere() -> None:
    shown = {"--at", "--since", "--until"}
    of_time = [(path, option) for path, option in _options() if shown & set(option.opts)]
    assert len(of_time) > 12
    assert {option.metavar for _, option in of_time} == {time_options.FORMAT}
    assert not {"--from", "--to"} & {name for _, option in _options() for name in option.opts}


def test_names_of_options_of_time_before_are_understood() -> None:
    assert "exchange them" in run("history --from 3 --to 1").stderr


@pytest.mark.parametrize("line", ["--help", "version", "usage --help"])
def test_full_disk_prints_no_traceback(line: str) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "gpuledger", *line.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert ended.returncode == Exit.FAILED
    assert "No space left on device" in ended.stderr
    assert "Traceback" not in ended.stderr
