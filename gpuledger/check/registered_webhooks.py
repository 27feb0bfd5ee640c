"""Registered webhooks: the webhook configurations of an installation at the API server."""

import asyncio
import base64
import binascii
from typing import Final

import msgspec
from cryptography import x509

from gpuledger.check.api_questions import ApiQuestions
from gpuledger.check.install_findings import Unasked
from ledger.kube.api.objects import ObjectMeta

KINDS: Final = ("mutating", "validating")

ENTRY_SUFFIX: Final = ".gpuledger.io"
"""The end of the names of all webhooks of this product."""

PODS: Final = f"pods.validate{ENTRY_SUFFIX}"
"""The webhook that decides about pods."""

REQUIRED: Final = frozenset(
    f"{name}{ENTRY_SUFFIX}"
    for name in (
        "pods.mutate",
        "pods.validate",
        "claims.validate",
        "ephemeralcontainers.validate",
        "resourceclaims.validate",
        "resourceclaimtemplates.validate",
        "definitions.validate",
    )
)
"""The webhooks that every installation has; those of kinds depend on its settings."""

_REGISTRATION: Final = "/apis/admissionregistration.k8s.io/v1"


class CalledService(msgspec.Struct, frozen=True):
    """The Service that the API server calls."""

    namespace: str = ""
    name: str = ""


class _Client(msgspec.Struct, frozen=True, rename="camel"):
    url: str = ""
    service: CalledService | None = None
    ca_bundle: str = ""


class RegisteredEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook: its name, the address that is called, and its failure policy."""

    name: str = ""
    client_config: _Client = _Client()
    failure_policy: str = ""


class RegisteredConfiguration(msgspec.Struct, frozen=True):
    """A webhook configuration."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[RegisteredEntry] | None = None

    def is_ours(self) -> bool:
        """Return whether its webhooks are those of this product."""
        return any(entry.name.endswith(ENTRY_SUFFIX) for entry in self.webhooks or ())


class _Configurations(msgspec.Struct, frozen=True):
    items: list[RegisteredConfiguration] | None = None


class RegisteredInstallation(msgspec.Struct, frozen=True, order=True):
    """Another installation: its name, and the namespace of its Service, "" if it has a URL."""

    name: str
    namespace: str = ""

    @property
    def removal(self) -> str:
        """The command that removes it."""
        return (
            f"gpuledger uninstall --full-name {self.name}"
            f" --namespace {self.namespace or 'NAMESPACE'}"
        )


class RegisteredWebhooks(msgspec.Struct, frozen=True):
    """The configurations of one installation by kind, and the other installations.

    `service` is the Service that is called, or `url` its base URL; `authority` is the caBundle in
    PEM, `conflicts` the entries with another address or CA than the webhook for pods.
    """

    configurations: dict[str, RegisteredConfiguration]
    others: tuple[RegisteredInstallation, ...] = ()
    service: CalledService | None = None
    url: str = ""
    authority: bytes = b""
    conflicts: tuple[str, ...] = ()

    @property
    def target(self) -> str:
        """The called address, as text."""
        if self.service is not None:
            return f"Service {self.service.namespace}/{self.service.name}"
        return self.url

    @property
    def other_names(self) -> str:
        """The names of the other installations, as text."""
        return ", ".join(other.name for other in self.others)

    def entries(self) -> list[RegisteredEntry]:
        """Return all webhooks."""
        return [
            entry
            for configuration in self.configurations.values()
            for entry in configuration.webhooks or ()
        ]

    def authorities(self) -> list[x509.Certificate]:
        """Return the certificates of the caBundle. Raises ValueError for another content."""
        return x509.load_pem_x509_certificates(self.authority) if self.authority else []


async def read_registration(questions: ApiQuestions, name: str) -> RegisteredWebhooks | Unasked:
    """Read the configurations of the installation with this name."""
    listed = await asyncio.gather(
        *(
            questions.read(f"{_REGISTRATION}/{kind}webhookconfigurations", _Configurations)
            for kind in KINDS
        )
    )
    ours: dict[str, RegisteredConfiguration] = {}
    others: dict[str, RegisteredInstallation] = {}
    for kind, answer in zip(KINDS, listed, strict=True):
        if isinstance(answer, Unasked):
            return answer
        for configuration in (answer.items if answer is not None else None) or ():
            if not configuration.is_ours():
                continue
            if configuration.metadata.name == name:
                ours[kind] = configuration
            else:
                other = _installation(configuration)
                others[other.name] = max(other, others.get(other.name, other))
    return _registration(ours, tuple(sorted(others.values())))


def _installation(configuration: RegisteredConfiguration) -> RegisteredInstallation:
    services = (entry.client_config.service for entry in configuration.webhooks or ())
    spaces = (service.namespace for service in services if service is not None)
    return RegisteredInstallation(configuration.metadata.name, next(spaces, ""))


def _registration(
    ours: dict[str, RegisteredConfiguration], others: tuple[RegisteredInstallation, ...]
) -> RegisteredWebhooks:
    registration = RegisteredWebhooks(ours, others)
    entries = registration.entries()
    if not entries:
        return registration
    first = next((entry for entry in entries if entry.name == PODS), entries[0])
    base = _base(first)
    conflicts = tuple(entry.name for entry in entries if _base(entry) != base)
    service, url, bundle = base
    return RegisteredWebhooks(ours, others, service, url, bundle, conflicts)


def _base(entry: RegisteredEntry) -> tuple[CalledService | None, str, bytes]:
    """Return the Service or base URL of an entry, and its CA."""
    client = entry.client_config
    try:
        authority = base64.b64decode(client.ca_bundle, validate=True)
    except binascii.Error:
        authority = client.ca_bundle.encode()
    return client.service, client.url.partition("/admission/")[0], authority
