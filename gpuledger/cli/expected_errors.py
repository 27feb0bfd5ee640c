"""Expected errors: the exit code and the remedy of each error that is not a defect.

Standard error contains the failure, the address or field and the remedy; standard output contains
data only. Any other error is a defect of gpuledger and shows its traceback.

Only a command that fails imports this module, because it imports all parts that raise.
"""

import errno
from typing import Final

from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.kube.api.cluster_errors import ClusterError
from ledger.log.embedded.nats_server import ServerFailed
from ledger.log.embedded.server_files import BinaryMissing
from ledger.log.embedded.store_lock import StoreBusy
from ledger.log.jetstream.nats_errors import Unauthorized, Untrusted, plainly, tidied
from ledger.log.log_port import LogError, Unreachable
from ledger.log.records import NewerSchema
from ledger.runtime.http.http_server import ListenError
from ledger.runtime.settings.setting_sources import InvalidSettings
from ledger.runtime.tls.certificate_authority import CertificateError
from projections.store.store_writer import StoreError
from webhook.active_replica import ClusterNameTaken

_REACH: Final = (
    "check the address (--nats or GPULEDGER_NATS, --store-dir or GPULEDGER_STORE_DIR) and whether"
    " `gpuledger serve` or the NATS servers run there"
)
_REMEDIES: Final[dict[type[Exception], str]] = {
    Unauthorized: (
        "check the credentials: the settings nats_user and nats_password, nats_login_file or"
        " nats_creds (GPULEDGER_NATS_USER and so on), and the permissions of that user on the"
        " servers"
    ),
    Untrusted: (
        "check the CA (nats_ca or GPULEDGER_NATS_CA), and that the servers' certificate is of that"
        " CA, names their address and has not expired"
    ),
    Unreachable: _REACH,
}
"""Remedies for connection errors; the first matching type applies."""

_OF_NUMBER: Final = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room, or raise the disk quota",
    errno.EACCES: "check its owner and permissions",
    errno.EPERM: "check who owns it and its rights",
    errno.EROFS: "name a writable place",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path: a part of it is a file",
    errno.EISDIR: "name a file, not a directory",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}
"""Remedies for errors of the operating system."""

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
"""From the special to the general: the first matching type applies."""


def command_error_for(error: Exception) -> CommandError | None:
    """Return the error that ends a command, None if the given error is a defect."""
    if isinstance(error, ExceptionGroup):
        return command_error_for(error.exceptions[0])
    if isinstance(error, CommandError):
        return error
    for kind, status in _STATUS.items():
        if isinstance(error, kind):
            return CommandError(status, _sentence(error))
    return None


def _sentence(error: Exception) -> str:
    """Return the message of an expected error, with its remedy."""
    text = tidied(str(error)) or "it took too long; try again"
    if isinstance(error, OSError):
        remedy = _OF_NUMBER.get(error.errno or 0, "")
        text = plainly(error) if error.strerror else text
    else:
        remedy = next((advice for kind, advice in _REMEDIES.items() if isinstance(error, kind)), "")
    return f"{text}; {remedy}" if remedy else text
