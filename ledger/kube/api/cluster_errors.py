"""Cluster errors: those of requests to the API server, named for callers rather than for HTTP."""


class ClusterError(Exception):
    """The cluster did not serve the request; the message names the address and the reason."""


class ClusterUnavailable(ClusterError):
    """No answer in time, a broken connection, an overloaded server: try again."""


class Gone(ClusterError):
    """The version asked for is no longer kept (410): list again."""


class Forbidden(ClusterError):
    """The credentials are not accepted or do not permit this (401, 403)."""


class NotFound(ClusterError):
    """There is no such object or no such API (404)."""


class NotServed(NotFound):
    """There is no such API: the answer (404) names no missing object."""


class VersionConflict(ClusterError):
    """The object is at another version than the write's precondition (409): read again."""


class AlreadyExists(VersionConflict):
    """An object of that name is there already (409)."""


class BudgetExhausted(ClusterError):
    """A PodDisruptionBudget does not allow the eviction now (429): another pod, or later."""


class Rejected(ClusterError):
    """The request itself is invalid or denied (any other 4xx); `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Malformed(ClusterError):
    """An answer that does not follow the Kubernetes API."""


class NoCredentials(Forbidden):
    """A source has no usable credentials; `problem` names the source and the reason."""

    def __init__(self, source: str, reason: str) -> None:
        """Store the problem; the message adds the remedy of the services."""
        self.problem = f"no credentials from {source}: {reason}"
        super().__init__(
            f"{self.problem}; pass a readable file with --kubeconfig, or --no-kubernetes"
        )
