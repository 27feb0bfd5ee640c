"""Leaving quotas: a change of labels, class or scopes must not take an object off a quota.

A quota that selects by traits counts the objects that have them. A change by which a further quota
counts an object needs headroom in that quota. A change by which a quota would no longer count the
object is refused with LeavesQuota: its pods run on, so the user could spend the quota twice.
"""

from typing import Final

import msgspec

from ledger.core.evolve.envelope_charges import PODS, drawn_from
from ledger.core.model.commands import BARRED, Reserve
from ledger.core.model.denials import Denial, Reason
from ledger.core.model.qualified_names import local_name
from ledger.core.model.state import Entry, Namespace, State
from ledger.core.model.traits import Traits, is_read, matches, united
from ledger.kube.api.objects import ObjectMeta
from webhook.context.cluster_context import ClusterContext
from webhook.context.namespace_policies import NamespacePolicy
from webhook.context.owner_cache_content import cached_workload
from webhook.context.owner_chain import OwningRoot
from webhook.kinds.workload_envelope import Envelope, envelope_of

FIELD: Final = "metadata.labels"
_NOBODY: Final = ("", BARRED)


class TraitsChange(msgspec.Struct, frozen=True):
    """The traits and the metadata of an object before and after an update.

    `asked` is true if the object requested resources before; otherwise `before` equals `after`.
    """

    before: Traits
    after: Traits
    was: ObjectMeta
    now: ObjectMeta
    asked: bool = True

    @property
    def is_any(self) -> bool:
        """Whether anything changes by which quotas select objects."""
        return self.before != self.after or self.is_adopted

    @property
    def is_adopted(self) -> bool:
        """Whether the object names a controller that it did not have."""
        owner, known = self.now.controller(), self.was.controller()
        return owner is not None and (known is None or known.uid != owner.uid)


class QuotaMembership:
    """Compares the quotas that count an object before and after a change."""

    def __init__(self, context: ClusterContext) -> None:
        self._context = context

    def is_charged(self, reserve: Reserve) -> bool:
        """Return whether the ledger holds or has committed the creation of an object."""
        entry = self._entry(reserve)
        if entry is None:
            return False
        if entry.committed is not None and entry.committed.uid == reserve.uid:
            return True
        return any(hold.uid == reserve.uid and not hold.base for hold in entry.holds)

    def enters(self, reserve: Reserve, change: TraitsChange) -> bool:
        """Return whether, after a change, a quota counts the object that did not count it before.

        An object that draws from a root is counted by the traits of the root.
        """
        state, space = self._state, self._space(reserve)
        entry = self._entry(reserve)
        if space is None:
            return change.before != change.after
        if entry is not None and drawn_from(entry) in space.entries:
            return False
        return bool(_counting(state, space, change.after) - _counting(state, space, change.before))

    async def objection(
        self, reserve: Reserve, change: TraitsChange, policy: NamespacePolicy, until: float
    ) -> Denial | None:
        """Return the denial of a change by which a quota would no longer count an object, or None.

        If the new owner cannot be read in time, the adoption is allowed.
        """
        space = self._space(reserve)
        if space is None or not space.selected:
            return None
        before = self._before(reserve, space, change)
        account = _left(self._state, space, before, change.after)
        if account:
            return _leaves(account)
        if not change.is_adopted or not policy.charges_roots:
            return None
        texts = await self._texts_of_root(reserve, change.now, policy, until)
        account = "" if texts is None else _left(self._state, space, before, texts)
        return _adopted(account, change.now) if account else None

    @property
    def _state(self) -> State:
        return self._context.view.state

    def _space(self, reserve: Reserve) -> Namespace | None:
        return self._state.namespaces.get(reserve.namespace)

    def _entry(self, reserve: Reserve) -> Entry | None:
        return self._state.entry(reserve.namespace, reserve.key)

    def _before(self, reserve: Reserve, space: Namespace, change: TraitsChange) -> Traits:
        """Return the traits by which an object and its pods are counted, as far as they are known.

        A root that requests nothing now may still have pods from an earlier spec.
        """
        traits = change.before
        entry = space.entries.get(reserve.key)
        if entry is not None and not change.asked:
            traits = united(traits, tuple(text for text in entry.traits if text) or traits)
        if change.is_adopted and entry is not None and drawn_from(entry) in space.entries:
            traits = united(traits, space.entries[drawn_from(entry)].traits)
        if (entry is None or not change.asked) and not reserve.key.startswith(PODS):
            for member in space.members.get(reserve.key, ()):
                traits = united(traits, space.entries[member].traits)
        return traits

    async def _texts_of_root(
        self, reserve: Reserve, meta: ObjectMeta, policy: NamespacePolicy, until: float
    ) -> Traits | None:
        """Return the traits of the root that adopts an object, None if they are not known."""
        context = self._context
        chain = await context.owner_chains.chain_of(
            local_name(reserve.namespace), meta.controller(), until=until
        )
        root = chain.root
        if root is None:
            return None
        entry = self._state.entry(reserve.namespace, root.key)
        return entry.traits if entry is not None else self._texts_read(root, policy)

    def _texts_read(self, root: OwningRoot, policy: NamespacePolicy) -> Traits | None:
        workload = cached_workload(root.seen) if root.seen is not None else None
        if workload is None:
            return None
        rules = self._context.rules
        envelope = envelope_of(root.kind, workload, rules, surge=policy.surge)
        return envelope.traits if isinstance(envelope, Envelope) else None


def _counting(state: State, space: Namespace, traits: Traits) -> set[str]:
    """Return the accounts that select by traits and count an object with these traits."""
    return {
        state.names[line][0] for _, line, selection in space.selected if matches(selection, traits)
    }


def _left(state: State, space: Namespace, before: Traits, after: Traits) -> str:
    """Return an account that counts `before` and does not count `after`, "" if there is none."""
    for _, line, selection in space.selected:
        known = matches(selection, before) and is_read(selection, before)
        if known and not matches(selection, after):
            return state.names[line][0]
    return ""


def _leaves(account: str) -> Denial:
    return Denial(
        Reason.LEAVES_QUOTA,
        f"{account} counts it by its labels, priority class or scopes, and would no longer after"
        " this change, while its pods run",
        transient=False,
        remedy="Leave them as they are and create another object, or ask who may act for the quota",
        field=FIELD,
    )


def _adopted(account: str, meta: ObjectMeta) -> Denial:
    owner = meta.controller()
    assert owner is not None, "asked of objects that name a controller"
    return Denial(
        Reason.LEAVES_QUOTA,
        f"{account} counts it by its labels, priority class or scopes, and does not count the"
        f" {owner.kind} that would control it",
        transient=False,
        remedy="Give the template of its controller what the quota selects by",
        field="metadata.ownerReferences",
    )
