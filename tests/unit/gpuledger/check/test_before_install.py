"""Findings of `gpuledger check --before-install` about StorageClasses and owners of names."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

import pytest
from support.builders.installation_facts import SITE
from support.fakes.apiserver import client_on_loopback
from support.fakes.canned_apiserver import CannedApiServer

from gpuledger.check.before_install import check_before_install
from gpuledger.check.install_findings import InstallFinding
from ledger.kube.client.api_client import ApiClient
from ledger.runtime.settings.settings import Settings

CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
CLAIM: Final = "/api/v1/namespaces/gpu/persistentvolumeclaims/data-gpuledger-nats-0"
DEFAULT: Final = {"storageclass.kubernetes.io/is-default-class": "true"}


@pytest.fixture
def answers() -> CannedApiServer:
    return CannedApiServer()


@pytest.fixture
async def client(answers: CannedApiServer, tmp_path: Path) -> AsyncIterator[ApiClient]:
    async with client_on_loopback(answers.app(), tmp_path) as connected:
        yield connected


async def storage(
    client: ApiClient, *classes: str, settings: Settings | None = None
) -> InstallFinding:
    return await finding_of(client, "storage", classes, settings)


async def finding_of(
    client: ApiClient, check: str, classes: Sequence[str] = (), settings: Settings | None = None
) -> InstallFinding:
    """Return the finding of one check."""
    findings = await check_before_install(
        client, SITE, settings or Settings(), "gpuledger", classes
    )
    [finding] = [each for each in findings if each.check == check]
    return finding


def offer(answers: CannedApiServer, *names: str, default: str = "") -> None:
    """Let the API server have these classes."""
    answers.by_path[CLASSES] = {
        "items": [
            {"metadata": {"name": name, "annotations": DEFAULT if name == default else {}}}
            for name in names
        ]
    }


@pytest.mark.parametrize(
    ("default", "classes", "outcome"),
    [
        ("slow", (), "ok"),
        ("", (), "warning"),
        ("", ("fast",), "ok"),
        ("slow", ("fast", ""), "ok"),
        ("slow", ("fats",), "failed"),
        ("slow", ("", "fats"), "failed"),
        ("", ("fast", ""), "warning"),
    ],
)
async def test_classes_of_the_volumes_are_asked_for(
    client: ApiClient,
    answers: CannedApiServer,
    default: str,
    classes: tuple[str, ...],
    outcome: str,
) -> None:
    offer(answers, "fast", "slow", default=default)
    finding = await storage(client, *classes)
    assert finding.outcome == outcome, finding
    assert ("no StorageClass fats" in finding.observation) == ("fats" in classes)


async def test_class_of_an_existing_volume_may_be_absent(
    client: ApiClient, answers: CannedApiServer
) -> None:
    offer(answers, "slow")
    answers.by_path[CLAIM] = {"metadata": {"name": "data-gpuledger-nats-0"}}
    assert (await storage(client)).outcome == "ok"
    assert (await storage(client, "fast")).outcome == "warning"


async def test_log_servers_of_the_settings_need_no_class(
    client: ApiClient, answers: CannedApiServer
) -> None:
    external = Settings(nats=("nats://nats.example:4222",))
    assert (await storage(client, settings=external)).outcome == "ok"
    offer(answers, "slow")
    assert (await storage(client, "fast", settings=external)).outcome == "failed"


async def test_wrong_namespace_is_named_for_an_installed_release(
    client: ApiClient, answers: CannedApiServer
) -> None:
    owner = {
        "meta.helm.sh/release-name": "gpuledger",
        "meta.helm.sh/release-namespace": "cards",
    }
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpuledger"
    answers.by_path[role] = {"metadata": {"name": "gpuledger", "annotations": owner}}
    remedy = (await finding_of(client, "names")).remedy
    assert remedy.startswith("for the release in cards give --namespace cards; otherwise ")
