"""Before install: what an installation needs of a cluster, asked before anything is installed."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import msgspec

from gpuledger.check.api_questions import ApiQuestions
from gpuledger.check.cluster_judgements import judge_unanswered, judge_version
from gpuledger.check.install_facts import (
    CheckedSite,
    ServerIdentity,
    ServerVersion,
    read_identity,
    read_nodes,
)
from gpuledger.check.install_findings import (
    InstallFinding,
    Unasked,
    failed,
    not_asked,
    passed,
    warned,
)
from gpuledger.check.installed_objects import (
    ForeignObject,
    foreign_definitions,
    foreign_objects,
)
from gpuledger.check.registered_webhooks import RegisteredInstallation, read_registration
from gpuledger.wiring import admission_from_settings, trusted_identities
from ledger.kube.api.api_resources import Resource
from ledger.kube.api.cluster_errors import ClusterError
from ledger.kube.api.objects import ObjectMeta
from ledger.kube.client.api_client import ApiClient
from ledger.kube.cluster import hami_accounts
from ledger.kube.cluster.hami_accounts import HamiAccount
from ledger.runtime.settings.settings import Settings

_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
_MAY: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_REGISTRATION: Final = "admissionregistration.k8s.io"

Need = tuple[str, str, bool]

NEEDED: Final[tuple[Need, ...]] = (
    ("apiextensions.k8s.io", "customresourcedefinitions", False),
    ("rbac.authorization.k8s.io", "clusterroles", False),
    ("rbac.authorization.k8s.io", "clusterrolebindings", False),
    (_REGISTRATION, "validatingadmissionpolicies", False),
    (_REGISTRATION, "validatingadmissionpolicybindings", False),
    ("", "serviceaccounts", True),
    ("", "configmaps", True),
    ("", "secrets", True),
    ("", "services", True),
    ("", "resourcequotas", True),
    ("", "pods", True),
    ("apps", "deployments", True),
    ("apps", "statefulsets", True),
    ("batch", "jobs", True),
    ("networking.k8s.io", "networkpolicies", True),
    ("policy", "poddisruptionbudgets", True),
    ("rbac.authorization.k8s.io", "roles", True),
    ("rbac.authorization.k8s.io", "rolebindings", True),
)
"""Group, resource, and whether it is in the namespace: the user who installs creates these.

Agents, backups and monitoring, which are switched on by values, have more kinds.
"""

LISTED: Final[tuple[Need, ...]] = (("apps", "deployments", True),)
"""As above: the chart compares the names of the installed objects with the new ones."""

_SHOWN: Final = 4


async def check_before_install(
    client: ApiClient,
    site: CheckedSite,
    settings: Settings,
    release: str,
    classes: Sequence[str] = (),
) -> list[InstallFinding]:
    """Return the findings about a cluster on which nothing needs to be installed.

    `classes` are the StorageClasses of the volumes, "" for the default one; without any, the log
    has a volume of the default class unless the settings name log servers.

    The chart's Job asks with an account of its own, which installs nothing. helm has compared the
    owners of all objects before it starts the Job, so the Job asks only the rest.
    """
    questions = ApiQuestions(client)
    version, in_hook = await asyncio.gather(_version(questions), _is_hook(questions, site))
    asked = await asyncio.gather(
        _webhooks(questions, site),
        _storage(questions, site, settings, classes),
        _hami(client, settings),
        _nodes(questions, site),
        *(() if in_hook else _asked_of_owners(questions, site, release)),
    )
    server = judge_unanswered(questions.unanswered) or version
    owners = [_rights_of_hook(questions, site)] if in_hook else asked[_OF_CLUSTER:]
    return [server, *owners, *asked[:_OF_CLUSTER]]


_OF_CLUSTER: Final = 4
"""Checks that do not depend on who installs."""


def _asked_of_owners(
    questions: ApiQuestions, site: CheckedSite, release: str
) -> tuple[Coroutine[Any, Any, InstallFinding], ...]:
    return (
        _rights(questions, site.namespace),
        _definitions(questions, site.namespace, release),
        _names(questions, site, release),
    )


def hook_account(site: CheckedSite) -> str:
    """Return the user name of the account with which the chart's Job asks."""
    return f"system:serviceaccount:{site.namespace}:{site.name}-before-install"


async def _is_hook(questions: ApiQuestions, site: CheckedSite) -> bool:
    identity = await read_identity(questions)
    return isinstance(identity, ServerIdentity) and identity.user == hook_account(site)


