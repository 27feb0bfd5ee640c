"""ResourceSlices as the watch keeps them."""

from itertools import count
from typing import Any

import msgspec

from ledger.kube.api.objects import Workload
from webhook.context.resource_claims.slice_feed import KeptSlice, kept_slice

NVIDIA, HAMI = "gpu.nvidia.com", "hami-core-gpu.project-hami.io"
"""Names of drivers."""

VERSIONS = count(1)


def kept(name: str, *uuids: str, node: str = "n1", driver: str = NVIDIA) -> KeptSlice:
    """Return a slice whose devices have these uuids."""
    spec: dict[str, Any] = {
        "driver": driver,
        "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {"name": f"d{at}", "attributes": {"uuid": {"string": uuid}}}
            for at, uuid in enumerate(uuids)
        ],
    }
    spec |= {"nodeName": node} if node else {"allNodes": True}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": name, "resourceVersion": str(next(VERSIONS))},
        "spec": spec,
    }
    return kept_slice(msgspec.json.decode(msgspec.json.encode(body), type=Workload))
