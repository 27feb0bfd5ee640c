"""Service parts from settings: which log, which rules, which policy."""

import contextlib
import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.wiring import store_layout
from gpuledger.wiring.pseudonym_key import recorded_names
from ledger.kube.requests import gpu_types, namespace_traits
from ledger.kube.requests.card_sizes import CardSizes
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.vendors import vendor_files, vendors
from ledger.log.embedded.nats_server import EmbeddedServer, EmbeddedSettings
from ledger.log.jetstream.connection import Access
from ledger.log.jetstream.jetstream_log import JetStreamLog, JetStreamSettings
from ledger.log.jetstream.push_consumer import STALE_LEADER_SECONDS
from ledger.log.ledger import StateView
from ledger.log.writer.writer_settings import WriterSettings
from ledger.runtime import addresses
from ledger.runtime.settings.settings import Settings
from webhook.api.admission_settings import HAMI_IDENTITIES, AdmissionSettings
from webhook.api.card_schedulers import CardSchedulers
from webhook.configurations.webhook_configurations import ReviewScope
from webhook.context.cluster_context import ClusterContext
from webhook.context.context_informers import ContextSource
from webhook.context.namespace_policies import NamespacePolicy
from webhook.kinds.kind_catalog import KindCatalog, KindError
from webhook.settlement.settlement_session import SettlementSettings

PROJECTION = store_layout.PROJECTION
HEAD = store_layout.HEAD

_OWN_SERVICE_ACCOUNTS: Final = ("gpuledger", "gpuledger-scheduler")
"""Of the manifests in deploy/ and deploy/scheduler; the extender writes Bindings."""


class LogServers(msgspec.Struct, frozen=True):
    """Where the log is: given servers, or the embedded one that was started.

    `domain` is the JetStream domain that has the log, empty for that of the servers themselves, and
    `inbox` the prefix of the subjects of answers. Without `consumers` the log is
    read by single requests.
    """

    urls: tuple[str, ...]
    user: str
    password: str
    monitor_urls: tuple[str, ...]
    domain: str = ""
    inbox: str = "_INBOX"
    consumers: bool = True


_NVIDIAS: Final = ("memory_factor", "default_memory", "default_cores", "default_count")
"""Settings of nvidia's cards, named as the fields of its `Vendor`."""


def prepare(settings: Settings) -> None:
    """Make the store directory, for its owner only. Raises OSError."""
    Path(settings.store_dir).mkdir(mode=0o700, parents=True, exist_ok=True)


def kubeconfig(settings: Settings) -> Path | None:
    """Return the kubeconfig file; None means the service account of the pod."""
    return Path(settings.kubeconfig).expanduser() if settings.kubeconfig else None


@contextlib.asynccontextmanager
async def log_servers(
    settings: Settings,
) -> AsyncIterator[tuple[LogServers, EmbeddedServer | None]]:
    """Give the servers of the settings, or start the embedded one for as long as the block runs."""
    if settings.nats:
        yield _given(settings), None
        return
    server = EmbeddedServer(EmbeddedSettings(store=Path(settings.store_dir)))
    address = await server.start()
    try:
        yield (
            LogServers((address.url,), address.user, address.password, (address.monitor_url,)),
            server,
        )
    finally:
        await server.stop()


def _given(settings: Settings) -> LogServers:
    return LogServers(
        settings.nats,
        settings.nats_user,
        settings.nats_password,
        settings.nats_monitor,
        settings.nats_domain,
    )


async def connect(settings: Settings, servers: LogServers) -> JetStreamLog:
    """Connect to the log. Raises Unreachable."""
    access = Access(
        servers.urls,
        user=servers.user,
        password=servers.password,
        credentials=settings.nats_creds,
        login=settings.nats_login_file,
        ca=settings.nats_ca,
        inbox_prefix=servers.inbox,
    )
    return await JetStreamLog.connect(
        JetStreamSettings(
            access=access,
            shard=settings.shard,
            replicas=settings.replicas,
            max_bytes=settings.log_bytes_max,
            denials_days=settings.denials_days,
            monitor_urls=servers.monitor_urls,
            domain=servers.domain or None,
            production=settings.production,
            consumers=servers.consumers,
        )
    )


