"""Webhook registration: the service writes its webhook configurations at the API server.

It writes them only with the setting `register_webhook` or `register_service`, and retries until a
write succeeds. With a Service, every replica then keeps its CA registered, and the active one the
address. In any case it keeps the conditions of the configurations narrow.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from gpuledger.wiring import admission_from_settings, webhook_scope
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.client.api_client import ApiClient
from ledger.runtime.settings.settings import Settings
from ledger.runtime.tls.certificate_authority import CertificateError
from webhook.configurations import webhook_configurations
from webhook.configurations.label_conditions import SelectedLabels
from webhook.configurations.mutating_conditions import MutatingCondition
from webhook.configurations.registered_address import RegisteredAddress
from webhook.configurations.trusted_authorities import CLAIM_SECONDS, KEPT_SECONDS
from webhook.configurations.webhook_configurations import (
    Configuration,
    ServiceReference,
    WebhookAddress,
)
from webhook.context.cluster_context import ClusterContext

REGISTER_AGAIN_SECONDS: Final = 2.0
IDENTIFIED_SECONDS: Final = 10.0
"""How long registration waits for the service's own user name."""

REPAIR_SECONDS: Final = 5.0
"""Period of comparing the registered address and CA with the right ones."""

LAPSE_SECONDS: Final = KEPT_SECONDS - 2 * CLAIM_SECONDS
"""Time without a comparison after which the active replica may remove the CA of another one: the
last claim may be CLAIM_SECONDS older. As long again is left for the probe of readiness."""

LAPSED: Final = (
    f"the registered CAs were not compared for {LAPSE_SECONDS / 60:.0f} minutes, so the active"
    " replica may have removed the CA of this one"
)

_log: Final = structlog.get_logger("gpuledger")


class WebhookRegistration:
    """Both webhook configurations. `warning` is why the last comparison of registered ones failed.

    Once they are registered, the API server calls this replica whether it can compare them or not.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        client: ApiClient,
        context: ClusterContext,
        is_active: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; `run` writes the configurations. `clock` returns seconds."""
        self._target = _target(settings)
        self._unwritten: str | None = "not registered yet" if self._target else None
        self.warning = ""
        self._clock, self._compared_at = clock, 0.0
        self._settings, self._client, self._context = settings, client, context
        self._is_active = is_active
        self._address = RegisteredAddress(client)
        self._trusted: bytes | None = None

    @property
    def problem(self) -> str | None:
        """Why reviews that reach this replica fail: it has not registered the configurations, or
        the active replica may have removed its CA, which it could not claim.
        """
        if self._unwritten is not None:
            return self._unwritten
        if not self._settings.register_service or not self._trusted or self._is_active():
            return None
        return LAPSED if self._clock() - self._compared_at >= LAPSE_SECONDS else None

    def is_trusted(self, authority: bytes) -> bool:
        """Return whether the API server may meet a certificate of this CA, given as PEM.

        It may not while a Service is registered with another CA.
        """
        is_repaired = self._settings.register_service and self._unwritten is None
        return not is_repaired or authority == self._trusted

    async def run(self, authority: Callable[[], bytes], identified: asyncio.Event) -> None:
        """Write the configurations if the settings require it, and keep their conditions narrow.

        `authority` returns the CA of the service in PEM, or raises CertificateError. `identified`
        is set when the context has the service's own user name. Runs until cancelled.
        """
        if self._target:
            await self._write(authority, identified)
        name = self._settings.webhook_name
        narrowing = MutatingCondition(
            self._client,
            self._context.policies,
            rules=self._context.rules,
            schedulers=admission_from_settings.card_schedulers(self._settings),
            name=name,
        )
        selected = SelectedLabels(self._client, lambda: self._context.rules.labels, name=name)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(narrowing.run())
            tasks.create_task(selected.run())
            if self._settings.register_service:
                tasks.create_task(self._keep(authority))

    async def _write(self, authority: Callable[[], bytes], identified: asyncio.Event) -> None:
        """Write both webhook configurations; retry until it succeeds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(identified.wait(), IDENTIFIED_SECONDS)
        while self._unwritten is not None:
            try:
                await self._register(authority())
            except (ClusterError, CertificateError) as error:
                self._unwritten = str(error)
                _log.warning("webhook_not_registered", reason=str(error))
                await asyncio.sleep(REGISTER_AGAIN_SECONDS)
            else:
                self._unwritten = None
                _log.info("webhook_registered", target=str(self._target))

    async def _register(self, authority: bytes) -> None:
        """Write both configurations with this CA. Raises ClusterError."""
        wanted = self._configurations(authority)
        if self._settings.register_service:
            await self._address.register(wanted)
        else:
            await webhook_configurations.register(self._client, wanted)
        self._trusted, self._compared_at = authority, self._clock()

    async def _keep(self, authority: Callable[[], bytes]) -> None:
        """Repair the registered address and CA until cancelled."""
        while True:
            await asyncio.sleep(REPAIR_SECONDS)
            await self._repair(authority)

    async def _repair(self, authority: Callable[[], bytes]) -> None:
        try:
            own = authority()
            changed = await self._address.repair(
                self._configurations(own), is_active=self._is_active()
            )
        except (ClusterError, CertificateError) as error:
            if str(error) != self.warning:
                _log.warning("webhook_not_compared", reason=str(error))
            self.warning = str(error)
            return
        self.warning, self._trusted, self._compared_at = "", own, self._clock()
        for kind in changed:
            _log.warning("webhook_repaired", kind=kind, target=str(self._target))

    def _configurations(self, authority: bytes) -> Sequence[Configuration]:
        """Return the wanted configurations now."""
        return webhook_configurations.configurations(
            WebhookAddress(self._target, authority),
            webhook_scope.review_scope(self._settings, self._context.identity),
            webhook_scope.registration(self._settings),
        )


def _target(settings: Settings) -> str | ServiceReference:
    if settings.register_service:
        return ServiceReference(settings.namespace, settings.register_service)
    return settings.register_webhook
