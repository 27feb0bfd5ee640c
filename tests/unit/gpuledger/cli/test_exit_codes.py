"""Exit codes and the one line on standard error, without any ledger."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuledger.cli.exit_codes import CommandError, Exit, denied_error
from gpuledger.cli.expected_errors import command_error_for
from gpuledger.command_line import build
from ledger.core.model.denials import Denial, Reason
from ledger.log.embedded.store_lock import StoreBusy
from ledger.log.log_port import Full, Lost, Unreachable
from ledger.runtime.tls import server_certificate


def run(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(build(), arguments, env=env)


def test_an_unknown_option_is_wrong_usage() -> None:
    result = run("usage", "--bogus")
    assert result.exit_code == Exit.USAGE
    assert "--bogus" in result.stderr


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("limits.nvidia.com/gpumem", "is not KEY=QUANTITY"),
        ("limits.nvidia.com/gpumem=16Gi", "write 16384 for 16Gi"),
        ("limits.nvidia.com/gpumem=-1", "is negative"),
        ("limits.nvidia.com/gpumem=1.5", "is not a whole number"),
        ("limits.nvidia.com/gpumem=lots", "is not a quantity"),
        ("limits.nvidia.com/gpumem-percentage=50", "cannot be added up"),
        ("nvidia.com/gpu=2", "write limits.nvidia.com/gpu"),
        ("limits.example.com/thing=2", "not a managed resource"),
        ("pods=2", "limits no managed resource"),
    ],
)
def test_a_malformed_limit_is_wrong_usage_and_writes_nothing(
    limit: str, says: str, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    result = run("quota", "set", "-n", "team-a", "gpus", limit, f"--store-dir={store}")
    assert result.exit_code == Exit.USAGE, result.stderr
    assert says in result.stderr
    assert not store.exists()


@pytest.mark.parametrize("namespace", ["Team", "a/b", "", "-a"])
def test_a_name_that_no_namespace_can_have_is_wrong_usage(namespace: str, tmp_path: Path) -> None:
    result = run(
        "quota",
        "delete",
        f"--namespace={namespace}",
        "gpus",
        f"--store-dir={tmp_path}",
    )
    assert result.exit_code == Exit.USAGE


def test_an_invalid_setting_names_its_source(tmp_path: Path) -> None:
    result = run("usage", f"--store-dir={tmp_path}", GPULEDGER_REPLICAS="2")
    assert result.exit_code == Exit.USAGE
    assert "environment: replicas" in result.stderr


def test_the_environment_names_the_store(tmp_path: Path) -> None:
    result = run("usage", GPULEDGER_STORE_DIR=str(tmp_path / "elsewhere"))
    assert result.exit_code == Exit.NOT_FOUND
    assert str(tmp_path / "elsewhere") in result.stderr


def test_serve_prints_its_settings_with_their_sources(tmp_path: Path) -> None:
    result = run("serve", "--no-kubernetes", f"--store-dir={tmp_path}", "--print-config")
    assert result.exit_code == Exit.OK
    assert "kubernetes = false  # command line" in result.stdout
    assert 'cluster = "local"  # default' in result.stdout


def test_denials_end_commands_by_what_they_mean() -> None:
    codes = {
        reason: denied_error(Denial(reason, "no", transient=False)).status
        for reason in (Reason.QUOTA_EXCEEDED, Reason.LEDGER_UNAVAILABLE, Reason.OVERLOADED)
    }
    assert codes == {
        Reason.QUOTA_EXCEEDED: Exit.DENIED,
        Reason.LEDGER_UNAVAILABLE: Exit.UNREACHABLE,
        Reason.OVERLOADED: Exit.NOT_READY,
    }


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unreachable("NATS at nats://x: no"), Exit.UNREACHABLE),
        (Lost("position 3 is missing"), Exit.FAILED),
        (Full("no room"), Exit.FAILED),
        (StoreBusy("in use"), Exit.NOT_READY),
        (TimeoutError(), Exit.NOT_READY),
        (ExceptionGroup("tasks", [Lost("gone")]), Exit.FAILED),
        (CommandError(Exit.NOT_FOUND, "none"), Exit.NOT_FOUND),
    ],
)
def test_expected_errors_end_a_command_in_one_line(error: Exception, status: Exit) -> None:
    stop = command_error_for(error)
    assert stop is not None
    assert stop.status is status
    assert str(stop)
    assert "\n" not in str(stop)


def test_a_defect_keeps_its_traceback() -> None:
    assert command_error_for(KeyError("oops")) is None


def test_an_option_that_is_not_given_leaves_the_environment_in_force() -> None:
    shown = run("serve", "--print-config", GPULEDGER_NATS="nats://one:4222,nats://two:4222")
    assert 'nats = ["nats://one:4222","nats://two:4222"]  # environment' in shown.stdout
    shown = run("serve", "--print-config", "--nats=nats://three:4222", GPULEDGER_NATS="nats://one")
    assert 'nats = ["nats://three:4222"]  # command line' in shown.stdout


def test_webhook_configurations_need_one_target_and_a_ca(tmp_path: Path) -> None:
    authority = server_certificate.ensure(
        tmp_path / "made", (), server_certificate.utc_now()
    ).authority
    assert run("webhook", "print").exit_code == Exit.USAGE
    missing = run("webhook", "print", "--url=https://ledger:8443", f"--store-dir={tmp_path}")
    assert missing.exit_code == Exit.NOT_FOUND
    assert "--ca" in missing.stderr
    printed = run("webhook", "print", "--service=gpuledger", f"--ca={authority}")
    assert printed.exit_code == Exit.OK
    kinds = [configuration["kind"] for configuration in yaml.safe_load_all(printed.stdout)]
    assert kinds == ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]
