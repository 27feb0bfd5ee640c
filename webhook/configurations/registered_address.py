"""Registered address: repairs the address and the CA of registered webhooks.

Other fields stay as they are, because an operator may have changed them on purpose, and because
replicas of two versions may want different ones during an update. `trusted_authorities` has the
rule for the CAs. Each write names the version that it follows, so two replicas that add their CAs
at once do not remove each other's.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from ledger.kube.api.cluster_errors import (
    ClusterUnavailable,
    Malformed,
    NotFound,
    VersionConflict,
)
from ledger.kube.client.api_client import ApiClient
from webhook.configurations import (
    configuration_paths,
    trusted_authorities,
    webhook_configurations,
)
from webhook.configurations.trusted_authorities import AuthorityClaims, TrustChange
from webhook.configurations.webhook_configurations import (
    REGISTER_SECONDS,
    Configuration,
    WebhookEntry,
)

ATTEMPTS_MAX: Final = 5
"""Attempts of one write that follows a version which another write replaces."""

_STRATEGIC: Final = "application/strategic-merge-patch+json"

T = TypeVar("T")


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] = {}


class _Entry(msgspec.Struct, rename="camel"):
    name: str
    client_config: dict[str, Any] = {}

    @property
    def bundle(self) -> str:
        return str(self.client_config.get("caBundle") or "")


class _Registered(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    webhooks: list[_Entry] = []


class RegisteredAddress:
    """The address and the CAs of both configurations, as one replica registers and repairs them."""

    def __init__(
        self, client: ApiClient, claims: Callable[[], AuthorityClaims] = AuthorityClaims
    ) -> None:
        """`claims` makes what remembers the claims of one configuration."""
        self._client = client
        self._claims = {
            kind: claims()
            for kind in (configuration_paths.MUTATING, configuration_paths.VALIDATING)
        }

    async def register(self, wanted: Sequence[Configuration]) -> None:
        """Register the configurations in full, beside the CAs that are registered already.

        Needs the verbs get, create and patch. Raises ClusterError.
        """
        for configuration in wanted:
            await _again(partial(self._register_one, configuration))

    async def repair(self, wanted: Sequence[Configuration], *, is_active: bool) -> list[str]:
        """Add the wanted CA to the registered webhooks; return the kinds whose webhooks changed.

        Webhooks that call another address are left to the active replica, because a policy denies
        a write that changes one and does not repair it. The active replica repairs addresses, drops
        CAs that no replica needs, and registers a missing configuration. A webhook that is missing
        stays so, because a replica of another version may have removed it. Needs the verbs get,
        create and patch. Raises ClusterError.
        """
        return [
            configuration["kind"]
            for configuration in wanted
            if await _again(partial(self._repair_one, configuration, is_active))
        ]

    async def _register_one(self, wanted: Configuration) -> None:
        registered = await self._read(wanted)
        if registered is not None:
            trust = self._trust(wanted, registered, drops=False)
            kept = {
                name: text
                for name, text in registered.metadata.annotations.items()
                if name.startswith(trusted_authorities.CLAIM)
            }
            claimed = trusted_authorities.claimed(trusted_authorities.read(trust.own))
            wanted = {
                **wanted,
                "metadata": {
                    **wanted["metadata"],
                    "resourceVersion": registered.metadata.resource_version,
                    "annotations": {**kept, **(claimed if trust.bundle != trust.own else {})},
                },
                "webhooks": [
                    entry | {"clientConfig": {**entry["clientConfig"], "caBundle": trust.bundle}}
                    for entry in wanted["webhooks"]
                ],
            }
        await webhook_configurations.register(self._client, [wanted])

    async def _repair_one(self, wanted: Configuration, is_active: bool) -> bool:
        registered = await self._read(wanted)
        if registered is None:
            if is_active:
                await webhook_configurations.register(self._client, [wanted])
            return is_active
        trust = self._trust(wanted, registered, drops=is_active)
        changed = _changed(wanted, registered, trust, is_active=is_active)
        if changed or trust.annotations:
            await self._patch(wanted, registered, changed, trust.annotations)
        return bool(changed)

    def _trust(self, wanted: Configuration, registered: _Registered, *, drops: bool) -> TrustChange:
        """Return the CAs that belong into the bundles; with `drops`, without unclaimed ones."""
        own = wanted["webhooks"][0]["clientConfig"]["caBundle"]
        names = {entry["name"] for entry in wanted["webhooks"]}
        bundles = [entry.bundle for entry in registered.webhooks if entry.name in names]
        return self._claims[wanted["kind"]].change(
            own, bundles, registered.metadata.annotations, drops=drops
        )

    async def _read(self, wanted: Configuration) -> _Registered | None:
        path = _path(wanted)
        try:
            body = await self._client.request("GET", path, seconds=REGISTER_SECONDS)
            return msgspec.json.decode(body, type=_Registered)
        except NotFound:
            return None
        except msgspec.MsgspecError as error:
            raise Malformed(f"{path} answered no webhook configuration: {error}") from error

    async def _patch(
        self,
        wanted: Configuration,
        registered: _Registered,
        changed: list[WebhookEntry],
        annotations: dict[str, str | None],
    ) -> None:
        version = registered.metadata.resource_version
        patch: dict[str, Any] = {"metadata": {"resourceVersion": version}}
        if annotations:
            patch["metadata"]["annotations"] = annotations
        if changed:
            patch["webhooks"] = changed
        await self._client.request(
            "PATCH",
            _path(wanted),
            params={"fieldManager": webhook_configurations.FIELD_MANAGER},
            body=msgspec.json.encode(patch),
            content_type=_STRATEGIC,
            seconds=REGISTER_SECONDS,
        )


def _changed(
    wanted: Configuration, registered: _Registered, trust: TrustChange, *, is_active: bool
) -> list[WebhookEntry]:
    """Return the changes of client configurations; null removes another kind of address."""
    clients = {entry["name"]: entry["clientConfig"] for entry in wanted["webhooks"]}
    changed = []
    for entry in registered.webhooks:
        if entry.name not in clients:
            continue
        called = clients[entry.name]
        if not is_active and _target(called) != _target(entry.client_config):
            continue
        address = called if is_active else entry.client_config
        right = {**address, "caBundle": trust.bundle_for(entry.bundle, drops=is_active)}
        if _given(right) != _given(entry.client_config):
            other = {"url": None, "service": None}
            changed.append({"name": entry.name, "clientConfig": {**other, **right}})
    return changed


def _target(client_config: dict[str, Any]) -> tuple[str, ...]:
    """Return the Service that a webhook calls, or its URL.

    Versions may differ in port and path.
    """
    service = client_config.get("service") or {}
    fields = service.get("namespace"), service.get("name"), client_config.get("url")
    return tuple(str(field or "") for field in fields)


def _given(client_config: dict[str, Any]) -> dict[str, Any]:
    """Return the fields with a value: the API server leaves an empty caBundle out."""
    return {name: value for name, value in client_config.items() if value}


def _path(wanted: Configuration) -> str:
    return configuration_paths.path(wanted["kind"], wanted["metadata"]["name"])


async def _again(write: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a write; repeat it while another write comes first."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return await write()
        except VersionConflict:
            continue
    raise ClusterUnavailable(
        f"a webhook configuration was changed {ATTEMPTS_MAX} times while it was repaired"
    )
