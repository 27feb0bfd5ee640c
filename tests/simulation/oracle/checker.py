"""Checker: the invariants, checked after every record, every write and every answer.

It folds the log from the start while the replicas write it, keeps an independent account beside it,
and reads the objects of the API server. It changes nothing and keeps the first violation.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec

from ledger.core import invariants, snapshot_format
from ledger.core.decide import decider
from ledger.core.evolve.evolver import evolve
from ledger.core.model import commands
from ledger.core.model.amounts import Amounts, covers
from ledger.core.model.commands import AnyCommand
from ledger.core.model.denials import Denial
from ledger.core.model.events import AnyEvent, Cause, Observed, Released, Reserved, Unplaced
from ledger.core.model.state import State
from ledger.kube.api.api_resources import CLAIMS
from ledger.kube.api.objects import Pod, Workload
from ledger.log import records
from ledger.log.ledger_port import Accepted
from ledger.log.log_port import Lost
from simulation.model.apiserver import SimulatedApiServer
from simulation.model.resource_claims import KEYS
from simulation.oracle import card_object_oracle, quota_object_oracle
from simulation.oracle.card_event_oracle import Place, PlacedCards
from simulation.oracle.claim_object_oracle import ClaimObjectOracle
from simulation.oracle.live_pods import LivePods, is_live
from simulation.oracle.quota_event_oracle import ALONE, QuotaEventOracle

_ENTERING: Final = (Reserved, Observed)
"""Events that name the envelope that an object counts in."""

_CARDS: Final = "card/"
"""How the names of cards' accounts begin."""

K = TypeVar("K")


class Violation(msgspec.Struct, frozen=True):
    """A rule that was broken: its name, what was seen, and when, in virtual seconds."""

    rule: str
    message: str
    at: float


