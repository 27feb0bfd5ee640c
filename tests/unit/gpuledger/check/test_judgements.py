"""The findings of `gpuledger check`: one changed fact, one finding that is not ok."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from support.builders.installation_facts import (
    DAY,
    DENIAL,
    authority,
    judged,
    registration,
    replica,
)

from extender.settlement import node_card_health
from extender.settlement.node_card_health import NodeReading, NodeRules
from gpuledger.check.install_facts import AgentSet, ServerIdentity, ServerVersion
from gpuledger.check.install_findings import (
    CheckOutcome,
    Unasked,
    exit_status,
    failed,
    passed,
    warned,
)
from gpuledger.check.probe_pods import ProbeAnswer, ProbeOutcome
from gpuledger.check.registered_webhooks import (
    REQUIRED,
    RegisteredConfiguration,
    RegisteredEntry,
    RegisteredInstallation,
)
from gpuledger.check.replica_reports import (
    ReplicaProblem,
    ReplicaReport,
)
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.cli.release_names import full_name
from ledger.kube.api.objects import ApiNode, NodeStatus, ObjectMeta
from ledger.kube.hami import annotation_keys
from webhook.configurations.webhook_configurations import (
    ReviewScope,
    WebhookAddress,
    configurations,
)
from webhook.kinds.kind_catalog import KindCatalog

OTHER = "gpuledger-b"


def outcomes(**changes: Any) -> dict[str, str]:
    """Return the checks whose outcome is not ok."""
    return {
        name: str(finding.outcome)
        for name, finding in judged(**changes).items()
        if finding.outcome is not CheckOutcome.OK
    }


def test_every_check_passes_where_all_is_well() -> None:
    assert outcomes() == {}


def test_every_finding_that_is_not_ok_has_a_remedy() -> None:
    changed: tuple[dict[str, Any], ...] = (
        {"replicas": []},
        {"replicas": [replica(problem=ReplicaProblem.UNTRUSTED, reason="self-signed")]},
        {"replicas": Unasked("outside", "helm test")},
        {"unanswered": ("no answer",)},
        {"refused": ("403",)},
        {"denied": ProbeAnswer(ProbeOutcome.ALLOWED)},
    )
    for changes in changed:
        for finding in judged(**changes).values():
            assert finding.outcome is CheckOutcome.OK or finding.remedy, finding


@pytest.mark.parametrize(
    ("seconds", "outcome"), [(0, None), (5, "warning"), (-5, "warning"), (60, "failed")]
)
def test_clock_difference_is_judged(seconds: int, outcome: str | None) -> None:
    late = replica(OTHER, date=time.time() + seconds)
    assert outcomes(replicas=[late, replica()]).get("clock") == outcome


def test_clock_of_the_checking_machine_does_not_matter() -> None:
    now = time.time()
    moved = ServerIdentity("admin", now, now + 500)
    assert outcomes(identity=moved, replicas=[replica(date=now, asked=now + 500)]) == {}


@pytest.mark.parametrize(
    ("minor", "outcome"),
    [("29", "failed"), ("30+", None), ("37", None), ("38", "warning"), ("x", "warning")],
)
def test_version_of_the_api_server_is_judged(minor: str, outcome: str | None) -> None:
    version = ServerVersion(f"v1.{minor}.0", "1", minor)
    assert outcomes(version=version).get("api-server") == outcome


@pytest.mark.parametrize(("days", "outcome"), [(60.0, None), (3.0, "warning"), (-1.0, "failed")])
def test_end_of_the_served_certificate_is_judged(days: float, outcome: str | None) -> None:
    ending = {"certificate_expiry_timestamp_seconds": time.time() + days * DAY}
    assert outcomes(replicas=[replica(metrics=ending)]).get("certificates") == outcome


@pytest.mark.parametrize(("days", "outcome"), [(400, None), (30, "warning"), (-1, "failed")])
def test_end_of_the_registered_ca_is_judged(days: int, outcome: str | None, tmp_path: Path) -> None:
    made = registration(_ended(tmp_path, days))
    assert outcomes(registration=made).get("certificates") == outcome


def _ended(folder: Path, days: int) -> bytes:
    if days > 0:
        return authority(folder, timedelta(days=days))
    return _ca_of_the_past()


def _ca_of_the_past() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "past")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(1)
    builder = builder.not_valid_before(now - timedelta(days=9))
    ended = builder.not_valid_after(now - timedelta(days=1)).sign(key, hashes.SHA256())
    return ended.public_bytes(Encoding.PEM)


def test_invalid_ca_bundle_fails() -> None:
    seen = outcomes(registration=registration(b"no PEM"))
    assert seen == {"webhooks": "failed", "certificates": "not asked", "admission": "not asked"}


def test_missing_configuration_fails() -> None:
    made = registration()
    del made.configurations["mutating"]
    finding = judged(registration=made)["webhooks"]
    assert finding.outcome is CheckOutcome.FAILED
    assert "mutatingwebhookconfiguration gpuledger" in finding.observation


def test_second_installation_is_a_warning() -> None:
    made = registration(others=(RegisteredInstallation("old-gpuledger", "cards"),))
    assert outcomes(registration=made) == {"webhooks": "warning"}
    remedy = judged(registration=made)["webhooks"].remedy
    assert remedy.endswith("gpuledger uninstall --full-name old-gpuledger --namespace cards")


def test_webhook_that_fails_open_is_a_warning() -> None:
    made = registration()
    opened = [RegisteredEntry(name, failure_policy="Ignore") for name in REQUIRED]
    kinds = {"validating": RegisteredConfiguration(webhooks=opened)}
    changed = registration(configurations=made.configurations | kinds)
    assert outcomes(registration=changed) == {"webhooks": "warning"}


def test_webhooks_with_different_addresses_fail() -> None:
    made = registration(conflicts=("deployments.validate.gpuledger.io",))
    assert outcomes(registration=made)["webhooks"] == "failed"
    remedy = judged(registration=made)["webhooks"].remedy
    assert "wait 10 s" in remedy
    assert "delete" not in remedy, "no pod is reviewed while the configurations are missing"


@pytest.mark.parametrize(
    ("message", "check"),
    [
        ("x509: certificate signed by unknown authority", "webhooks"),
        ('no endpoints available for service "gpuledger"', "webhooks"),
        ("x509: certificate has expired or is not yet valid", "certificates"),
    ],
)
def test_webhook_without_an_answer_is_explained(message: str, check: str) -> None:
    silent = ProbeAnswer(ProbeOutcome.NOT_ANSWERED, message)
    seen = outcomes(denied=silent, allowed=silent)
    assert [name for name, outcome in seen.items() if outcome == "failed"] == [check]
    assert seen["admission"] == "not asked"
    assert "delete" not in judged(denied=silent, allowed=silent)["webhooks"].remedy


def test_denied_pod_that_is_allowed_fails() -> None:
    assert outcomes(denied=ProbeAnswer(ProbeOutcome.ALLOWED)) == {"admission": "failed"}


def test_allowed_pod_that_is_denied_fails() -> None:
    denied = ProbeAnswer(ProbeOutcome.DENIED, DENIAL)
    assert outcomes(allowed=denied) == {"admission": "failed"}


def test_replica_that_does_not_answer_fails() -> None:
    silent = ReplicaReport(OTHER, ReplicaProblem.UNREACHABLE, "refused")
    assert outcomes(replicas=[replica(), silent]) == {"replicas": "failed"}


def test_service_without_pods_fails() -> None:
    seen = outcomes(replicas=[])
    assert [name for name, outcome in seen.items() if outcome == "failed"] == ["replicas"]
    assert seen["settlement"] == "not asked"


def test_replica_that_refuses_the_token_is_a_missing_right() -> None:
    refusing = ReplicaReport("a", ReplicaProblem.REFUSED, "/metrics answers 403")
    seen = outcomes(replicas=[refusing])
    assert [name for name, outcome in seen.items() if outcome == "failed"] == ["rights"]


def test_outside_the_cluster_replicas_are_not_asked() -> None:
    seen = outcomes(replicas=Unasked("this command runs outside the cluster", "helm test"))
    assert "failed" not in seen.values()
    assert {name for name, outcome in seen.items() if outcome == "not asked"} == {
        "authentication",
        "certificates",
        "clock",
        "durability",
        "identities",
        "log",
        "projection",
        "replicas",
        "settlement",
        "versions",
    }


def test_undecided_denial_outside_the_cluster_is_one_of_the_log() -> None:
    undecided = ProbeAnswer(ProbeOutcome.DENIED, f"{DENIAL} (LedgerUnavailable)")
    seen = outcomes(replicas=Unasked("outside", "helm test"), denied=undecided, allowed=undecided)
    assert [name for name, outcome in seen.items() if outcome == "failed"] == ["log"]


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({"checks": {"ledger": (False, "NATS is away")}}, "log"),
        ({"metrics": {"log_writable": 0.0}}, "log"),
        ({"checks": {"durability": (False, "one server")}}, "durability"),
        ({"checks": {"cluster": (False, "403")}}, "settlement"),
        ({"metrics": {"settler": 0.0}}, "settlement"),
        ({"metrics": {"projection_lag_records": 20_000.0}}, "projection"),
        ({"metrics": {"controllers_not_believed": 1.0}}, "identities"),
        ({"metrics": {"allocators_refused": 1.0}}, "identities"),
        ({"checks": {"authentication": (False, "no client_ca")}}, "authentication"),
        ({"checks": {"stopping": (False, "draining")}}, "replicas"),
    ],
)
def test_report_of_a_replica_fails_its_check(change: dict[str, Any], failing: str) -> None:
    seen = outcomes(replicas=[replica(**change)])
    assert [name for name, outcome in seen.items() if outcome == "failed"] == [failing]


def test_unused_resource_claims_are_a_warning() -> None:
    unused = replica(metrics={"resource_claims_unused": 2.0})
    assert outcomes(replicas=[unused]) == {"settlement": str(CheckOutcome.WARNING)}
    assert "for a day: 2" in judged(replicas=[unused])["settlement"].observation


@pytest.mark.parametrize(
    ("change", "warning"),
    [
        ({"checks": {"log-space": (True, "the log is 80% full")}}, "log"),
        ({"metrics": {"durability_degraded": 1.0}}, "durability"),
        ({"checks": {"follower": (True, "restarted")}}, "projection"),
        ({"checks": {"surroundings": (True, "a policy is invalid")}}, "identities"),
        ({"checks": {"authentication": (True, "no client_ca")}}, "authentication"),
        ({"checks": {"certificate": (True, "the Secret is missing")}}, "certificates"),
        ({"version": "0.0.9"}, "versions"),
    ],
)
def test_report_of_a_replica_warns_in_its_check(change: dict[str, Any], warning: str) -> None:
    assert outcomes(replicas=[replica(**change)]) == {warning: "warning"}


def test_agents_that_are_not_ready_fail() -> None:
    late = AgentSet("gpuledger-nodes/gpuledger-agent", "", wanted=3, ready=2)
    finding = judged(agents=[late])["agents"]
    assert finding.outcome is CheckOutcome.FAILED
    assert "2 of 3 agents" in finding.observation


def test_the_namespace_without_agents_is_named() -> None:
    """Agents of another namespace would not be found."""
    finding = judged(agents=[])["agents"]
    assert finding.outcome is CheckOutcome.OK
    assert "none in gpuledger-nodes; --agent-namespace" in finding.observation


def test_agents_that_no_node_runs_are_a_warning() -> None:
    idle = AgentSet("gpuledger-nodes/gpuledger-agent", "", wanted=0, ready=0)
    assert outcomes(agents=[idle]) == {"agents": "warning"}


def test_namespace_of_the_dry_runs_that_does_not_exist_fails() -> None:
    absent = ProbeAnswer(ProbeOutcome.NO_NAMESPACE, 'namespaces "default" not found')
    finding = judged(denied=absent, allowed=absent)["admission"]
    assert finding.outcome is CheckOutcome.FAILED
    assert "not found" in finding.observation
    assert "--probe-namespace" in finding.remedy


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_missing_webhook_fails(name: str) -> None:
    kinds = {
        kind: RegisteredConfiguration(
            webhooks=[entry for entry in configuration.webhooks or () if entry.name != name]
        )
        for kind, configuration in registration().configurations.items()
    }
    finding = judged(registration=registration(configurations=kinds))["webhooks"]
    assert finding.outcome is CheckOutcome.FAILED
    assert name in finding.observation


def test_required_webhooks_are_those_of_every_registration() -> None:
    scope = ReviewScope(("nvidia.com/gpu",), KindCatalog(()), ("own",))
    written = configurations(WebhookAddress("https://a:1", b"PEM"), scope)
    assert {entry["name"] for each in written for entry in each["webhooks"]} == REQUIRED


def node(**annotations: str) -> NodeReading:
    """Return the reading of a node with these annotations."""
    meta = ObjectMeta(name="n0", annotations=annotations, resource_version="1")
    return node_card_health.read(ApiNode(meta, NodeStatus()), NodeRules())


def test_node_whose_plugin_does_not_answer_fails() -> None:
    asked = "Requesting_2020-01-01 00:00:00"
    register = annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register
    silent = node(**{register: "[]", annotation_keys.HANDSHAKE: asked})
    answered = node(**{register: "[]", annotation_keys.HANDSHAKE: "Reported 2020"})
    assert outcomes(nodes=[answered]) == {}
    assert outcomes(nodes=[answered, silent]) == {"nodes": "failed"}


def test_node_with_an_unreadable_announcement_fails() -> None:
    register = annotation_keys.VENDOR_ANNOTATIONS["nvidia"].register
    assert outcomes(nodes=[node(**{register: "nonsense"})]) == {"nodes": "failed"}


@pytest.mark.parametrize(
    ("release", "name"),
    [("gpuledger", "gpuledger"), ("east", "east-gpuledger"), ("gpuledger-two", "gpuledger-two")],
)
def test_objects_are_named_by_helms_convention(release: str, name: str) -> None:
    assert full_name(release) == name


def test_a_name_of_objects_overrides_the_convention() -> None:
    assert full_name("gpuledger", "east") == "east"


def test_long_names_are_cut_as_the_chart_cuts_them() -> None:
    assert full_name("a" * 27 + "-b") == "a" * 27 + "-gpuledger"
    assert full_name("gpuledger-" + "a" * 30) == "gpuledger-" + "a" * 28


@pytest.mark.parametrize(
    ("release", "override", "option"), [("../x", "", "--release"), ("x", "../x", "--full-name")]
)
def test_invalid_release_is_refused(release: str, override: str, option: str) -> None:
    with pytest.raises(CommandError, match=option):
        full_name(release, override)


def test_findings_amount_to_an_exit_code() -> None:
    well = [passed("a", "x"), warned("b", "x", "y")]
    assert exit_status(well, waited=True) is Exit.OK
    bad = [*well, failed("c", "x", "y")]
    assert exit_status(bad, waited=False) is Exit.FAILED
    assert exit_status(bad, waited=True) is Exit.NOT_READY
