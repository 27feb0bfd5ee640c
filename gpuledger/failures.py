"""Failures: which errors of the parts below a command may end with, and by which exit code.

Whatever is not named here is a defect of gpuledger and shows its traceback.
"""

from typing import Final

from gpuledger.exits import Exit, Stop
from ledger.kube.errors import ClusterError
from ledger.log.embedded import ServerFailed
from ledger.log.natsfiles import BinaryMissing
from ledger.log.port import LogError, Unreachable
from ledger.log.records import NewerSchema
from ledger.log.storelock import StoreBusy
from ledger.runtime.certificates import CertificateError
from ledger.runtime.serving import ListenError
from ledger.runtime.setting_sources import InvalidSettings
from projections.store import StoreError
from webhook.settlement import ClusterNameTaken

_REACH: Final = (
    "check the address (--nats or GPULEDGER_NATS, --store-dir or GPULEDGER_STORE_DIR) and whether"
    " `gpuledger serve` or the NATS servers run there"
)

_STATUS: Final[dict[type[Exception], Exit]] = {
    InvalidSettings: Exit.USAGE,
    Unreachable: Exit.UNREACHABLE,
    ServerFailed: Exit.UNREACHABLE,
    BinaryMissing: Exit.UNREACHABLE,
    StoreBusy: Exit.NOT_READY,
    TimeoutError: Exit.NOT_READY,
    LogError: Exit.FAILED,
    NewerSchema: Exit.FAILED,
    StoreError: Exit.FAILED,
    ListenError: Exit.FAILED,
    CertificateError: Exit.FAILED,
    ClusterError: Exit.UNREACHABLE,
    ClusterNameTaken: Exit.DENIED,
    OSError: Exit.FAILED,
}
"""From the special to the general: the first that fits counts."""


def ending(error: Exception) -> Stop | None:
    """Return how a command ends that met an error, None when the error is a defect."""
    if isinstance(error, ExceptionGroup):
        return ending(error.exceptions[0])
    if isinstance(error, Stop):
        return error
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            text = str(error) or "it took too long"
            return Stop(status, f"{text}; {_REACH}" if isinstance(error, Unreachable) else text)
    return None
