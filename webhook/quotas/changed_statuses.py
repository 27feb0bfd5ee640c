"""Changed statuses: writes the statuses of objects that have no namespace, each when it changes.

These statuses are for people; no decision reads them. A status is compared with the last written
one, and at the beginning with the stored one. So two services that write different statuses to one
object do not answer each other for ever. After a failure all writes of the resource pause, longer
after each one.

A definition of an older version may have no status. The API server then answers as for a missing
object, so the object is read. This is logged once, and tried again every `UNDEFINED_SECONDS`,
because the definition may be applied later.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

import structlog

from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterError, NotFound, NotServed
from ledger.kube.api.objects import Workload
from ledger.tasks.backoff import Backoff
from webhook.quotas.status_conditions import ObjectStatus
from webhook.settlement.charge_settlement_session import SettlementSession

RETRY_SECONDS: Final = 5.0
RETRY_SECONDS_MAX: Final = 120.0

UNDEFINED_SECONDS: Final = 600.0
"""Pause before the next write to a resource whose definition has no status."""

StatusOf = Callable[[Workload, ObjectStatus], Awaitable[ObjectStatus | None]]
"""Returns the status that an object should have, by its known status; None for no write now."""

_log: Final = structlog.get_logger("webhook")


class _Written(NamedTuple):
    uid: str
    status: ObjectStatus


class ChangedStatusWriter:
    """Writes the statuses of one resource."""

    def __init__(self, session: SettlementSession, resource: Resource) -> None:
        self._session = session
        self._resource = resource
        self._written: dict[str, _Written] = {}
        self._backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)
        self._undefined_backoff = Backoff(UNDEFINED_SECONDS, UNDEFINED_SECONDS)
        self._is_undefined = False

    async def write(self, existing: Mapping[str, Workload], status_of: StatusOf) -> None:
        """Write the statuses of the existing objects that differ from the known ones.

        Writes nothing in the pause after a failure.
        """
        self._written = {
            name: written for name, written in self._written.items() if name in existing
        }
        if not (self._backoff.is_over() and self._undefined_backoff.is_over()):
            return
        for seen in list(existing.values()):
            known = self._known(seen)
            status = await status_of(seen, known)
            if status is None or status == known:
                continue
            if not await self._write(seen, status):
                return
        self._backoff.reset()

    def _known(self, seen: Workload) -> ObjectStatus:
        """Return the last written status of this very object, or else its stored one."""
        written = self._written.get(seen.metadata.name)
        if written is not None and written.uid == seen.metadata.uid:
            return written.status
        return seen.status or {}

    async def _write(self, seen: Workload, status: ObjectStatus) -> bool:
        """Write one status; return whether to continue with other objects."""
        meta = seen.metadata
        try:
            await self._session.cluster.replace_status(self._resource, meta.name, status)
        except NotFound:
            return await self._is_deleted(meta.name)
        except ClusterError as error:
            self._failed(meta.name, error)
            return False
        self._written[meta.name] = _Written(meta.uid, status)
        self._is_undefined = False
        self._count("done")
        return True

    async def _is_deleted(self, name: str) -> bool:
        """Return whether an object is deleted; otherwise its definition has no status."""
        try:
            if await self._session.cluster.get_object(self._resource, "", name) is None:
                return True  # the watch is about to report the deletion
        except NotServed:
            return True
        except ClusterError as error:
            self._failed(name, error)
            return False
        if not self._is_undefined:
            self._is_undefined = True
            remedy = f"apply deploy/crds/{self._resource.plural}.yaml of this version"
            reason = f"the definition {self._resource.name} has no status; {remedy}"
            _log.warning("status_not_defined", key=self._resource.name, reason=reason)
        self._count("failed")
        self._undefined_backoff.failed()
        return False

    def _failed(self, name: str, error: ClusterError) -> None:
        key = f"{self._resource.plural}/{name}"
        _log.warning("object_status_not_written", key=key, reason=str(error))
        self._count("failed")
        self._backoff.failed()

    def _count(self, outcome: str) -> None:
        self._session.count("status_writes_total", self._resource.plural, outcome)