def writer_settings(settings: Settings) -> WriterSettings:
    """Return the writer's bounds."""
    return WriterSettings(
        group_commands_max=settings.group_commands_max,
        namespace_bytes_burst=settings.log_namespace_burst,
        namespace_bytes_rate=settings.log_namespace_rate,
        queue_commands_max=settings.queue_commands_max,
        queue_namespace_max=settings.queue_per_namespace_max,
        # The embedded server is alone; only among several can one be behind the others.
        behind_seconds_max=STALE_LEADER_SECONDS if settings.nats else 0.0,
    )


def demand_rules(settings: Settings) -> DemandRules:
    """Return how requests become amounts.

    Raises CommandError naming a vendor, a file of vendors or a type of card that cannot be used.
    """
    try:
        own = vendor_files.load(Path(settings.vendors_file)) if settings.vendors_file else ()
        rules = DemandRules(
            vendors=vendors.select_vendors(settings.vendors, own),
            types=gpu_types.parse_types(settings.gpu_types),
            type_annotations=settings.gpu_type_annotations,
            worst_card_memory=settings.worst_card_memory or None,
            managed=settings.managed_resources,
        )
    except ValueError as error:
        raise CommandError(Exit.USAGE, str(error)) from error
    _check_units(settings, own)
    nvidia = msgspec.structs.replace(
        vendors.NVIDIA,
        memory_factor=settings.memory_factor,
        default_memory=settings.default_memory,
        default_cores=settings.default_cores,
        default_count=settings.default_count,
    )
    return msgspec.structs.replace(
        rules,
        vendors=tuple(nvidia if one is vendors.NVIDIA else one for one in rules.vendors),
    )


def _check_units(settings: Settings, own: Sequence[vendors.Vendor]) -> None:
    """Raise CommandError where settings of nvidia's cards would have no effect beside a file's
    entry."""
    if all(one.name != vendors.NVIDIA.name for one in own):
        return
    for name in _NVIDIAS:
        if getattr(settings, name) != getattr(vendors.NVIDIA, name):
            raise CommandError(
                Exit.USAGE,
                f"{name} {getattr(settings, name)} has no effect, since {settings.vendors_file} has"
                f" an entry nvidia: leave {name} out, and write {_camel(name)} into the entry",
            )


def _camel(field: str) -> str:
    """Return a field's name as a file of vendors has it."""
    first, *others = field.split("_")
    return first + "".join(word.title() for word in others)


def reviewed_resources(settings: Settings) -> tuple[str, ...]:
    """Return the resources whose requests the webhooks are asked about. Raises as demand_rules."""
    rules = demand_rules(settings)
    cards = (name for vendor in rules.vendors for name in vendor.names())
    return (*cards, *rules.besides)


def admission_settings(settings: Settings) -> AdmissionSettings:
    """Return the settings of admission.

    Without a cluster nothing settles by itself, so unsettled creations are not bounded. Raises
    CommandError naming a file with a key that cannot be used.
    """
    return AdmissionSettings(
        deadline=settings.admission_deadline_seconds,
        body_max=settings.review_bytes_max,
        allow_unavailable=settings.on_unavailable == "allow",
        allow_privileged=settings.privileged == "allow",
        owner_holds_max=settings.owner_holds_max if settings.kubernetes else 0,
        trusted=trusted_identities(settings),
        schedulers=card_schedulers(settings),
        universe_authority=settings.universe_authority,
        recorded=recorded_names(settings),
    )


def card_schedulers(settings: Settings) -> CardSchedulers:
    """Return which schedulers place pods on cards."""
    return CardSchedulers(settings.scheduler_name, settings.card_schedulers)


