"""A command imports what it uses, and no servers: each import is in the start of each command."""

import subprocess
import sys

SCRIPT = """
import sys
import gpuledger.command_line
import gpuledger.storage.audit_runs
print(*sorted({name.partition(".")[0] for name in sys.modules}))
print(*sorted(name for name in sys.modules if name.startswith("webhook.")))
"""


def test_an_audit_imports_no_server_and_no_webhook() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=True
    )
    packages, webhook = done.stdout.splitlines()
    assert {"nats", "ledger"} <= set(packages.split())
    assert not {"uvicorn", "starlette", "cryptography"} & set(packages.split())
    assert set(webhook.split()) <= {"webhook.settlement", "webhook.settlement.operator_outcomes"}