class Checker:
    """Follows the log, the cluster and the answers. `violation` is the first one found.

    `cards` has the pods on all cards at each position of the log.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.state = State()
        self.violation: Violation | None = None
        self.violated = asyncio.Event()
        self._servers: dict[str, SimulatedApiServer] = {}
        self._note = note
        self._books = QuotaEventOracle()
        self._living = LivePods()
        self._placed_before: dict[Place, PlacedCards] = {}
        self._images = [snapshot_format.encode(self.state)]
        self._payloads: list[bytes] = []
        self.cards = [self._books.cards.copy()]

    def attend(self, server: SimulatedApiServer) -> None:
        """Compare with this API server, too, from now on; the first one has authority."""
        self._servers[server.name] = server

    def fail(self, rule: str, message: str) -> None:
        """Remember a violation, unless there was an earlier one."""
        if self.violation is None:
            self.violation = Violation(rule, message, asyncio.get_running_loop().time())
            self._note(f"VIOLATION of {rule}: {message}")
            self.violated.set()

    def stored(self, position: int, payload: bytes) -> None:
        """Look at a record the moment it is stored."""
        if self.violation is not None:
            return
        self._payloads.append(payload)
        self._placed_before = dict(self._books.cards.placed)
        try:
            record, digest = records.check(self.state, position, payload)
            self._apply(record)
        except (Lost, records.NewerSchema) as error:
            self.fail("the log folds from zero", str(error))
            return
        self.state.seal(position, digest, record.time)
        self._images.append(snapshot_format.encode(self.state))
        self.cards.append(self._books.cards.copy())
        self._note(f"record {position} by {record.writer}: {_summary(record)}")
        for problem in invariants.violations(self.state):
            self.fail("the state is consistent", problem)
        for item in record.items:
            event = item.event
            space, key = getattr(event, "namespace", ""), getattr(event, "key", "")
            server = self._servers.get(space.partition("/")[0])
            self._living.enter(event, server.reviewed if server is not None else set())
            if server is not None and key:
                self._proved(server, event)
                self._bound(server, event)
                self._forged(server, event)
                self._charged(server, space.partition("/")[2], key)

    def written(self, server: SimulatedApiServer, namespace: str, key: str) -> None:
        """Look at an object the moment it is written."""
        self._charged(server, namespace, key)
        item = _stored(server, namespace, key) if key.startswith(KEYS) else None
        owner = item.metadata.controller() if item is not None else None
        if owner is not None:
            self._charged(server, namespace, f"pods/{owner.name}")
        self._has_cards(server, namespace, key)
        claims = ClaimObjectOracle(server, self._stands_alone)
        for problem in self._living.excess(server, namespace, claims):
            self.fail("no more lives than was allowed", problem)

    def applied(self, replica: str, state: State) -> None:
        """Compare a replica's state, at the end of a record, with the fold from zero."""
        if state.position >= len(self._images):
            self.fail("a replica knows stored records only", f"{replica} is at {state.position}")
        elif snapshot_format.encode(state) != self._images[state.position]:
            self.fail(
                "every fold gives the same state",
                f"{replica} differs from the fold from zero at position {state.position}",
            )

    def answered(self, answer: Accepted | Denial) -> None:
        """Look at an answer the moment it is given: what was accepted is stored already."""
        if isinstance(answer, Accepted) and answer.position > len(self._payloads):
            self.fail(
                "answered after the record is stored",
                f"position {answer.position} of {len(self._payloads)}",
            )

    def dry(self, command: AnyCommand) -> None:
        """Look whether a dry run has left something behind."""
        # Only a creation: an update's attempt may be another request's as well, a real one.
        if isinstance(command, commands.Reserve) and command.base == commands.CREATE:
            bodies = self._books.bodies.get((command.namespace, command.key), {})
            if (command.uid, command.base) in bodies:
                self.fail("a dry run writes nothing", f"{command.key} {command.uid} is held")

    def accepted(self, command: AnyCommand, answer: Accepted) -> None:
        """Look for a command's attempt in the record that its answer names."""
        if not answer.changed or not isinstance(command, commands.Reserve):
            return
        if not 0 < answer.position <= len(self._payloads):
            return
        record, _ = records.decode(self._payloads[answer.position - 1])
        if not any(
            getattr(item.event, "uid", "") == command.uid
            and getattr(item.event, "base", -1) == command.base
            for item in record.items
        ):
            self.fail(
                "an accepted reservation is in its record",
                f"{command.key} {command.uid} is not in record {answer.position}",
            )

    def denied(self, command: commands.Reserve, denial: Denial, arrived: int) -> None:
        """Look whether a refusal for want of room was right at some moment since `arrived`."""
        if denial.shortages and not any(
            isinstance(decider.decide(state, command), Denial) for state in self._since(arrived)
        ):
            self.fail(
                "a denial is decided on a state as new as its command",
                f"{command.key} {command.uid} fits at every position since {arrived}",
            )

    def idle(self, command: AnyCommand, arrived: int) -> None:
        """Look whether "nothing is left to do" was right at some moment since `arrived`."""
        if not any(decider.decide(state, command) == [] for state in self._since(arrived)):
            self.fail(
                "nothing to do is decided on a state as new as its command",
                f"{command} changes something at every position since {arrived}",
            )

    def _since(self, position: int) -> Iterator[State]:
        """Yield the state at a position and after every event since then: one that changes."""
        state = snapshot_format.decode(self._images[position])
        yield state
        for payload in self._payloads[position:]:
            record, digest = records.check(state, state.position + 1, payload)
            for item in record.items:
                evolve(state, item.event, record.time)
                yield state
            state.seal(record.position, digest, record.time)

    @property
    def position(self) -> int:
        """The position of the last stored record."""
        return len(self._payloads)

    def differences(self) -> list[str]:
        """Return where ledger and clusters differ; empty when all is settled."""
        now = asyncio.get_running_loop().time()
        servers = list(self._servers.values())
        recorded: dict[tuple[str, str], tuple[str, Amounts]] = {}
        for space, namespace in self.state.namespaces.items():
            for key, entry in namespace.entries.items():
                if entry.holds:
                    return [f"{space}/{key} still holds {entry.holds}"]
                if entry.committed is not None and entry.committed.demand:
                    recorded[space, key] = entry.committed.uid, entry.committed.demand
        expected: dict[tuple[str, str], tuple[str, Amounts]] = {}
        for server in servers:
            oracle = quota_object_oracle.QuotaObjectOracle(server, now, self._stands_alone)
            expected |= oracle.committed(self._known)
        return [
            *_unlike("what exists", recorded, expected),
            *_unlike("limits", self._limits(), quota_object_oracle.limits(servers)),
            *_unlike(
                "descriptions", self.state.described, quota_object_oracle.descriptions(servers)
            ),
            *_unlike(
                "used",
                self._used_of_quotas(),
                quota_object_oracle.used(
                    servers, now, self._known, self._books.asked, self._stands_alone
                ),
            ),
            *self._differences_of_cards(servers, now),
        ]

    def _known(self, space: str, key: str) -> Amounts | None:
        """Return the committed amounts of the ledger at a key."""
        entry = self.state.entry(space, key)
        return entry.committed.demand if entry is not None and entry.committed else None

    def _stands_alone(self, space: str, key: str, uid: str) -> bool:
        """Return whether the ledger has an entry at a key that holds a uid."""
        entry = self.state.entry(space, key)
        return entry is not None and entry.holds_uid(uid)

    def _differences_of_cards(self, servers: list[SimulatedApiServer], now: float) -> list[str]:
        placed = self._books.cards.placed
        limits = self._limits(of_cards=True)
        return [
            *card_object_oracle.misplaced(servers, placed, now),
            *_unlike(
                "cards",
                {account: tuple(three.values()) for account, three in limits.items()},
                card_object_oracle.limits(servers, placed),
            ),
        ]

    def _limits(self, *, of_cards: bool = False) -> dict[str, Amounts]:
        return {
            account: {key: self.state.limit[line] for key, line in stored.lines.items()}
            for account, stored in self.state.accounts.items()
            if account.startswith(_CARDS) is of_cards
        }

    def _used_of_quotas(self) -> dict[tuple[str, str], int]:
        return {line: used for line, used in self._used().items() if not line[0].startswith(_CARDS)}

    def _used(self) -> dict[tuple[str, str], int]:
        return {
            (account, key): self.state.used[line]
            for account, stored in self.state.accounts.items()
            for key, line in stored.lines.items()
        }

    def _apply(self, record: records.Record) -> None:
        """Fold a record event by event, comparing with the books after each."""
        for item in record.items:
            postings = evolve(self.state, item.event, record.time)
            if postings != item.postings:
                raise Lost(f"position {record.position}: other balances than recorded")
            for problem in self._books.enter(item.event):
                self.fail("the books add up", problem)
        used = self._used()
        if used != self._books.used():
            self.fail("the books add up", f"used is {used}, the books say {self._books.used()}")

    def _proved(self, server: SimulatedApiServer, event: AnyEvent) -> None:
        """An attempt that was proved absent cannot be written any more."""
        if not isinstance(event, Released) or event.cause != Cause.ABSENT:
            return
        if server.pending[event.uid, event.base] > 0:
            self.fail(
                "what is proved absent is never written",
                f"{event.key} {event.uid} at {event.base} is released and may still be written",
            )

    def _has_cards(self, server: SimulatedApiServer, namespace: str, key: str) -> None:
        """A pod that our Binding has bound has its cards, from its write until it ends."""
        item = _stored(server, namespace, key)
        if not isinstance(item, Pod) or not is_live(item):
            return
        if item.metadata.uid not in server.bindings:
            return
        held = self._books.cards.placed.get((f"{server.name}/{namespace}", key))
        where = f"{server.name}/{item.spec.node_name}"
        if held is None or (held.uid, held.node) != (item.metadata.uid, where):
            self.fail(
                "who is bound has cards in the ledger",
                f"{key} {item.metadata.uid} is bound to {where} and has none there",
            )

    def _bound(self, server: SimulatedApiServer, event: AnyEvent) -> None:
        """The cards of a pod that is bound to their node are not given back."""
        if not isinstance(event, Unplaced):
            return
        item = _stored(server, event.namespace.partition("/")[2], event.key)
        before = self._placed_before.get((event.namespace, event.key))
        if not isinstance(item, Pod) or before is None or item.metadata.uid != event.uid:
            return
        if item.metadata.uid in server.foreign and not before.stage:
            return  # another client bound it after our Binding was proved not to have been stored
        if f"{server.name}/{item.spec.node_name}" == before.node and is_live(item):
            self.fail(
                "cards of a bound pod are not given back",
                f"{event.key} {event.uid} is bound to {before.node} and {event.cause}",
            )

    def _forged(self, server: SimulatedApiServer, event: AnyEvent) -> None:
        """No pod draws from an envelope by naming a controller that has not made it."""
        if isinstance(event, _ENTERING) and event.uid in server.barred and event.root not in ALONE:
            self.fail(
                "a forged owner lends no envelope",
                f"{event.key} {event.uid} was not made by {event.root} and counts in it",
            )

    def _needed(self, server: SimulatedApiServer, item: Pod | Workload) -> Amounts:
        """Return the least that an admitted object has to be charged now."""
        claims = ClaimObjectOracle(server, self._stands_alone)
        if isinstance(item, Pod):
            return claims.least_of_pod(item)
        is_claim = item.kind == CLAIMS.kind
        return claims.least(item) if is_claim else quota_object_oracle.least(server, item)

    def _charged(self, server: SimulatedApiServer, namespace: str, key: str) -> None:
        """An admitted and persisted object is charged, from its write on."""
        item = _stored(server, namespace, key)
        if item is None or not _must_be_charged(server, item):
            return
        needed = self._needed(server, item)
        bodies = self._books.bodies.get((f"{server.name}/{namespace}", key), {})
        charged: dict[str, int] = {}
        for (uid, _), body in bodies.items():
            if uid == item.metadata.uid:
                charged = {
                    resource: max(charged.get(resource, 0), body.demand.get(resource, 0))
                    for resource in needed
                }
        if not covers(charged, needed):
            self.fail(
                "what was admitted and persisted is charged",
                f"{server.name}/{namespace}/{key} {item.metadata.uid} at"
                f" {item.metadata.resource_version} asks for {needed} and is charged {charged}",
            )


