"""Aggregated registration: keeps the CA of the service in its APIService.

The chart creates the APIService, because a right to create one includes every group of the API.
The service writes its caBundle only, by the rule of `trusted_authorities`: other CAs stay while a
replica claims them, and each write names the version that it follows.
"""

import asyncio
import base64
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from ledger.kube.api.cluster_errors import ClusterError, Malformed, NotFound, VersionConflict
from ledger.kube.client.access_review import QUERY_API_SERVICE as API_SERVICE
from ledger.kube.client.api_client import ApiClient
from ledger.runtime.tls.certificate_authority import CertificateError
from webhook.configurations import trusted_authorities
from webhook.configurations.trusted_authorities import AuthorityClaims

PATH: Final = f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}"

REPAIR_SECONDS: Final = 5.0
"""Period of comparing the registered CA with the right ones."""

WRITE_SECONDS: Final = 5.0
"""Deadline of a request."""

_MERGE: Final = "application/merge-patch+json"

_log: Final = structlog.get_logger("gpuledger")


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    ca_bundle: str = ""


class _ApiService(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


class AggregatedRegistration:
    """The CA in the APIService, as one replica keeps it."""

    def __init__(
        self,
        client: ApiClient,
        is_active: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The active replica drops the CAs that no replica claims. `clock` returns seconds."""
        self._client, self._is_active = client, is_active
        self._claims = AuthorityClaims(clock)
        self._problem = ""
        self._trusted: frozenset[str] | None = None

    def is_trusted(self, authority: bytes) -> bool:
        """Return whether the API server may meet a certificate of this CA, given as PEM.

        It may not while an APIService is registered with other CAs, at the last comparison.
        """
        own = trusted_authorities.read(base64.b64encode(authority).decode())
        return self._trusted is None or own.keys() <= self._trusted

    async def run(self, authority: Callable[[], bytes]) -> None:
        """Compare and repair until cancelled.

        `authority` returns the CA of the service in PEM, or raises CertificateError. Without an
        APIService nothing is done: another one may serve the group, or none.
        """
        while True:
            try:
                await self.repair(authority())
                self._problem = ""
            except VersionConflict:
                pass  # another replica wrote; the next comparison follows its version
            except (ClusterError, CertificateError) as error:
                if str(error) != self._problem:
                    _log.warning("api_service_not_compared", reason=str(error))
                self._problem = str(error)
            await asyncio.sleep(REPAIR_SECONDS)

    async def repair(self, authority: bytes) -> bool:
        """Write the CAs if the APIService lacks one or has one too many; return whether it did.

        Needs the verbs get and patch. Raises ClusterError.
        """
        registered = await self._read()
        own = base64.b64encode(authority).decode()
        if registered is None or not own:
            self._trusted = None
            return False
        self._trust(registered.spec.ca_bundle)
        patch = self._patch(registered, own, drops=self._is_active())
        if not patch:
            return False
        version = {"resourceVersion": registered.metadata.resource_version}
        metadata = {**version, **patch.get("metadata", {})}
        await self._client.request(
            "PATCH",
            PATH,
            body=msgspec.json.encode({**patch, "metadata": metadata}),
            content_type=_MERGE,
            seconds=WRITE_SECONDS,
        )
        if "spec" in patch:
            self._trust(patch["spec"]["caBundle"])
            _log.info("api_service_repaired", name=API_SERVICE)
        return True

    def _trust(self, bundle: str) -> None:
        self._trusted = frozenset(trusted_authorities.read(bundle))

    def _patch(self, registered: _ApiService, own: str, *, drops: bool) -> dict[str, Any]:
        """Return the needed change, {} for none."""
        present, notes = registered.spec.ca_bundle, registered.metadata.annotations
        change = self._claims.change(own, [present], notes, drops=drops)
        patch: dict[str, Any] = {}
        if change.annotations:
            patch["metadata"] = {"annotations": change.annotations}
        bundle = change.bundle_for(present, drops=drops)
        if bundle != present:
            patch["spec"] = {"caBundle": bundle}
        return patch

    async def _read(self) -> _ApiService | None:
        try:
            body = await self._client.request("GET", PATH, seconds=WRITE_SECONDS)
            return msgspec.json.decode(body, type=_ApiService)
        except NotFound:
            return None
        except msgspec.MsgspecError as error:
            raise Malformed(f"{PATH} answered no APIService: {error}") from error
