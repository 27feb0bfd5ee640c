"""Item bodies: the events of a record as the log holds them, compressed.

Records of one log resemble each other, so also a record of one event becomes small: the compressor
begins with a dictionary of what most events contain. A change of the dictionary is a change of the
schema.
"""

import hashlib
import zlib
from typing import Final

from ledger.log.records import RECORD_BYTES_MAX

DICTIONARY: Final = (
    b"\x9b\xa8ResizedAdvancedUnplacedWithdrawnClaimedNodeRemovedCardsRegisteredDescribed"
    b"\xa6Placed\xa6Raised\xadAccountClosed\xb1ClusterRegistered"
    b"\xa8LimitSet\xb7requests.nvidia.com/gpu\xbbrequests.nvidia.com/gpucores"
    b"\xb9requests.nvidia.com/gpumem\xc2\xc2"
    b"\xa8Observed\xa8released\xa6absent\xa6fenced\xaasuperseded\xa4late\xaaunreserved\xa7recount"
    b"deployments.apps/statefulsets.apps/jobs.batch/cronjobs.batch/replicasets.apps/Deployment/"
    b"system:serviceaccount:kube-system:deployment-controller"
    b"\xd9&system:serviceaccount:kube-system:job-controller"
    b"\xd9.system:serviceaccount:kube-system:statefulset-controller"
    b"\xff\xa7deleted\xa8finished\xa7webhook\xa8Released\xa9Committed\x00\xc0\xa5watch\x00\x90"
    b"\x9c\xa8Reserved\xafdefault/default\xb9pods/\xd9$-0000-4000-8000-"
    b"\x00\x83\xaenvidia.com/gpu\x01\xb3nvidia.com/gpucoresd\xb1nvidia.com/gpumem\xcd@\x00"
    b"\xa0\xb4ReplicaSet/\xd97system:serviceaccount:kube-system:replicaset-controller"
    b"\xa0\x90\xc2\x99"
)
"""The compressor's first window, the most frequent bytes last."""

_LEVEL: Final = 1
_RAW: Final = -zlib.MAX_WBITS
_MEMORY: Final = 8


def deflate(items: bytes) -> bytes:
    """Return the compressed items of a record."""
    packer = zlib.compressobj(
        _LEVEL, zlib.DEFLATED, _RAW, _MEMORY, zlib.Z_DEFAULT_STRATEGY, DICTIONARY
    )
    return packer.compress(items) + packer.flush()


def inflate(body: bytes) -> bytes:
    """Return the items of a record. Raises ValueError when the body is not intact.

    A damaged body may inflate a thousandfold, so at most the bytes of a record are inflated.
    """
    unpacker = zlib.decompressobj(_RAW, DICTIONARY)
    try:
        items = unpacker.decompress(body, RECORD_BYTES_MAX + 1)
    except zlib.error as error:
        raise ValueError(f"the events of a record are damaged: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("the events of a record are damaged: their end is missing or moved")
    return items


def items_hash(body: bytes) -> bytes:
    """Return SHA-256 over the items of a record. Raises ValueError as `inflate` does."""
    return hashlib.sha256(inflate(body)).digest()
