"""Check run: all findings about an installation, once or until none has failed."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from extender.settlement.node_card_health import NodeRules
from gpuledger.check import cluster_judgements, node_judgements, replica_judgements
from gpuledger.check.before_install import check_before_install
from gpuledger.check.install_facts import CheckedSite, InstallFacts, gather
from gpuledger.check.install_findings import InstallFinding, have_failed
from gpuledger.cli import release_names
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring import api_client_from_settings
from gpuledger.wiring.demand_rules_from_settings import demand_rules
from ledger.kube.api.cluster_errors import NoCredentials
from ledger.kube.client.api_client import ApiClient
from ledger.runtime.settings.settings import Settings

PAUSE_SECONDS: Final = 1.0
"""Pause between two runs of a check that waits."""

RUN_SECONDS: Final = 90.0
"""Deadline of one run; each question has a shorter one."""

Ask = Callable[[], Awaitable[list[InstallFinding]]]


def site_of(settings: Settings, name: str, *, probes: str, agents: str) -> CheckedSite:
    """Return the installation that settings and options name.

    Without a namespace of the agents, it is that of the chart and of the manifests.
    """
    rules = demand_rules(settings)
    return CheckedSite(
        namespace=settings.namespace,
        name=name,
        agents=agents or f"{name}-nodes",
        probes=probes,
        vendor=rules.vendors[0],
        rules=NodeRules(vendors=rules.vendors),
        inside=not settings.kubeconfig,
    )


async def connect(settings: Settings) -> ApiClient:
    """Return a client of the API server. Raises CommandError without usable credentials."""
    try:
        return await api_client_from_settings.connect(settings)
    except NoCredentials as error:
        raise CommandError(
            Exit.USAGE, f"{error.problem}; name a readable kubeconfig with --kubeconfig"
        ) from error


async def check_installation(
    settings: Settings,
    *,
    release: str,
    full_name: str = "",
    agent_namespace: str = "",
    probes: str,
    wait_seconds: float,
    before_install: bool = False,
    storage_classes: Sequence[str] = (),
) -> list[InstallFinding]:
    """Return the findings about an installation, or about a cluster before one.

    With `wait_seconds`, the check is repeated until none has failed or the time is over. Raises
    CommandError, and TimeoutError if no run ends in time.
    """
    name = release_names.full_name(release, full_name)
    site = site_of(settings, name, probes=probes, agents=agent_namespace)
    async with await connect(settings) as client:

        async def ask() -> list[InstallFinding]:
            if before_install:
                return await check_before_install(client, site, settings, release, storage_classes)
            return judge(await gather(client, site))

        return await until_passed(ask, wait_seconds)


async def until_passed(ask: Ask, wait_seconds: float) -> list[InstallFinding]:
    """Return the first findings without a failure, or the last within the time.

    A run that takes too long is repeated. Raises TimeoutError if no run ended.
    """
    clock = asyncio.get_running_loop().time
    end = clock() + wait_seconds
    last: list[InstallFinding] | None = None
    while True:
        try:
            async with asyncio.timeout(RUN_SECONDS):
                last = await ask()
            if not have_failed(last):
                return last
        except TimeoutError:
            if last is None and clock() + PAUSE_SECONDS > end:
                raise
        if last is not None and clock() + PAUSE_SECONDS > end:
            return last
        await asyncio.sleep(PAUSE_SECONDS)


def judge(facts: InstallFacts) -> list[InstallFinding]:
    """Return all findings: those that explain others come first."""
    server = cluster_judgements.judge_api_server(facts)
    certificates = replica_judgements.judge_certificates(facts)
    webhooks = cluster_judgements.judge_webhooks(facts)
    log = replica_judgements.judge_log(facts)
    settlement = replica_judgements.judge_settlement(facts, log)
    return [
        server,
        cluster_judgements.judge_rights(facts),
        webhooks,
        certificates,
        replica_judgements.judge_replicas(facts),
        log,
        replica_judgements.judge_durability(facts, log),
        settlement,
        replica_judgements.judge_projection(facts, log),
        cluster_judgements.judge_admission(facts, webhooks, log, settlement),
        replica_judgements.judge_identities(facts),
        cluster_judgements.judge_clock(facts),
        replica_judgements.judge_authentication(facts),
        node_judgements.judge_agents(facts),
        node_judgements.judge_nodes(facts),
        replica_judgements.judge_versions(facts),
    ]
