"""HAMi accounts: the service accounts of a HAMi installation, found in any namespace.

HAMi's scheduler is a Deployment, and its device plugins are DaemonSets. The chart labels their pods
with a component, and mirrors keep the names of its images. Every tenant can write such a label or
image into a workload of its own namespace. So an account counts only if the API server answers
that it may patch all pods and all nodes. HAMi needs these rights, and tenants lack them.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from itertools import chain, islice, zip_longest
from typing import Final

import msgspec

from ledger.kube.api import api_resources
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterUnavailable
from ledger.kube.api.objects import ListMeta, ObjectMeta
from ledger.kube.client.access_review import SERVICE_ACCOUNTS, KubernetesReviewer, service_account
from ledger.kube.client.api_client import ApiClient
from ledger.kube.watch import list_watch
from ledger.kube.watch.list_watch import CollectionSource

RIGHTS: Final = (
    "the user of the kubeconfig has to list Deployments and DaemonSets (apps) and to create"
    " SubjectAccessReviews (authorization.k8s.io), as ClusterRole gpuledger may"
)
"""The rights that `find_accounts` needs, as text for messages."""

FIND_SECONDS: Final = 120.0
"""Deadline of a whole search."""

ACCOUNTS_MAX: Final = 1_024
"""Maximum number of reviewed accounts: the first of each namespace, then the second of each."""

ASKED_AT_ONCE: Final = 8

UNPROVEN_MAX: Final = 16
"""Maximum number of returned accounts without the rights; the others are only counted."""

_COMPONENT_LABEL: Final = "app.kubernetes.io/component"
_COMPONENT: Final = re.compile(r"hami-([a-z0-9-]+-)?(scheduler|device-plugin)")
_IMAGE: Final = re.compile(r"(.*/)?(hami|k8s-vdevice|ascend-device-plugin)(:[^/@]*)?(@.*)?")
_NAMED: Final = "--scheduler-name="
_WRITTEN: Final = ("pods", "nodes")


class HamiAccount(msgspec.Struct, frozen=True):
    """A service account's user name, and a workload that runs as it: `Kind namespace/name`.

    `scheduler` is the name of the scheduler that the workload runs, empty for a device plugin.
    """

    user: str
    workload: str
    scheduler: str = ""


class HamiAccounts(msgspec.Struct, frozen=True):
    """The result of a search for HAMi's accounts.

    `proven` accounts have the rights that HAMi needs. `unproven` accounts lack them but run
    workloads that look like HAMi's, `UNPROVEN_MAX` at most; `unproven_more` counts the others.
    `unasked` counts accounts beyond `ACCOUNTS_MAX`.
    """

    proven: tuple[HamiAccount, ...] = ()
    unproven: tuple[HamiAccount, ...] = ()
    unproven_more: int = 0
    unasked: int = 0


class _Container(msgspec.Struct, frozen=True, gc=False):
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None


class _PodSpec(msgspec.Struct, frozen=True, rename="camel", gc=False):
    service_account_name: str = ""
    containers: list[_Container] | None = None


class _Template(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()


class _WorkloadSpec(msgspec.Struct, frozen=True, gc=False):
    template: _Template = _Template()


class HamiWorkload(msgspec.Struct, frozen=True, gc=False):
    """The images, arguments and service account of a Deployment or DaemonSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _WorkloadSpec = _WorkloadSpec()

    def looks_like_hami(self) -> bool:
        """Return whether the labels or an image match HAMi's scheduler or device plugins."""
        template = self.spec.template
        labels = (self.metadata.labels or {}, template.metadata.labels or {})
        if any(_COMPONENT.fullmatch(label_set.get(_COMPONENT_LABEL, "")) for label_set in labels):
            return True
        return any(
            _IMAGE.fullmatch(container.image) for container in template.spec.containers or ()
        )

    def scheduler(self) -> str:
        """Return the name of the workload's scheduler, "" without one."""
        containers = self.spec.template.spec.containers or ()
        words = (
            word
            for container in containers
            for word in (*(container.command or ()), *(container.args or ()))
        )
        named = (word.removeprefix(_NAMED) for word in words if word.startswith(_NAMED))
        return next(named, "")