def _rights_of_hook(questions: ApiQuestions, site: CheckedSite) -> InstallFinding:
    """Return whether the account of the chart's Job could ask all questions."""
    if questions.refused:
        return failed(
            "rights",
            questions.refused[0],
            f"give {hook_account(site)} the ClusterRole and the Role of this name of the chart",
        )
    return passed("rights", "this account may ask all questions")


async def _version(questions: ApiQuestions) -> InstallFinding:
    version = await questions.read("/version", ServerVersion)
    if version is None or isinstance(version, Unasked):
        return not_asked("api-server", version or Unasked("the API server has no /version"))
    return judge_version(
        version.git_version, version.major, version.minor, questions.client.address
    )


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Access(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


async def _rights(questions: ApiQuestions, namespace: str) -> InstallFinding:
    """Return whether this user may create what the chart has."""
    needs = [*(("create", need) for need in NEEDED), *(("list", need) for need in LISTED)]
    answers = await asyncio.gather(
        *(_may(questions, verb, need, namespace) for verb, need in needs)
    )
    missing = []
    for (verb, (group, name, _)), answer in zip(needs, answers, strict=True):
        if answer is None or isinstance(answer, Unasked):
            return not_asked("rights", answer or Unasked("the API server reviews no access"))
        if not answer.status.allowed:
            missing.append(f"{verb} {name}.{group}" if group else f"{verb} {name}")
    if missing:
        return failed(
            "rights",
            f"this user may not {', '.join(missing)}",
            "install as a user with these rights, such as one of the ClusterRole cluster-admin",
        )
    return passed("rights", "this user may create what the chart has without optional parts")


async def _may(
    questions: ApiQuestions, verb: str, need: Need, namespace: str
) -> _Access | Unasked | None:
    group, resource, is_local = need
    within = namespace if is_local else ""
    named = {"verb": verb, "group": group, "resource": resource, "namespace": within}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": named},
    }
    return await questions.ask("POST", _MAY, _Access, body=review)


async def _definitions(questions: ApiQuestions, namespace: str, release: str) -> InstallFinding:
    """Return whether the definitions of our kinds are absent, or of a release of helm.

    The chart leaves the definitions of another release with that release.
    """
    foreign = await foreign_definitions(questions, namespace, release)
    if isinstance(foreign, Unasked):
        return not_asked("definitions", foreign)
    unowned = [item for item in foreign if not item.owner]
    if unowned:
        return failed(
            "definitions",
            _described(unowned),
            "set crds.install=false to use them, or take them over: helm install --take-ownership",
        )
    if foreign:
        return passed("definitions", f"they stay with their release: {_described(foreign)}")
    return passed("definitions", "none of another owner")


async def _names(questions: ApiQuestions, site: CheckedSite, release: str) -> InstallFinding:
    foreign = await foreign_objects(questions, site.namespace, release, site.name)
    if isinstance(foreign, Unasked):
        return not_asked("names", foreign)
    if foreign:
        return failed("names", _described(foreign), _remedy_of_names(foreign, release))
    return passed("names", f"{site.name} is free, or of this release")


def _remedy_of_names(foreign: Sequence[ForeignObject], release: str) -> str:
    """Return the remedy for objects of another owner; the namespace may be the wrong one."""
    remedy = (
        "take them over by helm install --take-ownership (docs/how-to/install.md), or choose"
        " another release name"
    )
    spaces = [
        space
        for space, _, name in (item.owner.partition("/") for item in foreign)
        if name == release
    ]
    if not spaces:
        return remedy
    return f"for the release in {spaces[0]} give --namespace {spaces[0]}; otherwise {remedy}"


def _described(foreign: Sequence[ForeignObject]) -> str:
    shown = [
        f"{item.kind} {item.name}" + (f" (release {item.owner})" if item.owner else "")
        for item in foreign[:_SHOWN]
    ]
    more = len(foreign) - _SHOWN
    return f"exist already: {', '.join(shown)}" + (f" and {more} more" if more > 0 else "")


async def _webhooks(questions: ApiQuestions, site: CheckedSite) -> InstallFinding:
    """Return whether another installation has the webhooks, or reviews the same objects."""
    registration = await read_registration(questions, site.name)
    if isinstance(registration, Unasked):
        return not_asked("webhooks", registration)
    service = registration.service
    if service is not None and service.namespace != site.namespace:
        return failed(
            "webhooks",
            f"the webhook configurations {site.name} call {registration.target}",
            f"choose another release name; or, for this installation, give --namespace"
            f" {service.namespace}; or remove it:"
            f" {RegisteredInstallation(site.name, service.namespace).removal}",
        )
    if registration.others:
        return warned(
            "webhooks",
            f"{registration.other_names} review pods already, and charge them",
            "for one ledger, remove the other installation:"
            f" {'; '.join(other.removal for other in registration.others)}",
        )
    return passed("webhooks", "no other installation reviews pods")


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _StorageClasses(msgspec.Struct, frozen=True):
    items: list[_Named] | None = None


