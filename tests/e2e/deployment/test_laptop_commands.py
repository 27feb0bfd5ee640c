"""Commands from a laptop, at a real API server with an aggregation layer.

The kubeconfig is a list of two files; the users have certificates, a plugin or a token.
"""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from support.harness.command_line import COMMAND, Ended, environment

from tests.e2e.deployment.support.aggregation_cluster import API_SERVICE, SOON
from tests.e2e.deployment.test_aggregation import Aggregation, aggregation, certificates, plane
from tests.e2e.harness.controlplane import ADMIN
from tests.e2e.harness.polling import eventually
from tests.e2e.objects.pods import pod

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.asyncio(loop_scope="session")]

VERSION = "client.authentication.k8s.io/v1"

__all__ = ["aggregation", "certificates", "plane"]


def kubeconfig(aggregation: Aggregation, folder: Path, user: dict[str, Any]) -> str:
    """Write two files, and return their list: the first has the context, the second the rest."""
    plane, place = aggregation.plane, {"cluster": "c", "user": "u", "namespace": "team-a"}
    cluster = {"server": plane.url, "certificate-authority": str(plane.ca)}
    first = {"current-context": "x", "contexts": [{"name": "x", "context": place}]}
    second = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    paths = [folder / "first", folder / "second"]
    for path, content in zip(paths, (first, second), strict=True):
        path.write_text(json.dumps(content))
    return os.pathsep.join(map(str, paths))


def plugin_answer(aggregation: Aggregation) -> str:
    """Return the output of a plugin with the certificate of a reader of team-a."""
    pem = Path(aggregation.certificates.user("reader-team-a")).read_text()
    cut = pem.index("-----BEGIN PRIVATE")
    status = {"clientCertificateData": pem[:cut], "clientKeyData": pem[cut:]}
    return json.dumps({"apiVersion": VERSION, "kind": "ExecCredential", "status": status})


async def run(files: str, *arguments: str, program: str = "gpuledger") -> Ended:
    """Run a command with these files of KUBECONFIG."""
    began = await asyncio.create_subprocess_exec(
        str(COMMAND.with_name(program)),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(KUBECONFIG=files),
    )
    async with asyncio.timeout(60):
        out, err = await began.communicate()
    return Ended(began.returncode or 0, out.decode(), err.decode())


@pytest.fixture
def certified(aggregation: Aggregation, tmp_path: Path) -> str:
    """The kubeconfig of a reader of team-a with a certificate."""
    path = aggregation.certificates.user("reader-team-a")
    return kubeconfig(aggregation, tmp_path, {"client-certificate": path, "client-key": path})


async def test_a_reader_sees_the_own_namespace(certified: str) -> None:
    usage = await eventually(
        lambda: run(certified, "usage", "-o", "json"),
        lambda ended: ended.status != 0 or len(ended.json) > 0,
        within=SOON,
        what="the quota is shown",
    )
    assert [(row["namespace"], row["limit"]) for row in usage.json] == [("team-a", 8_000)], usage
    for command in ("holders", "holds", "history", "denials", "drift"):
        ended = await run(certified, command, "-o", "json")
        assert ended.status == 0, (command, ended)
    assert (await run(certified, "usage", "--at", "999999")).status == 3
    listed = await run(certified, "quota", "list", program="kubectl-gpuledger")
    assert (listed.status, "8000" in listed.out) == (0, True), listed


async def test_a_refusal_names_the_missing_right(certified: str) -> None:
    for arguments in (("usage", "-n", "team-b"), ("cards",)):
        ended = await run(certified, *arguments)
        assert (ended.status, ended.out) == (4, ""), ended
        assert (
            f'cannot list resource "{arguments[0]}" in API group "query.gpuledger.io"' in ended.err
        )
        assert f"resources: [{arguments[0]}], verbs: [list]" in ended.err


async def test_a_plugin_and_a_token_are_credentials(
    aggregation: Aggregation, tmp_path: Path
) -> None:
    (tmp_path / "answer").write_text(plugin_answer(aggregation))
    plugin = {"command": "cat", "args": [str(tmp_path / "answer")], "apiVersion": VERSION}
    files = kubeconfig(aggregation, tmp_path, {"exec": plugin | {"interactiveMode": "Never"}})
    assert (await run(files, "holders")).status == 0
    assert (await run(files, "holders", "-n", "team-b")).status == 4
    admin = kubeconfig(aggregation, tmp_path, {"token": aggregation.plane.token(ADMIN)})
    assert (await run(admin, "holders", "-n", "team-b")).status == 0
    for command in ("cards", "waiting", "quota list"):
        assert (await run(admin, *command.split())).status == 0, command
    wrong = await run(kubeconfig(aggregation, tmp_path, {"token": "wrong"}), "holders")
    assert (wrong.status, "log in again" in wrong.err) == (4, True), wrong


async def test_a_pod_is_explained_as_admission_would_decide(certified: str, tmp_path: Path) -> None:
    manifest = tmp_path / "pod.json"
    for memory, status in (("4000", 0), ("9000", 4)):
        manifest.write_text(json.dumps(pod("p", memory=int(memory))))
        ended = await run(certified, "explain", "-f", str(manifest))
        assert ended.status == status, ended
    assert "namespace team-a is not allowed that much GPU memory" in ended.out
    fit = await run(certified, "fit", "-f", str(manifest))
    assert (fit.status, "Nodes and cards are not shown" in fit.err) == (4, True), fit


async def test_a_service_that_is_away_is_named(aggregation: Aggregation, certified: str) -> None:
    aggregation.service.kill()
    away = await run(certified, "usage")
    assert (away.status, "kubectl get apiservice v1.query.gpuledger.io" in away.err) == (5, True), (
        away
    )
    await aggregation.cluster.must("DELETE", API_SERVICE)
    gone = await eventually(
        lambda: run(certified, "usage"),
        lambda ended: ended.status == 3,
        within=SOON,
        what="the API is gone",
    )
    assert "serves no usage of query.gpuledger.io/v1" in gone.err
    aggregation.service.start()
