"""Label condition of the validating webhook: the labels by which quotas select pods.

The labels follow from the universe quotas, so a registration begins with changes of any label. This
replica then writes the labels into the condition, also of a registration that was written by hand,
and writes them again whenever quotas select by others.

A condition that is too narrow for a moment lets a change pass without a review. Settlement charges
the change as soon as it observes it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from ledger.kube.api.cluster_errors import ClusterError, NotFound
from ledger.kube.client.api_client import ApiClient
from ledger.kube.requests.recorded_labels import RecordedLabels
from webhook.configurations import configuration_paths, pod_conditions

WEBHOOK: Final = "pods.validate.gpuledger.io"

LOOK_SECONDS: Final = 0.5
"""Period of the check whether quotas select by other labels."""

AGAIN_SECONDS: Final = 300.0
"""Period after which the condition is written again: a registration may have been applied."""

RETRY_SECONDS: Final = 2.0
PATCH_SECONDS: Final = 15.0

_STRATEGIC: Final = "application/strategic-merge-patch+json"
_log: Final = structlog.get_logger("webhook")


class SelectedLabels:
    """Keeps the condition of one cluster's validating webhook up to date with its quotas."""

    def __init__(
        self,
        client: ApiClient,
        labels: Callable[[], RecordedLabels],
        *,
        name: str = configuration_paths.NAME,
    ) -> None:
        """`labels` returns the labels by which quotas select now; `name` is the configuration's."""
        self._path = configuration_paths.path(configuration_paths.VALIDATING, name)
        self._client = client
        self._labels = labels
        self._written: tuple[str, ...] | None = None
        self._again = 0.0
        self._problem = ""

    async def run(self) -> None:
        """Write the condition whenever it changes, until cancelled."""
        while True:
            await self._update()
            await asyncio.sleep(LOOK_SECONDS)

    async def _update(self) -> None:
        now, wanted = asyncio.get_running_loop().time(), self._labels().keys
        if wanted == self._written and now < self._again:
            return
        self._written, self._again = wanted, now + AGAIN_SECONDS
        try:
            await self._write(pod_conditions.changed(wanted))
        except NotFound:
            self._problem = ""  # without a registration there is no condition
        except ClusterError as error:
            if str(error) != self._problem:
                _log.warning("selected_labels_not_written", reason=str(error))
            self._problem, self._again = str(error), now + RETRY_SECONDS
        else:
            self._problem = ""

    async def _write(self, expression: str) -> None:
        """Replace the condition of the registered webhook. Raises ClusterError."""
        conditions = [{"name": pod_conditions.CHANGED, "expression": expression}]
        patch = {"webhooks": [{"name": WEBHOOK, "matchConditions": conditions}]}
        await self._client.request(
            "PATCH",
            self._path,
            body=msgspec.json.encode(patch),
            content_type=_STRATEGIC,
            seconds=PATCH_SECONDS,
        )
