"""One-time HAMi import: reads the nodes and pods of a cluster once and records them.

The report has the settings with which the webhooks trust the accounts of HAMi.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import structs

from extender.settlement.hami.hami_import import ACTOR, HamiImporter, ImportProblem, ImportReport
from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.storage.open_log import open_log, submit, writer_on
from gpuledger.storage.projection_catch_up import show_written
from gpuledger.wiring import (
    admission_from_settings,
    api_client_from_settings,
    demand_rules_from_settings,
    settlement_from_settings,
    trusted_identities,
)
from ledger.core import snapshot_format
from ledger.core.decide.decider import decide
from ledger.core.evolve.evolver import evolve
from ledger.core.model.commands import AnyCommand, RegisterCluster
from ledger.core.model.denials import Denial
from ledger.core.model.state import State
from ledger.kube.api.cluster_errors import ClusterError, NoCredentials
from ledger.kube.api.objects import ApiNode, Pod
from ledger.kube.client.api_client import ApiClient
from ledger.kube.cluster import hami_accounts
from ledger.kube.cluster.hami_accounts import HamiAccounts
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.log.writer.writer import Writer
from ledger.runtime.settings.settings import Settings
from webhook.settlement import observation_commands, pod_observation

Decide = Callable[[AnyCommand], Awaitable[Denial | None]]


async def import_hami(settings: Settings, *, dry_run: bool) -> ImportReport:
    """Import nodes and bound pods. Raises ClusterError, CommandError, and what finding the log
    raises.

    A dry run decides on a copy of the state and writes nothing.
    """
    uid, nodes, pods, accounts = await _read(settings)
    done = await _take(settings, uid, nodes, pods, dry_run=dry_run)
    return with_accounts(settings, done, accounts)


async def _take(
    settings: Settings, uid: str, nodes: list[ApiNode], pods: list[Pod], *, dry_run: bool
) -> ImportReport:
    if dry_run:
        state = await _copied(settings)
        importing = _importing(settings, lambda: state, _rehearsing(state))
        return await importing.take(nodes, pods, datetime.now(UTC), dry_run=True)
    async with open_log(settings, create=True) as opened:
        async with writer_on(settings, opened) as writer:
            await submit(writer, RegisterCluster(settings.cluster, uid, ACTOR))
            importing = _importing(settings, lambda: writer.state, _writing(writer))
            done = await importing.take(nodes, pods, datetime.now(UTC), dry_run=False)
            position = writer.state.position
        await show_written(settings, opened, position)
    return done


async def _copied(settings: Settings) -> State:
    """Return a copy of the ledger's state, or of its initial state if there is no ledger yet."""
    try:
        async with open_log(settings) as opened, writer_on(settings, opened) as writer:
            return snapshot_format.decode(snapshot_format.encode(writer.state))
    except CommandError as stop:
        if stop.status is not Exit.NOT_FOUND:
            raise
        return State()


def with_accounts(
    settings: Settings, done: ImportReport, accounts: HamiAccounts | ImportProblem
) -> ImportReport:
    """Return an import with HAMi's accounts, or with the reason why they are unknown."""
    if isinstance(accounts, ImportProblem):
        return structs.replace(done, problems=(*done.problems, accounts))
    trusted = trusted_identities.trusted_identities(settings)
    schedulers = admission_from_settings.card_schedulers(settings).names
    users = [account.user for account in accounts.proven if account.user not in trusted]
    names = [
        account.scheduler
        for account in accounts.proven
        if account.scheduler not in ("", *schedulers)
    ]
    lines = (
        _line("trusted_identities", settings.trusted_identities, users),
        _line("card_schedulers", settings.card_schedulers, names),
    )
    return structs.replace(done, accounts=accounts, settings=tuple(filter(None, lines)))


def _line(name: str, before: Sequence[str], more: Sequence[str]) -> str:
    """Return a line for a setting with present and further values, "" without further ones."""
    # A JSON string is a TOML string, too.
    named = [msgspec.json.encode(value).decode() for value in dict.fromkeys((*before, *more))]
    return f"{name} = [{', '.join(named)}]" if more else ""


async def _accounts(client: ApiClient) -> HamiAccounts | ImportProblem:
    """Return HAMi's accounts, or the reason why they are unknown."""
    try:
        return await hami_accounts.find_accounts(client)
    except (ClusterError, ConnectionError) as error:
        return ImportProblem(
            "accounts", "of HAMi", f"{error}; to find them, {hami_accounts.RIGHTS}"
        )


async def _read(
    settings: Settings,
) -> tuple[str, list[ApiNode], list[Pod], HamiAccounts | ImportProblem]:
    """Return the cluster's identity, nodes, pods and HAMi's accounts. Raises ClusterError,
    CommandError."""
    try:
        connected = await api_client_from_settings.connect(settings)
    except NoCredentials as error:
        raise CommandError(
            Exit.USAGE, f"{error.problem}; name a readable kubeconfig with --kubeconfig"
        ) from error
    async with connected as client:
        cluster = KubernetesCluster(client)
        uid = await cluster.kube_system_uid()
        nodes = await cluster.list_nodes()
        pods = await cluster.list_pods("")
        return uid, nodes.objects, pods.objects, await _accounts(client)


def _importing(settings: Settings, state: Callable[[], State], decided: Decide) -> HamiImporter:
    rules = demand_rules_from_settings.demand_rules(settings)

    async def make_known(pod: Pod) -> Denial | None:
        now = time.time_ns() // 1_000
        seen = pod_observation.observe_pod(pod, settings.cluster, rules, now, deleted=False)
        entry = state().entry(seen.namespace, seen.key)
        if entry is not None and entry.holds_uid(seen.uid):
            return None
        return await decided(observation_commands.command_for(seen, ACTOR))

    node_rules = settlement_from_settings.node_rules(settings)
    return HamiImporter(
        settings.cluster,
        rules=rules,
        node_rules=node_rules,
        state=state,
        decide=decided,
        make_known=make_known,
    )


def _writing(writer: Writer) -> Decide:
    """Return the function that decides commands and appends them."""

    async def decided(command: AnyCommand) -> Denial | None:
        answer = await writer.submit(command)
        return answer if isinstance(answer, Denial) else None

    return decided


def _rehearsing(state: State) -> Decide:
    """Return the function that decides commands on a copy of the state."""

    async def decided(command: AnyCommand) -> Denial | None:
        decision = decide(state, command)
        if isinstance(decision, Denial):
            return decision
        for event in decision:
            evolve(state, event, state.time)
        return None

    return decided
