"""Reply errors: the exit code, the sentence and the remedy of each refusal of a service."""

from typing import Final

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading.service_connection import (
    GROUP,
    VERSION,
    ServiceAddress,
    ServiceReply,
    problem_of,
)

MOMENTS: Final = frozenset({"at", "from", "to"})
"""Parameters that name a moment. The client has checked their form, so the log has no such one."""

CREATED: Final = frozenset({"explain", "fit"})
"""Resources to which a manifest is posted."""

_API_SERVICE: Final = f"{VERSION}.{GROUP}"

_INSTALL: Final = (
    f"check `kubectl get apiservice {_API_SERVICE}`: the chart's value aggregatedAPI.enabled=true"
    " adds it; or read the service with --server"
)
"""The remedy where a cluster may have no aggregated API."""


def error_of(address: ServiceAddress, reply: ServiceReply, resource: str) -> CommandError:
    """Return the error for an answer that is not a success."""
    message, field = problem_of(reply)
    if reply.status == 400:
        if field in MOMENTS:
            return CommandError(Exit.NOT_FOUND, message)
        return CommandError(Exit.USAGE, _named(field, message))
    if reply.status == 404:
        return _not_found(address, message, resource)
    code, sentence = _refusal(address, reply.status, message, resource)
    return CommandError(code, f"{address.origin}: {sentence}")


def _refusal(address: ServiceAddress, status: int, message: str, resource: str) -> tuple[Exit, str]:
    """Return the exit code and the sentence for a status."""
    if status == 401:
        return Exit.DENIED, f"{message or 'the credentials are not accepted'}; {address.renewal}"
    if status == 403:
        return Exit.DENIED, _forbidden(address, message, resource)
    if status in (408, 429, 504):
        return Exit.NOT_READY, f"{message or 'it is too busy'}; try again"
    if status == 503:
        return Exit.UNREACHABLE, _unavailable(address, message)
    why = message or "it gave no reason"
    return Exit.FAILED, f"it answered {status}: {why}; its log has more about it"


def _named(field: str, message: str) -> str:
    return f"{field}: {message}" if field else message or "the service refused the request"


def _forbidden(address: ServiceAddress, message: str, resource: str) -> str:
    """Return the refusal, with the rule of a Role that would grant the right."""
    group = GROUP if address.aggregated else "gpuledger.io"
    verb = "create" if resource in CREATED else "list"
    why = message or f"you may not {verb} {resource}"
    rule = (
        f"{why}. A Role of that namespace, or a ClusterRole for all, needs the rule apiGroups:"
        f" [{group}], resources: [{resource}], verbs: [{verb}]"
    )
    # An API server checks the right before it finds out that it serves no such group.
    return f"{rule}. If the right is there, {_INSTALL}" if address.aggregated else rule


def _not_found(address: ServiceAddress, message: str, resource: str) -> CommandError:
    if message and "could not find the requested resource" not in message:
        return CommandError(Exit.NOT_FOUND, message)
    if address.aggregated:
        return CommandError(
            Exit.NOT_FOUND,
            f"{address.origin} serves no {resource} of {GROUP}/{VERSION}: {_INSTALL}",
        )
    return CommandError(
        Exit.NOT_FOUND,
        f"{address.origin} serves no /v1/{resource}: check that it is a gpuledger service, not"
        " older than this command",
    )


def _unavailable(address: ServiceAddress, message: str) -> str:
    why = message or "the service is unavailable"
    if address.aggregated:
        return f"{why}; check that the pods of gpuledger are ready, and {_INSTALL}"
    return f"{why}; try again, or check its /readyz"
