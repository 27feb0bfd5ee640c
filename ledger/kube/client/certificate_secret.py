"""Certificate Secret: the Secret in which replicas share their certificate.

Each write has a precondition, so two replicas never overwrite each other's: a creation fails if
the Secret exists, and an update fails if it has changed since it was read. An update keeps labels,
annotations and all data that it does not replace.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ledger.kube.api.cluster_errors import AlreadyExists, Malformed, NotFound, VersionConflict
from ledger.kube.client.api_client import ApiClient

SECRET_SECONDS: Final = 10.0
"""Deadline of one read or write."""


class StoredSecret(msgspec.Struct, frozen=True):
    """A Secret as it was read: its decoded data, and the whole object for the precondition."""

    data: dict[str, bytes]
    manifest: dict[str, Any]


class CertificateSecret:
    """One Secret of one namespace."""

    def __init__(self, client: ApiClient, *, namespace: str, name: str) -> None:
        self._client, self._name = client, name
        self._collection = f"/api/v1/namespaces/{namespace}/secrets"
        self._path = f"{self._collection}/{name}"
        self.place = f"Secret {namespace}/{name}"

    async def read(self) -> StoredSecret | None:
        """Return the Secret, None if there is none. Raises ClusterError."""
        try:
            body = await self._client.request("GET", self._path, seconds=SECRET_SECONDS)
        except NotFound:
            return None
        try:
            manifest = msgspec.json.decode(body, type=dict[str, Any])
            encoded = msgspec.convert(manifest.get("data") or {}, dict[str, str])
            data = {key: base64.b64decode(text, validate=True) for key, text in encoded.items()}
        except (msgspec.MsgspecError, binascii.Error) as error:
            raise Malformed(f"{self.place}: the answer is not a Secret: {error}") from error
        return StoredSecret(data, manifest)

    async def create(self, data: Mapping[str, bytes]) -> bool:
        """Create the Secret; return whether there was none before. Raises ClusterError."""
        manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self._name},
            "type": "Opaque",
            "data": _encoded(data),
        }
        try:
            await self._send("POST", self._collection, manifest)
        except AlreadyExists:
            return False
        return True

    async def update(self, stored: StoredSecret, data: Mapping[str, bytes]) -> bool:
        """Replace data of the Secret as it was read; an empty value removes its key.

        Return whether it was written: it is not if it has changed since. Raises ClusterError.
        """
        kept = {key: value for key, value in {**stored.data, **data}.items() if value}
        try:
            await self._send("PUT", self._path, {**stored.manifest, "data": _encoded(kept)})
        except (VersionConflict, NotFound):
            return False
        return True

    async def _send(self, method: str, path: str, manifest: dict[str, Any]) -> None:
        body = msgspec.json.encode(manifest)
        await self._client.request(method, path, body=body, seconds=SECRET_SECONDS)


def _encoded(data: Mapping[str, bytes]) -> dict[str, str]:
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
