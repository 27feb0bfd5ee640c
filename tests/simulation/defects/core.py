"""Deliberate defects of the core, which the simulation must find.

Each plants one plausible mistake in the real code for one run. A test runs seeds with the mistake
until the simulation finds it, and runs the same seeds without it.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from gpuledger.server.read_your_writes_ledger import ReadYourWritesLedger
from ledger.core import snapshot_format
from ledger.core.decide import decider, observe_object, reserve
from ledger.core.evolve import envelope_charges
from ledger.core.model import commands, events
from ledger.core.model import state as core_state
from ledger.core.model.amounts import Amounts
from ledger.core.model.commands import Refute
from ledger.core.model.state import State
from ledger.log.log_port import Log, Snapshot
from ledger.log.memory_log import MemoryStore
from ledger.log.recovery import replay
from ledger.log.writer.exactly_once import ExactlyOnceAppender
from ledger.log.writer.writer import Writer
from simulation.defects.cards import DEFECTS_OF_CARDS
from simulation.defects.claims import DEFECTS_OF_CLAIMS
from simulation.defects.holds import DEFECTS_OF_HOLDS
from simulation.defects.planting import Defect, Put, planting
from simulation.defects.workloads import DEFECTS_OF_ROOTS
from simulation.world import replica
from webhook.settlement import objects_missing_from_list
from webhook.settlement.absence_proof import AbsenceProver
from webhook.settlement.charge_settlement_session import WATCHED
from webhook.settlement.open_attempt_ages import AttemptAges
from webhook.settlement.pod_reconciler import PodReconciler


def _charge_by_sum(put: Put) -> None:
    def added(left: Amounts, right: Amounts) -> Amounts:
        return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}

    put(envelope_charges, "largest", added)


def _no_fence(put: Put) -> None:
    honest = MemoryStore.store
    put(
        MemoryStore,
        "store",
        lambda self, payload, _: honest(self, payload, len(self.records)),
    )


def _timer_alone(put: Put) -> None:
    async def settle(self: AbsenceProver, _: str, attempts: Sequence[Any]) -> None:
        for attempt in attempts:
            self._ages.end(attempt)
            command = Refute(
                attempt.namespace, attempt.key, attempt.uid, attempt.base, actor=WATCHED
            )
            await self._session.commands.send(command)

    put(AbsenceProver, "_settle", settle)


def _answer_first(put: Put) -> None:
    honest = Writer._store_batch

    async def settle(self: Writer, group: Any) -> bool:
        if group.record is not None:
            self._answer_batch(group, group.record.position)
        return await honest(self, group)

    put(Writer, "_store_batch", settle)


def _snapshot_off_by_one(put: Put) -> None:
    def take(state: State) -> Snapshot:
        shifted = snapshot_format.decode(snapshot_format.encode(state))
        shifted.position += 1
        return Snapshot(shifted.position, snapshot_format.encode(shifted))

    put(replica, "take_snapshot", take)


def _lost_tail_unnoticed(put: Put) -> None:
    async def from_snapshot(*_: Any) -> State:
        return State()

    honest = replay.open_state

    async def open_state(log: Log, **_: Any) -> State:
        return await honest(log)

    put(replay, "open_state", open_state)
    put(replay, "_from_snapshot", from_snapshot)


def _commit_keeps_the_hold(put: Put) -> None:
    honest = observe_object._committed
    put(observe_object, "_committed", lambda command, _: honest(command, []))


def _fence_without_commit(put: Put) -> None:
    honest = observe_object._committed

    def committed(command: commands.Observe, ending: list[Any]) -> list[events.AnyEvent]:
        if not any(hold.base for hold in ending):
            return honest(command, ending)
        where = command.namespace, command.key, command.uid
        return [
            events.Released(*where, hold.base, events.Cause.FENCED, command.version, command.actor)
            for hold in ending
        ]

    put(observe_object, "_committed", committed)


def _unclear_means_stored(put: Put) -> None:
    async def find_out(*_: Any) -> bool:
        return True

    put(ExactlyOnceAppender, "_resolve_ambiguous_append", find_out)


def _stale_denial(put: Put) -> None:
    honest = Writer._store_batch

    async def settle(self: Writer, group: Any) -> bool:
        if group.record is None:
            self._answer_batch(group, self.state.position)
            return True
        return await honest(self, group)

    put(Writer, "_store_batch", settle)


def _deletion_releases_nothing(put: Put) -> None:
    honest = decider.HANDLERS[commands.End]

    def end(state: State, command: commands.End) -> Any:
        return [] if command.cause == events.Cause.DELETED else honest(state, command)

    put(decider, "HANDLERS", {**decider.HANDLERS, commands.End: end})


def _late_truth_dropped(put: Put) -> None:
    honest = observe_object.observe

    def drop_late_truth(state: State, command: commands.Observe) -> Any:
        return [] if command.uid in state.ended else honest(state, command)

    put(decider, "HANDLERS", {**decider.HANDLERS, commands.Observe: drop_late_truth})


def _undo_forgets_balances(put: Put) -> None:
    put(core_state, "take_back", lambda used, postings: None)


def _early_list_is_proof(put: Put) -> None:
    honest = AttemptAges.at_least
    put(AttemptAges, "at_least", lambda self, seconds, now: honest(self, seconds / 8, now))
    put(AttemptAges, "of", lambda *_: math.inf)


def _old_view(put: Put) -> None:
    async def submit(self: ReadYourWritesLedger, command: Any, *, dry_run: bool = False) -> Any:
        return await self._ledger.submit(command, dry_run=dry_run)

    put(ReadYourWritesLedger, "submit", submit)


def _retry_unnoticed(put: Put) -> None:
    honest = reserve._again

    def again(state: State, space: Any, hold: Any, command: commands.Reserve) -> Any:
        if hold.demand == command.demand:
            return []
        return honest(state, space, hold, command)

    put(reserve, "_again", again)


def _recount_overrules_news(put: Put) -> None:
    def existed(entry: Any, uid: str, version: int) -> bool:
        del version
        return entry.committed is not None and entry.committed.uid == uid

    put(objects_missing_from_list, "_existed", existed)


def _gaps_forgotten(put: Put) -> None:
    async def release_missing(*_: Any) -> None:
        return

    put(PodReconciler, "_release_missing", release_missing)


def _grace_never_ends(put: Put) -> None:
    async def end_elapsed(*_: Any) -> None:
        return

    put(PodReconciler, "end_elapsed", end_elapsed)


def _dry_run_charges(put: Put) -> None:
    honest = Writer.submit

    async def submit(self: Writer, command: Any, *, dry_run: bool = False) -> Any:
        del dry_run
        return await honest(self, command)

    put(Writer, "submit", submit)


_OF_PODS: Final = (
    Defect("charge-by-sum", "bodies of one key add up", _charge_by_sum),
    Defect("no-fence", "an append ignores the position it expects", _no_fence),
    Defect("timer-alone", "age is taken as proof of absence", _timer_alone),
    Defect("answer-first", "answers leave before the record is stored", _answer_first),
    Defect("snapshot-off-by-one", "a snapshot names the next position", _snapshot_off_by_one),
    Defect("lost-tail-unnoticed", "nobody looks at the witnesses", _lost_tail_unnoticed),
    Defect("commit-keeps-the-hold", "a commit ends no hold", _commit_keeps_the_hold),
    Defect("fence-without-commit", "an update ends as if never written", _fence_without_commit),
    Defect("unclear-means-stored", "a lost answer counts as yes", _unclear_means_stored),
    Defect("stale-denial", "a denial does not look for news", _stale_denial),
    Defect("deletion-releases-nothing", "deleted pods stay", _deletion_releases_nothing),
    Defect("late-truth-dropped", "what was given up cannot come back", _late_truth_dropped),
    Defect("undo-forgets-balances", "a conflict leaves its sums", _undo_forgets_balances),
    Defect("early-list-is-proof", "a list begun too early is proof", _early_list_is_proof),
    Defect("old-view", "settlement looks at a state before its answers", _old_view),
    Defect("retry-unnoticed", "a second try at one base leaves no trace", _retry_unnoticed),
    Defect("recount-overrules-news", "an old list ends what is new", _recount_overrules_news),
    Defect("gaps-forgotten", "a list after a gap ends nothing", _gaps_forgotten),
    Defect("grace-never-ends", "a lost node's pods stay charged", _grace_never_ends),
    Defect("dry-run-charges", "a dry run is like the real thing", _dry_run_charges),
)

_ALL: Final = (
    *_OF_PODS,
    *DEFECTS_OF_HOLDS,
    *DEFECTS_OF_ROOTS,
    *DEFECTS_OF_CARDS,
    *DEFECTS_OF_CLAIMS,
)
DEFECTS: Final = {defect.name: defect for defect in _ALL}
"""All of them, by name."""


def planted(names: Sequence[str]) -> AbstractContextManager[None]:
    """Plant defects by name, until the context ends."""
    return planting([DEFECTS[name] for name in names])