def _stored(server: SimulatedApiServer, namespace: str, key: str) -> Pod | Workload | None:
    kind, _, name = key.partition("/")
    if kind == "pods":
        return server.pods.objects.get((namespace, name))
    return server.others[kind].objects.get((namespace, name))


def _must_be_charged(server: SimulatedApiServer, item: Pod | Workload) -> bool:
    """Return whether an object counts beyond doubt.

    Terminating pods end by clocks that may differ, and some policies do not charge roots.
    """
    meta = item.metadata
    if meta.uid not in server.reviewed:
        return False
    if isinstance(item, Pod):
        return is_live(item)
    return not quota_object_oracle.is_finished(item) and meta.namespace not in server.lenient


def _unlike(what: str, actual: Mapping[K, object], expected: Mapping[K, object]) -> list[str]:
    """Return where two mappings differ, one sentence each, in order."""
    return sorted(
        f"{what}: {key}: the ledger has {actual.get(key)}, the clusters {expected.get(key)}"
        for key in {*actual, *expected}
        if actual.get(key) != expected.get(key)
    )


def _summary(record: records.Record) -> str:
    return ", ".join(_told(item.event) for item in record.items)


def _told(event: object) -> str:
    fields = (
        *("account", "subject", "node", "namespace", "key", "uid", "base", "version", "cause"),
        *("stage", "root"),
    )
    shown = " ".join(str(getattr(event, name)) for name in fields if hasattr(event, name))
    return f"{type(event).__name__} {shown}"
