"""Two replicas as deploy/ ships them: its settings, its log, its secrets, its service account.

Only what a kubelet would give is given here: addresses on loopback, files in folders, a token.
"""

import base64
import json
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import aiohttp
import pytest
import yaml
from support.servers.ports import free_port
from support.servers.shipped_nats import PASSWORD, ShippedServer, shipped_servers

from tests.e2e.harness.controlplane import ADMIN, ControlPlane
from tests.e2e.harness.kubectl import Kubectl, commands_of
from tests.e2e.harness.polling import eventually
from tests.e2e.harness.processes import Child
from tests.e2e.harness.service import COMMAND

pytestmark = pytest.mark.e2e

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "docs" / "how-to" / "kustomize.md").read_text()
OPERATING: Final = (ROOT / "docs" / "how-to" / "operating.md").read_text()
SPACE: Final = "gpuledger-system"
REPLICAS: Final = 2
READY_SECONDS: Final = 90.0
REQUEST_SECONDS: Final = 20.0
WELL: Final = re.compile(r"\[\+\][\w-]+ ok|ok")
"""The message of a check without a finding."""


@pytest.fixture
def plane(assets: Path, tmp_path: Path) -> Iterator[ControlPlane]:
    running = ControlPlane(assets, tmp_path)
    running.start()
    yield running
    running.stop()


@pytest.fixture
def kubectl(assets: Path, plane: ControlPlane, tmp_path: Path) -> Kubectl:
    """Make the namespace, the secrets, the definitions and the account, by the page."""
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT / "deploy", folder / "deploy")
    typist = Kubectl(assets, plane.kubeconfig(ADMIN), folder)
    for heading in ("Secrets", "The server's certificate", "The API server's certificate"):
        typist.type("\n".join(commands_of(PAGE, heading)))
    typist.type("kubectl apply -k deploy")
    return typist


def mount(kubectl: Kubectl, root: Path) -> None:
    """Write the Deployment's Secrets and ConfigMaps below a folder, as the kubelet does below /."""
    spec = kubectl.get(SPACE, "deployment/gpuledger")["spec"]["template"]["spec"]
    paths = {
        mounted["name"]: mounted["mountPath"] for mounted in spec["containers"][0]["volumeMounts"]
    }
    for volume in spec["volumes"]:
        folder = Path(f"{root}{paths[volume['name']]}")
        folder.mkdir(parents=True)
        if "secret" in volume:
            data = kubectl.get(SPACE, f"secret/{volume['secret']['secretName']}")["data"]
            files = {name: base64.b64decode(value) for name, value in data.items()}
        else:
            name = volume.get("configMap", {}).get("name")
            data = kubectl.get(SPACE, f"configmap/{name}")["data"] if name else {}
            files = {name: value.encode() for name, value in data.items()}
        for name, content in files.items():
            (folder / name).write_bytes(content)


def account(kubectl: Kubectl, plane: ControlPlane, path: Path) -> None:
    """Write a kubeconfig with a token of the service's account."""
    config = yaml.safe_load(plane.kubeconfig(ADMIN).read_text())
    token = kubectl.type(f"kubectl -n {SPACE} create token gpuledger").strip()
    config["users"][0]["user"] = {"token": token}
    path.write_text(yaml.safe_dump(config))


