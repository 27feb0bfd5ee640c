"""Install facts: the answers of the API server and of the replicas about one installation."""

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from extender.settlement import node_card_health
from extender.settlement.node_card_health import NodeReading, NodeRules
from gpuledger.check.api_questions import ApiQuestions
from gpuledger.check.install_findings import Unasked
from gpuledger.check.probe_pods import ProbeAnswer, probe
from gpuledger.check.registered_webhooks import RegisteredWebhooks, read_registration
from gpuledger.check.replica_addresses import addresses_of
from gpuledger.check.replica_reports import ReplicaAddress, ReplicaReport, ask_replicas
from ledger.kube.api.api_resources import DAEMON_SETS
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.objects import ObjectMeta
from ledger.kube.client.api_client import ApiClient
from ledger.kube.cluster.kubernetes_cluster import KubernetesCluster
from ledger.kube.vendors.vendors import Vendor

NAME: Final = "app.kubernetes.io/name"
COMPONENT: Final = "app.kubernetes.io/component"
VERSION: Final = "app.kubernetes.io/version"

_IDENTITY: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
_REVIEW: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class CheckedSite(msgspec.Struct, frozen=True, kw_only=True):
    """The installation to check: its namespace and the name of its objects.

    `agents` is the namespace of the agents, `probes` that of the dry runs, and `vendor` the vendor
    of their cards. `inside` is true if this process runs in a pod, and so can reach the addresses
    of pods.
    """

    namespace: str
    name: str
    agents: str
    probes: str
    vendor: Vendor
    rules: NodeRules
    inside: bool


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The version of the API server."""

    git_version: str = ""
    major: str = ""
    minor: str = ""


class ServerIdentity(msgspec.Struct, frozen=True):
    """The user of this command, and the time of the API server at `asked` of this machine.

    Both in seconds of Unix time; the API server sends whole seconds.
    """

    user: str
    time: float
    asked: float


class AgentSet(msgspec.Struct, frozen=True):
    """A DaemonSet of agents: its pods, and how many are wanted and ready."""

    name: str
    version: str
    wanted: int
    ready: int


class InstallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All answers; `Unasked` where a question was not asked or not answered."""

    site: CheckedSite
    address: str
    version: ServerVersion | Unasked
    identity: ServerIdentity | Unasked
    registration: RegisteredWebhooks | Unasked
    replicas: list[ReplicaReport] | Unasked
    allowed: ProbeAnswer
    denied: ProbeAnswer
    nodes: list[NodeReading] | Unasked
    agents: list[AgentSet] | Unasked
    refused: tuple[str, ...]
    unanswered: tuple[str, ...]

    @property
    def service_namespace(self) -> str:
        """The namespace of the registered Service; without one, that of the options."""
        registered = self.registration
        if isinstance(registered, Unasked) or registered.service is None:
            return self.site.namespace
        return registered.service.namespace


async def gather(client: ApiClient, site: CheckedSite) -> InstallFacts:
    """Ask all questions."""
    questions = ApiQuestions(client)
    version, identity, registration = await asyncio.gather(
        _version(questions), read_identity(questions), read_registration(questions, site.name)
    )
    replicas, denied, allowed, nodes, agents = await asyncio.gather(
        _replicas(questions, site, registration),
        probe(questions, site.probes, site.vendor, denied=True),
        probe(questions, site.probes, site.vendor, denied=False),
        read_nodes(questions, site.rules),
        _agents(questions, site),
    )
    return InstallFacts(
        site=site,
        address=client.address,
        version=version,
        identity=identity,
        registration=registration,
        replicas=replicas,
        allowed=allowed,
        denied=denied,
        nodes=nodes,
        agents=agents,
        refused=tuple(questions.refused),
        unanswered=tuple(questions.unanswered),
    )


async def _version(questions: ApiQuestions) -> ServerVersion | Unasked:
    answer = await questions.read("/version", ServerVersion)
    return answer if answer is not None else Unasked("the API server has no /version")


class _UserInfo(msgspec.Struct, frozen=True):
    username: str = ""


class _ReviewStatus(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _Review(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _ReviewStatus = _ReviewStatus()


async def read_identity(questions: ApiQuestions) -> ServerIdentity | Unasked:
    """Return the user and the time of the API server, which every user may read."""
    before = time.time()
    answer = await questions.ask("POST", _IDENTITY, _Review, body=_REVIEW)
    asked = (before + time.time()) / 2
    if answer is None:
        return Unasked("the API server has no SelfSubjectReviews")
    if isinstance(answer, Unasked):
        return answer
    created: datetime | None = answer.metadata.creation_timestamp
    if created is None:
        return Unasked("the API server's SelfSubjectReview has no time")
    return ServerIdentity(answer.status.user_info.username, created.timestamp(), asked)


async def _replicas(
    questions: ApiQuestions, site: CheckedSite, registration: RegisteredWebhooks | Unasked
) -> list[ReplicaReport] | Unasked:
    """Ask all replicas behind the registered address."""
    if isinstance(registration, Unasked):
        return registration
    service = registration.service
    if service is None:
        if not registration.url:
            return Unasked("no webhook is registered", "the remedy of webhooks")
        addresses: list[ReplicaAddress] | Unasked
        addresses = [ReplicaAddress(registration.url, registration.url)]
    elif not site.inside:
        return Unasked(
            "this command runs outside the cluster",
            f"ask in the cluster: helm test RELEASE -n {service.namespace} --logs",
        )
    else:
        addresses = await addresses_of(questions, service)
    if isinstance(addresses, Unasked):
        return addresses
    return await ask_replicas(addresses, registration.authority, _token(site))


def _token(site: CheckedSite) -> str:
    """Return the token of this pod's account; outside of a pod no token is sent to replicas."""
    try:
        return _TOKEN.read_text("ascii").strip() if site.inside else ""
    except OSError:
        return ""


async def read_nodes(questions: ApiQuestions, rules: NodeRules) -> list[NodeReading] | Unasked:
    """Return the readings of all nodes."""
    try:
        listed = await KubernetesCluster(questions.client).list_nodes()
    except ClusterError as error:
        return questions.failure("nodes", error)
    return [node_card_health.read(node, rules) for node in listed.objects]


class _SetStatus(msgspec.Struct, frozen=True, rename="camel"):
    desired_number_scheduled: int = 0
    number_ready: int = 0


class _Set(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _SetStatus = _SetStatus()


class _Sets(msgspec.Struct, frozen=True):
    items: list[_Set] | None = None


async def _agents(questions: ApiQuestions, site: CheckedSite) -> list[AgentSet] | Unasked:
    """Return the DaemonSets of the installation's agents.

    Tenants may write the same labels in other namespaces.
    """
    selector = f"{NAME}={site.name},{COMPONENT}=agent"
    listed = await questions.read(
        DAEMON_SETS.collection(site.agents), _Sets, {"labelSelector": selector}
    )
    if listed is None or isinstance(listed, Unasked):
        return listed or []
    return [
        AgentSet(
            found_set.metadata.full_name(),
            (found_set.metadata.labels or {}).get(VERSION, ""),
            found_set.status.desired_number_scheduled,
            found_set.status.number_ready,
        )
        for found_set in listed.items or ()
    ]