class _CarrierList(msgspec.Struct, frozen=True, gc=False):
    metadata: ListMeta
    items: list[HamiWorkload] | None = None


async def may_allocate(reviewer: KubernetesReviewer, user: str) -> bool:
    """Return whether a service account may patch every pod and every node, as HAMi needs.

    False for other users. Raises ConnectionError if the API server does not answer.
    """
    subject = service_account(user)
    if subject is None:
        return False
    for resource in _WRITTEN:
        if not await reviewer.may(subject, "patch", resource, "", group=""):
            return False
    return True


async def find_accounts(client: ApiClient) -> HamiAccounts:
    """Find HAMi's accounts in a cluster.

    The client needs `RIGHTS`. Raises ClusterError and ConnectionError.
    """
    try:
        async with asyncio.timeout(FIND_SECONDS):
            candidates = await _candidates(client)
            asked = list(islice(_in_turn(candidates.values()), ACCOUNTS_MAX))
            proven = await _proofs(KubernetesReviewer(client), asked)
    except TimeoutError as error:
        raise ClusterUnavailable(
            f"HAMi's accounts were not found within {FIND_SECONDS:g} s; try again, or ask with"
            " `kubectl auth can-i patch nodes --as=ACCOUNT` yourself"
        ) from error
    others = [account for account, may in zip(asked, proven, strict=True) if not may]
    return HamiAccounts(
        tuple(account for account, may in zip(asked, proven, strict=True) if may),
        tuple(others[:UNPROVEN_MAX]),
        max(0, len(others) - UNPROVEN_MAX),
        len(candidates) - len(asked),
    )


async def _candidates(client: ApiClient) -> dict[str, HamiAccount]:
    """Return the accounts of workloads that look like those of HAMi, by user name."""
    accounts: dict[str, HamiAccount] = {}
    for resource in (api_resources.DEPLOYMENTS, api_resources.DAEMON_SETS):
        listed = await list_watch.list_all(client, _source(resource))
        for account in listed.objects:
            if account is not None and (account.scheduler or account.user not in accounts):
                accounts[account.user] = account
    return accounts


def _source(resource: Resource) -> CollectionSource[HamiWorkload, HamiAccount | None]:
    def keep(seen: HamiWorkload) -> HamiAccount | None:
        return account_of(seen, resource.kind) if seen.looks_like_hami() else None

    return CollectionSource(resource.collection(), HamiWorkload, page_type=_CarrierList, keep=keep)


def account_of(carrier: HamiWorkload, kind: str) -> HamiAccount:
    """Return the service account of a workload's pods."""
    space, name = carrier.metadata.namespace, carrier.metadata.name
    account = carrier.spec.template.spec.service_account_name or "default"
    user, workload = f"{SERVICE_ACCOUNTS}{space}:{account}", f"{kind} {space}/{name}"
    return HamiAccount(user, workload, carrier.scheduler())


def _in_turn(accounts: Iterable[HamiAccount]) -> Iterable[HamiAccount]:
    """Return the accounts round-robin by namespace: the first of each, then the second of each."""
    spaces: dict[str, list[HamiAccount]] = {}
    for account in accounts:
        spaces.setdefault(account.user.split(":")[2], []).append(account)
    rounds = zip_longest(*spaces.values())
    return (account for account in chain.from_iterable(rounds) if account is not None)


async def _proofs(reviewer: KubernetesReviewer, accounts: Sequence[HamiAccount]) -> list[bool]:
    """Return for each account whether it has the rights. Raises ConnectionError."""
    proofs: list[bool] = []
    for start in range(0, len(accounts), ASKED_AT_ONCE):
        some = accounts[start : start + ASKED_AT_ONCE]
        answers = await asyncio.gather(
            *(may_allocate(reviewer, account.user) for account in some), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            proofs.append(answer)
    return proofs