async def _storage(
    questions: ApiQuestions, site: CheckedSite, settings: Settings, classes: Sequence[str]
) -> InstallFinding:
    """Return whether there are the classes of the volumes, if they are to be made."""
    wanted = set(classes or ([] if settings.nats else [""]))
    if not wanted:
        return passed("storage", f"the log is on {', '.join(settings.nats)}")
    listed = await questions.read(_CLASSES, _StorageClasses)
    if listed is None or isinstance(listed, Unasked):
        return not_asked("storage", listed or Unasked("the API server has no StorageClasses"))
    names = [item.metadata.name for item in listed.items or ()]
    defaults = [item.metadata.name for item in listed.items or () if _is_default(item)]
    missing = sorted(wanted - set(names) - ({""} if defaults else set()))
    if not missing:
        shown = [name or f"{', '.join(defaults)} (default)" for name in sorted(wanted)]
        return passed("storage", f"StorageClass {', '.join(shown)}")
    claim = f"data-{site.name}-nats-0"
    existing = await questions.read(_CLAIMS.object(site.namespace, claim), _Named)
    if isinstance(existing, _Named) and missing == [""]:
        return passed("storage", f"PersistentVolumeClaim {claim} exists")
    seen = f"there are {', '.join(names)}" if names else "there is none"
    problem = f"no {_classes_text(missing)}; {seen}"
    # An administrator may make a class the default one later, or delete that of existing volumes.
    harmless = isinstance(existing, _Named) or (names and missing == [""])
    judged = warned if harmless else failed
    return judged("storage", problem, _REMEDY)


_REMEDY: Final = (
    "set nats.storage.class and backup.storage.class to existing StorageClasses, or use log servers"
    " of your own (nats.mode=external, --nats)"
)


def _is_default(item: _Named) -> bool:
    return (item.metadata.annotations or {}).get(_DEFAULT_CLASS) == "true"


def _classes_text(missing: Sequence[str]) -> str:
    return ", ".join(f"StorageClass {name}" if name else "default StorageClass" for name in missing)


async def _hami(client: ApiClient, settings: Settings) -> InstallFinding:
    """Return whether HAMi runs here, under names that the service trusts."""
    try:
        accounts = await hami_accounts.find_accounts(client)
    except (ClusterError, ConnectionError) as error:
        return not_asked("hami", Unasked(str(error), hami_accounts.RIGHTS))
    if not accounts.proven:
        return passed("hami", "HAMi is not installed")
    lines = _missing_settings(accounts.proven, settings)
    users = ", ".join(account.user for account in accounts.proven)
    if lines:
        return warned("hami", f"HAMi writes as {users}", f"add to settings: {'; '.join(lines)}")
    return passed("hami", f"HAMi writes as {users}, which is trusted")


def _missing_settings(proven: Sequence[HamiAccount], settings: Settings) -> list[str]:
    trusted = trusted_identities.trusted_identities(settings)
    schedulers = admission_from_settings.card_schedulers(settings).names
    users = [account.user for account in proven if account.user not in trusted]
    names = [account.scheduler for account in proven if account.scheduler not in ("", *schedulers)]
    wanted = (("trusted_identities", users), ("card_schedulers", names))
    return [f"{name} {', '.join(dict.fromkeys(values))}" for name, values in wanted if values]


async def _nodes(questions: ApiQuestions, site: CheckedSite) -> InstallFinding:
    nodes = await read_nodes(questions, site.rules)
    if isinstance(nodes, Unasked):
        return not_asked("nodes", nodes)
    announcing = [node for node in nodes if node.announced.vendors]
    offering = [node for node in nodes if node.allocatable]
    if announcing:
        cards = sum(len(node.announced.cards) for node in announcing)
        return passed("nodes", f"{len(announcing)} of {len(nodes)} announce {cards} cards")
    if offering:
        return passed("nodes", f"{len(offering)} of {len(nodes)} offer cards that can be charged")
    return warned(
        "nodes",
        f"none of {len(nodes)} nodes offers cards yet",
        "install a device plugin, or the agent: docs/how-to/node.md",
    )
