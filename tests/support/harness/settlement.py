"""Settlement: a real writer, a model of a cluster, and real settlement between the two."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from support.builders.cluster_contexts import cluster_context
from support.fakes.apiserver import FakeApiServer
from support.fakes.full_cluster import FullCluster
from support.harness.replicas import running

from ledger.core.model import accounts, commands
from ledger.core.model.commands import AnyCommand, Reserve
from ledger.core.model.state import Entry, State
from ledger.kube.requests import namespace_traits
from ledger.kube.requests.confirmed_card_sizes import CardSizes
from ledger.kube.requests.demand_rules import DemandRules
from ledger.kube.watch import failed_objects
from ledger.log.command_delivery import CommandQueue
from ledger.log.ledger_port import Accepted, Ledger
from ledger.log.memory_log import MemoryStore
from ledger.log.records import Record
from ledger.log.writer.writer import Writer
from webhook.active_replica import Settlement, StartListener
from webhook.gates.gate_opener import GateOpener
from webhook.kinds.kind_catalog import KindCatalog
from webhook.settlement.charge_settlement_session import SettlementSession, SettlementSettings, Site
from webhook.settlement.invalid_objects import InvalidObjects
from webhook.settlement.open_attempt_ages import AttemptAges
from webhook.settlement.pod_reconciler import PodReconciler
from webhook.settlement.resource_claims.claims_by_owner import ClaimsByOwner
from webhook.settlement.resource_claims.pod_claims import PodClaims

CLUSTER = "c"
DEMAND = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 10, "nvidia.com/gpumem": 1000}
RULES = DemandRules(worst_card_memory=80_000)
DEADLINE_SECONDS = 30.0


class World:
    """A ledger, a cluster and settlement, for tests to change. `now` is in µs of Unix time."""

    def __init__(
        self,
        writer: Writer,
        settings: SettlementSettings,
        cluster: FullCluster | None = None,
        listeners: Sequence[StartListener] = (),
    ) -> None:
        self.writer = writer
        self.settings = settings
        self.cluster = cluster or FullCluster(FakeApiServer())
        self.server = self.cluster.server
        self.context = cluster_context(
            CLUSTER,
            writer,
            catalog=KindCatalog.load(),
            rules=settings.rules,
            cluster=self.cluster,
            current=CardSizes(writer, CLUSTER, rules=settings.rules).rules,
        )
        self.active = True
        self.now = 1_800_000_000_000_000
        self.asked: list[AnyCommand] = []
        self.counted: Counter[tuple[str, ...]] = Counter()
        self.fails = False
        """Whether the test plants a defect that makes objects fail."""
        self.settlement = Settlement(
            self,
            writer,
            site=Site(self.cluster, self.context),
            now=lambda: self.now,
            is_active=lambda: self.active,
            settings=settings,
            count=self.count,
            listeners=listeners,
        )
        self._applied = asyncio.Event()
        writer.subscribe(self._wake)

    @property
    def drift(self) -> dict[str, int]:
        """The counts of drift, by cause."""
        counts = self.counted.items()
        return {labels[0]: many for (name, *labels), many in counts if name == "drift_total"}

    def count(self, name: str, *labels: str) -> None:
        """Count as the metrics would."""
        self.counted[name, *labels] += 1

    @property
    def state(self) -> State:
        return self.writer.state

    async def submit(self, command: AnyCommand, *, dry_run: bool = False):
        """Pass settlement's commands on, and note them."""
        self.asked.append(command)
        return await self.writer.submit(command, dry_run=dry_run)

    async def reserve(self, name: str, uid: str, *, base: int = commands.CREATE, **fields) -> None:
        fields = {"namespace": f"{CLUSTER}/red", "demand": DEMAND} | fields
        command = Reserve(key=f"pods/{name}", uid=uid, base=base, **fields)
        assert isinstance(await self.writer.submit(command), Accepted)

    def entry(self, name: str, namespace: str = f"{CLUSTER}/red") -> Entry | None:
        return self.state.entry(namespace, f"pods/{name}")

    def root(self, key: str, namespace: str = f"{CLUSTER}/red") -> Entry | None:
        """Return the ledger's entry of a key, such as `deployments.apps/web`."""
        return self.state.entry(namespace, key)

    def used(self, account: str, key: str) -> int:
        """Return the used amount of a line of an account."""
        return self.state.used[self.state.accounts[account].lines[key]]

    def limits(self, quota: str) -> dict[str, int] | None:
        account = self.state.accounts.get(accounts.quota(CLUSTER, "red", quota))
        if account is None:
            return None
        return {key: self.state.limit[number] for key, number in account.lines.items()}

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is looked at again after every record."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not holds():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self._applied.wait()

    async def synced(self) -> None:
        """Wait until settlement has received everything that exists."""
        await self.until(lambda: self.settlement.listed)

    def _wake(self, _: Record) -> None:
        applied, self._applied = self._applied, asyncio.Event()
        applied.set()


@contextlib.asynccontextmanager
async def world(
    *,
    settle_seconds: float = 60.0,
    recount_seconds: float = 600.0,
    store: MemoryStore | None = None,
) -> AsyncIterator[World]:
    """Make a world; settlement does not run yet."""
    settings = SettlementSettings(
        rules=RULES, settle_seconds=settle_seconds, recount_seconds=recount_seconds
    )
    async with running(store or MemoryStore()) as writer:
        yield World(writer, settings)


@contextlib.asynccontextmanager
async def full_world(
    *,
    settle_seconds: float = 60.0,
    recount_seconds: float = 600.0,
    store: MemoryStore | None = None,
    **settings: Any,
) -> AsyncIterator[World]:
    """Make a world with traits, universe quotas and statuses; settlement does not run yet."""
    usual: dict[str, Any] = {
        "rules": RULES,
        "cluster_traits": namespace_traits.of_cluster(CLUSTER, "", None),
        "universe_authority": True,
        "write_quota_status": True,
    }
    resolved = SettlementSettings(
        settle_seconds=settle_seconds, recount_seconds=recount_seconds, **(usual | settings)
    )
    async with running(store or MemoryStore()) as writer:
        yield World(writer, resolved)


@contextlib.asynccontextmanager
async def settling(scene: World) -> AsyncIterator[None]:
    """Run settlement and the informers of its context until the block ends."""
    assert scene.context.informers is not None
    tasks = [
        asyncio.create_task(scene.context.informers.run()),
        asyncio.create_task(scene.settlement.run()),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
    assert scene.fails or not [what for what, *_ in scene.counted if what == failed_objects.METRIC]


@contextlib.asynccontextmanager
async def session_of(scene: World, view: Any = None) -> AsyncIterator[SettlementSession]:
    """Begin a session of settlement, and deliver its commands until the block ends.

    It sees the state of `view`, which also decides the commands; by default that is the writer.
    """
    commands = CommandQueue(view or scene.writer)
    delivery = asyncio.create_task(commands.run())
    try:
        yield SettlementSession(
            view or scene.writer,
            Site(scene.cluster, scene.context),
            settings=scene.settings,
            now=lambda: scene.now,
            commands=commands,
            count=scene.count,
        )
    finally:
        delivery.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await delivery


def pod_reconciler(
    session: SettlementSession, ledger: Ledger, ages: AttemptAges | None = None
) -> PodReconciler:
    """Return a reconciler of pods without listeners, which has listed no claims."""
    source = session.context.resource_claims
    return PodReconciler(
        session,
        GateOpener(session, ledger),
        ages=ages or AttemptAges(),
        invalid_objects=InvalidObjects(),
        listeners=(),
        claims=PodClaims(session, ClaimsByOwner(source), source=source),
    )