class Replica:
    """One process with the shipped settings, of which only addresses and folders are others."""

    def __init__(
        self, root: Path, servers: list[ShippedServer], kubeconfig: Path, number: int
    ) -> None:
        self.url = f"https://127.0.0.1:{free_port()}"
        settings = root / "etc" / "gpuledger" / "config" / "gpuledger.toml"
        text = settings.read_text()
        for index, server in enumerate(servers):
            host = f"gpuledger-nats-{index}.gpuledger-nats"
            text = text.replace(f"nats://{host}:4222", server.url)
            text = text.replace(f"http://{host}:8222", server.monitor_url)
        text = text.replace("0.0.0.0:8443", self.url.removeprefix("https://"))
        text = text.replace("/var/lib/gpuledger", f"{root}/store-{number}")
        own = root / f"replica-{number}.toml"
        own.write_text(text.replace("/etc/", f"{root}/etc/"))
        environment = os.environ | {
            "GPULEDGER_CONFIG": str(own),
            "GPULEDGER_NATS_PASSWORD": PASSWORD,
            "GPULEDGER_KUBECONFIG": str(kubeconfig),
        }
        log = root / f"replica-{number}.log"
        self.child = Child("gpuledger", [str(COMMAND), "serve"], log, environment)

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Ask the replica as a probe does, which checks no certificate.

        It is on this machine; a Host of another name makes it ask as others do.
        """
        assert self.child.runs, self.child.state()
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self.url + path, ssl=False, headers=headers) as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientError as error:
            return 0, f"{error}; {self.child.state()}"


@pytest.fixture
def replicas(kubectl: Kubectl, plane: ControlPlane, tmp_path: Path) -> Iterator[list[Replica]]:
    mount(kubectl, tmp_path)
    kubeconfig = tmp_path / "account.kubeconfig"
    account(kubectl, plane, kubeconfig)
    with shipped_servers(tmp_path / "log") as servers:
        running = [Replica(tmp_path, servers, kubeconfig, number) for number in range(REPLICAS)]
        yield running
        for replica in running:
            replica.child.stop()


async def test_all_replicas_become_ready_for_production_without_a_warning(
    replicas: list[Replica],
) -> None:
    for replica in replicas:
        # The settling replica is chosen a moment after the first replica is ready, with a warning.
        await eventually(
            partial(replica.get, "/readyz?verbose"),
            lambda answer: answer[0] == 200 and all(map(WELL.fullmatch, answer[1].splitlines())),
            within=READY_SECONDS,
            what="a replica is ready, and warns of nothing",
        )
    metrics = [(await replica.get("/metrics"))[1] for replica in replicas]
    assert sum("gpuledger_settler 1.0" in text for text in metrics) == 1
    assert all("gpuledger_durability_degraded 0.0" in text for text in metrics)


async def test_reviews_are_taken_from_the_api_server_only(replicas: list[Replica]) -> None:
    status, text = await eventually(
        lambda: replicas[0].get("/admission/validate"),
        lambda answer: answer[0] != 0,
        within=READY_SECONDS,
        what="the replica answers",
    )
    assert status == 403, text


async def test_metrics_are_read_with_the_right_to_and_probes_without(
    replicas: list[Replica], kubectl: Kubectl
) -> None:
    kubectl.type("kubectl create namespace monitoring")
    tokens = {}
    for name in ("prometheus", "stranger"):
        kubectl.type(f"kubectl -n monitoring create serviceaccount {name}")
        tokens[name] = kubectl.type(f"kubectl -n monitoring create token {name}").strip()
    [binding] = [
        command for command in commands_of(OPERATING, "Scraping") if "clusterrolebinding" in command
    ]
    kubectl.type(binding)
    replica, host = replicas[0], "gpuledger.example"

    def asked(path: str, token: str = "") -> Callable[[], Awaitable[tuple[int, str]]]:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return lambda: replica.get(path, host=host, **headers)

    for path, text in (("/metrics", "gpuledger_build_info"), ("/readyz?verbose", "]ledger")):
        allowed = await eventually(
            asked(path, tokens["prometheus"]),
            lambda answer: answer[0] in (200, 503) and "shows all tenants" not in answer[1],
            within=READY_SECONDS,
            what="who may get /metrics reads it",
        )
        assert text in allowed[1]
        assert (await asked(path, tokens["stranger"])())[0] == 403
        assert (await asked(path, "forged")())[0] == 401
        assert (await asked(path)())[0] == 401
    _, probed = await eventually(
        asked("/readyz"), lambda answer: answer[0] == 200, within=READY_SECONDS, what="it is ready"
    )
    assert all(not check["reason"] for check in json.loads(probed)["checks"])
