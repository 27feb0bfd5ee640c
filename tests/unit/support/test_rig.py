"""The rig of `make e2e-install`: rules and names that it makes, and its refusal to run."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.harness.waiting import until

from tests.e2e.install.rig import cgroups, cluster_dns, service_forwarding
from tests.e2e.install.rig.assets import CONTROL_PLANE_VARIABLE, NODE_VARIABLE, missing
from tests.e2e.install.rig.namespaces import FOLDERS

ROOT = Path(__file__).parents[3]
SERVICES = "10.96.0.0/16"


def service(name: str, address: str = "10.96.0.7") -> dict[str, Any]:
    spec = {"clusterIP": address, "ports": [{"name": "https", "port": 443}]}
    return {"metadata": {"namespace": "shop", "name": name}, "spec": spec}


def endpoint_slice(name: str, *endpoints: dict[str, Any]) -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": name}
    return {
        "metadata": {"namespace": "shop", "name": f"{name}-1", "labels": labels},
        "ports": [{"name": "https", "port": 8443}, {"name": "metrics", "port": 9}],
        "endpoints": list(endpoints),
    }


def endpoint(address: str, **conditions: bool) -> dict[str, Any]:
    hostname = f"pod-{address[-1]}"
    return {"addresses": [address], "conditions": conditions, "hostname": hostname}


READY = endpoint("10.244.1.2", ready=True)
LEAVING = endpoint("10.244.1.3", ready=False, serving=True, terminating=True)
DEAD = endpoint("10.244.1.4", ready=False, serving=False, terminating=True)


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ([READY, LEAVING, DEAD], ["10.244.1.2"]),
        ([LEAVING, DEAD], ["10.244.1.3"]),
        ([DEAD], []),
        ([], []),
    ],
)
def test_connections_go_to_ready_endpoints_else_to_serving_ones(
    endpoints: list[dict[str, Any]], expected: list[str]
) -> None:
    slices = [endpoint_slice("web", *endpoints), endpoint_slice("other", READY)]
    (port,) = service_forwarding.service_ports([service("web")], slices)
    assert port.endpoints == tuple((address, 8443) for address in expected)
    rules = service_forwarding.ruleset([port], SERVICES)
    assert ("dport 443" in rules) is bool(expected)
    assert f"ip daddr {SERVICES} reject" in rules


def test_a_headless_service_has_no_rules_but_names_of_its_ready_pods() -> None:
    headless, slices = service("db", "None"), [endpoint_slice("db", READY, LEAVING)]
    assert service_forwarding.service_ports([headless], slices) == []
    names = cluster_dns.hosts([headless, service("web")], slices)
    assert names.splitlines() == [
        "10.244.1.2 db.shop.svc.cluster.local",
        "10.244.1.2 pod-2.db.shop.svc.cluster.local",
        "10.96.0.7 web.shop.svc.cluster.local",
    ]


@pytest.mark.parametrize("absent", [CONTROL_PLANE_VARIABLE, NODE_VARIABLE])
def test_tests_skip_and_name_the_variable_that_is_not_set(absent: str) -> None:
    wanted = dict.fromkeys((CONTROL_PLANE_VARIABLE, NODE_VARIABLE), "/nonexistent")
    kept = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    env = {**kept, **wanted}
    del env[absent]
    folder = "tests/e2e/install"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder]
    done = subprocess.run(
        [sys.executable, "-m", "tests.e2e.install.enter", *command],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reason = absent if os.geteuid() == 0 else "not root"
    assert f"!!! no rig: {reason}" in done.stderr
    (skipped,) = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert reason in skipped


RIG_ENVIRONMENT = dict(os.environ)
"""As it was at import, with the variables that tests remove."""

IN_A_RIG = """
import os, time
from tests.e2e.install.rig import assets, cgroups
name = assets.rig_name()
cgroups.make(name)
(cgroups.ROOT / "pids" / name / "cgroup.procs").write_text(str(os.getpid()))
print(name, flush=True)
time.sleep(600)
"""


def test_nothing_remains_of_a_killed_rig() -> None:
    if reason := missing():
        pytest.skip(reason)
    command = [sys.executable, "-m", "tests.e2e.install.enter", sys.executable, "-c", IN_A_RIG]
    with subprocess.Popen(
        command, cwd=ROOT, env=RIG_ENVIRONMENT, stdout=subprocess.PIPE, text=True
    ) as entered:
        assert entered.stdout is not None
        name = entered.stdout.readline().strip()
        remains = [FOLDERS / name, *(folder / name for folder in cgroups.ROOT.iterdir())]
        remains = [path for path in remains if path.exists()]
        assert len(remains) > 1
        entered.kill()
    asyncio.run(until(lambda: not any(path.exists() for path in remains)))