def trusted_identities(settings: Settings, *own: str) -> tuple[str, ...]:
    """Return the user names that may write annotations of allocations.

    `own` are names that this service is known to have. The service accounts of the shipped
    manifests are always among them, for the service and for the extender of its scheduler; HAMi's
    usual ones are, unless a setting excludes them.
    """
    accounts = (
        f"system:serviceaccount:{settings.namespace}:{name}" for name in _OWN_SERVICE_ACCOUNTS
    )
    usual = HAMI_IDENTITIES if settings.trust_hami_defaults else ()
    named = (*usual, *settings.trusted_identities, *accounts, *own)
    return tuple(name for name in dict.fromkeys(named) if name)


def kind_catalog(settings: Settings) -> KindCatalog:
    """Return the kinds of workloads, with the identities of their controllers.

    Raises CommandError naming a file or a setting that cannot be used.
    """
    try:
        kinds = KindCatalog.load(settings.workload_kinds)
        named = {kind.name: kind.controllers for kind in kinds}
        for item in settings.controller_identities:
            name, _, identity = item.partition("=")
            named[name] = (*named.get(name, ()), identity)
        return KindCatalog.load(settings.workload_kinds, named)
    except KindError as error:
        raise CommandError(Exit.USAGE, str(error)) from error


def namespace_policy(settings: Settings) -> NamespacePolicy:
    """Return how namespaces are treated that no LedgerPolicy selects."""
    return NamespacePolicy(
        mode=settings.mode,
        on_exceeded=settings.on_exceeded,
        surge=settings.surge,
        elastic=settings.elastic,
        pods_only=settings.pods_only,
        foreign_holders=settings.foreign_holders,
        exempt_users=settings.exempt_users,
        exempt_groups=settings.exempt_groups,
    )


def cluster_context(
    settings: Settings, view: StateView, cluster: ContextSource | None = None
) -> ClusterContext:
    """Return the context of reviews. Raises as catalog and demand_rules."""
    rules = demand_rules(settings)
    sizes = CardSizes(view, settings.cluster, rules=rules, card_memory_max=settings.card_memory_max)
    return ClusterContext(
        settings.cluster,
        catalog=kind_catalog(settings),
        view=view,
        cluster=cluster,
        default=namespace_policy(settings),
        rules=rules,
        current=sizes.rules,
        doubts=sizes.doubts,
    )


def review_scope(settings: Settings, *own: str) -> ReviewScope:
    """Return the rules of the webhook registration; `own` are the user names of this service.

    Raises as catalog and demand_rules.
    """
    return ReviewScope(
        reviewed_resources(settings),
        kind_catalog(settings),
        exempt_namespaces(settings),
        trusted_identities(settings, *own),
    )


def settlement_settings(settings: Settings) -> SettlementSettings:
    """Return the bounds of settlement and this cluster's traits. Raises as demand_rules."""
    labels = dict(label.partition("=")[::2] for label in settings.cluster_labels)
    return SettlementSettings(
        rules=demand_rules(settings),
        settle_seconds=settings.settle_seconds,
        zero_is_unlimited=settings.zero_is_unlimited,
        cluster_traits=namespace_traits.of_cluster(settings.cluster, settings.region, labels),
        universe_authority=settings.universe_authority,
        write_quota_status=settings.write_quota_status,
    )


def replica_name() -> str:
    """Return a name for this process as a writer, unlike any other's."""
    return f"{socket.gethostname()[:32]}-{os.getpid()}-{secrets.token_hex(3)}"


def own_names(settings: Settings, address: str) -> tuple[str, ...]:
    """Return the names under which this service is reached, for its certificate."""
    names = [addresses.split(address)[0]]
    if settings.register_webhook:
        names.append(urlsplit(settings.register_webhook).hostname or "")
    return tuple(name for name in names if name and name not in ("0.0.0.0", "::"))


def exempt_namespaces(settings: Settings) -> tuple[str, ...]:
    """Return the namespaces whose pods the webhooks never see, the service's own among them."""
    return tuple(dict.fromkeys((settings.namespace, *settings.exempt_namespaces)))
