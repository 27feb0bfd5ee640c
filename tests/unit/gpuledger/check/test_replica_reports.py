"""Replica reports: which replicas are asked, and how their answers are read."""

from gpuledger.check.replica_reports import (
    ReplicaAddress,
    ReplicaProblem,
    ask_replicas,
    checks,
    samples,
)


def test_readiness_and_metrics_are_read_as_the_service_writes_them() -> None:
    text = "[+]log-space ok: 80% full\n[-]ledger failed: away\n[+]cluster ok\nfailing\n"
    assert checks(text) == {
        "log-space": (True, "80% full"),
        "ledger": (False, "away"),
        "cluster": (True, ""),
    }
    exported = (
        'gpuledger_build_info{version="0.1.0"} 1.0\ngpuledger_settler 1.0\n# HELP x\n'
        "gpuledger_log_position many\n"
    )
    assert samples(exported) == ({"settler": 1.0}, "0.1.0")


async def test_token_is_sent_to_no_replica_without_a_bundle() -> None:
    address = ReplicaAddress("a", "https://127.0.0.1:1")
    [report] = await ask_replicas([address], b"", "token")
    assert report.problem is ReplicaProblem.UNTRUSTED
    [report] = await ask_replicas([address], b"", "")
    assert report.problem is ReplicaProblem.UNREACHABLE


async def test_replicas_beyond_the_bound_are_reported() -> None:
    addresses = [ReplicaAddress(str(number), "https://127.0.0.1:1") for number in range(66)]
    reports = await ask_replicas(addresses, b"", "")
    assert [report.name for report in reports] == [address.name for address in addresses]
    assert "not asked" in reports[-1].reason
