"""An API server with webhook configurations and resource versions."""

import asyncio
import copy
from typing import Any, Final

import msgspec

from ledger.kube.api.cluster_errors import NotFound, VersionConflict
from ledger.kube.client.api_client import ApiClient

KINDS: Final = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"]


class Registrations(ApiClient):
    """Stores configurations, and notes the writes. It yields before each answer.

    `is_careless` ignores the preconditions of writes.
    """

    def __init__(self, *registered: dict[str, Any], is_careless: bool = False) -> None:
        self.stored = {
            self._path(configuration): copy.deepcopy(configuration) for configuration in registered
        }
        self.writes: list[tuple[str, str]] = []
        self.is_careless = is_careless
        self._version = 0

    @staticmethod
    def _path(configuration: dict[str, Any]) -> str:
        plural = configuration["kind"].lower() + "s"
        return f"/apis/admissionregistration.k8s.io/v1/{plural}/gpuledger"

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        await asyncio.sleep(0)
        if method == "GET":
            if path not in self.stored:
                raise NotFound(path)
            return msgspec.json.encode(self.stored[path])
        content = options["content_type"].partition("+")[0].rpartition("/")[2]
        body = msgspec.json.decode(options["body"])
        self._check(path, body)
        self.writes.append((content, path.rsplit("/", 2)[1]))
        if content == "apply-patch":
            self.stored[path] = body
        else:
            self._merge(self.stored[path], body)
        self._version += 1
        self.stored[path].setdefault("metadata", {})["resourceVersion"] = str(self._version)
        return b"{}"

    def _check(self, path: str, body: dict[str, Any]) -> None:
        follows = body.get("metadata", {}).get("resourceVersion")
        now = self.stored.get(path, {}).get("metadata", {}).get("resourceVersion")
        if follows and follows != now and not self.is_careless:
            raise VersionConflict(path)

    @staticmethod
    def _merge(stored: dict[str, Any], body: dict[str, Any]) -> None:
        entries = {entry["name"]: entry for entry in stored["webhooks"]}
        for change in body.get("webhooks", ()):
            merged = {**entries[change["name"]].get("clientConfig", {}), **change["clientConfig"]}
            entries[change["name"]]["clientConfig"] = _given(merged)
        annotations = stored["metadata"].get("annotations", {})
        changed = body.get("metadata", {}).get("annotations", {})
        stored["metadata"]["annotations"] = _given({**annotations, **changed})

    def entries(self, kind: str) -> list[dict[str, Any]]:
        """Return the webhooks of a kind."""
        [registered] = [each for each in self.stored.values() if each["kind"] == kind]
        return list(registered["webhooks"])


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
