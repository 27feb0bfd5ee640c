"""APIService leftover: the registration of the aggregated API.

While it names a Service without replicas, no namespace can be deleted.
"""

import msgspec

from gpuledger.removal.removal_scope import RemovalScope
from gpuledger.removal.removal_tasks import RemovalTask, RemovedThing, deleting
from ledger.kube.api.cluster_errors import Malformed, NotFound
from ledger.kube.client.access_review import QUERY_API_SERVICE
from ledger.kube.client.api_client import ApiClient

_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{QUERY_API_SERVICE}"


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Service(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _Spec(msgspec.Struct, frozen=True):
    service: _Service | None = None


class _ApiService(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


async def find_api_service(client: ApiClient, scope: RemovalScope) -> list[RemovalTask]:
    """Return the APIService that calls the Service of the installation. Raises ClusterError."""
    try:
        body = await client.get(_PATH)
        registered = msgspec.json.decode(body, type=_ApiService)
    except NotFound:
        return []
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Malformed(f"{_PATH}: {error}") from error
    if registered.spec.service != _Service(scope.namespace, scope.name):
        return []
    thing = RemovedThing("apiservice", QUERY_API_SERVICE, "delete")
    return [RemovalTask(thing, deleting(client, _PATH, registered.metadata.uid))]
