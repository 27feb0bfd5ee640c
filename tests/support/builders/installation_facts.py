"""Facts of an installation where all is well, for tests that change one of them."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from extender.settlement.node_card_health import NodeRules
from gpuledger.check.check_run import judge
from gpuledger.check.install_facts import (
    CheckedSite,
    InstallFacts,
    ServerIdentity,
    ServerVersion,
)
from gpuledger.check.install_findings import InstallFinding
from gpuledger.check.probe_pods import ProbeAnswer, ProbeOutcome
from gpuledger.check.registered_webhooks import (
    REQUIRED,
    CalledService,
    RegisteredConfiguration,
    RegisteredEntry,
    RegisteredWebhooks,
)
from gpuledger.check.replica_reports import ReplicaReport
from gpuledger.version import VERSION
from ledger.kube.vendors.vendors import NVIDIA
from ledger.runtime.tls import certificate_authority, server_certificate

DAY = 86_400.0
SITE = CheckedSite(
    namespace="gpu",
    name="gpuledger",
    agents="gpuledger-nodes",
    probes="default",
    vendor=NVIDIA,
    rules=NodeRules(),
    inside=True,
)
DENIAL = 'admission webhook "pods.validate.gpuledger.io" denied the request: InvalidQuantity'


def authority(folder: Path, ends_in: timedelta = certificate_authority.AUTHORITY_LIFE) -> bytes:
    """Return a CA, PEM, that ends after so long."""
    made = server_certificate.utc_now() - certificate_authority.AUTHORITY_LIFE + ends_in
    server_certificate.ensure(folder, (), made)
    return (folder / "ca.crt").read_bytes()


def replica(name: str = "gpuledger-a", **changes: Any) -> ReplicaReport:
    """Return the report of a replica without findings."""
    now = time.time()
    metrics = {
        "log_writable": 1.0,
        "log_position": 7.0,
        "settler": 1.0,
        "certificate_expiry_timestamp_seconds": now + 60 * DAY,
    }
    metrics |= changes.pop("metrics", {})
    whole = ReplicaReport(name, metrics=metrics, version=VERSION, date=now, asked=now)
    return replace(whole, **changes)


def registration(pem: bytes = b"", **changes: Any) -> RegisteredWebhooks:
    """Return both configurations, registered with a CA."""
    entries = [RegisteredEntry(name, failure_policy="Fail") for name in sorted(REQUIRED)]
    kinds = {
        "mutating": RegisteredConfiguration(webhooks=entries[-2:-1]),
        "validating": RegisteredConfiguration(webhooks=[*entries[:-2], *entries[-1:]]),
    }
    return replace(
        RegisteredWebhooks(kinds, service=CalledService("gpu", "gpuledger"), authority=pem),
        **changes,
    )


def facts(**changes: Any) -> InstallFacts:
    """Return the facts of an installation where all is well, but for the changes."""
    now = time.time()
    whole = InstallFacts(
        site=SITE,
        address="https://10.0.0.1",
        version=ServerVersion("v1.36.3", "1", "36"),
        identity=ServerIdentity("admin", now, now),
        registration=registration(),
        replicas=[replica()],
        allowed=ProbeAnswer(ProbeOutcome.ALLOWED),
        denied=ProbeAnswer(ProbeOutcome.DENIED, DENIAL),
        nodes=[],
        agents=[],
        refused=(),
        unanswered=(),
    )
    return replace(whole, **changes)


def judged(**changes: Any) -> dict[str, InstallFinding]:
    """Return the findings about these facts, by the names of their checks."""
    return {finding.check: finding for finding in judge(facts(**changes))}
