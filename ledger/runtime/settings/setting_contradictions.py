"""Setting contradictions: settings that are valid alone and do not work together.

Each rule names a setting and the remedy. Rules about one value that no pattern can express are
here, too, for example the URL of a NATS server.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

from ledger.runtime import addresses
from ledger.runtime.settings.resource_claim_section import OTHER_CLASSES_MAX
from ledger.runtime.settings.settings import Settings

SETTLE_SECONDS_PRODUCTION: Final = 45.0
"""An admission may take 34 s in the API server, and the write to etcd some seconds more."""

SETTLE_SECONDS_PLACING: Final = 60.0
"""A Binding may be sent 25 s after its placement, and the API server may take 34 s for it."""

_SERVER: Final = re.compile(r"(?:(?:nats|tls|ws|wss)://)?[^/?#\s]+/?")


def _is_no_server(url: str) -> bool:
    """Return whether a URL cannot be that of a NATS server."""
    if not _SERVER.fullmatch(url):
        return True
    try:
        return urlsplit(url if "://" in url else f"nats://{url}").port == 0
    except ValueError:
        return True


def _is_no_service(url: str) -> bool:
    """Return whether the URL of a service has an invalid host or port."""
    try:
        parts = urlsplit(url)
        return bool(url) and (not parts.hostname or parts.port == 0)
    except ValueError:
        return True


_ACCOUNTS: Final = re.compile(r"(system:)?serviceaccounts?(:|$)")
_ACCOUNT: Final = re.compile(r"system:serviceaccount:[a-z0-9][-a-z0-9]*:[a-z0-9][-.a-z0-9]*")
_SCHEDULER: Final = re.compile(r"[A-Za-z0-9][-_.A-Za-z0-9]*")


def _may_be_user(name: str) -> bool:
    """Return whether this can be the name of a user or, with its prefix, of a service account."""
    if not name or name != name.strip() or "*" in name:
        return False
    return _ACCOUNT.fullmatch(name) is not None or _ACCOUNTS.match(name) is None


def _may_be_scheduler(name: str) -> bool:
    return _SCHEDULER.fullmatch(name) is not None


Rule = tuple[str, Callable[[Settings], bool], str]

_RULES: Final[tuple[Rule, ...]] = (
    (
        "listen",
        lambda given: addresses.port_of(given.listen) > addresses.PORT_MAX,
        f"the port is beyond {addresses.PORT_MAX}; choose a smaller one",
    ),
    (
        "aggregated_listen",
        lambda given: bool(given.aggregated_listen) and not given.kubernetes,
        "needs a cluster; drop --no-kubernetes",
    ),
    (
        "aggregated_listen",
        lambda given: bool(given.aggregated_listen) and given.plain_http,
        "needs TLS, which plain_http turns off; drop one",
    ),
    (
        "aggregated_listen",
        lambda given: (
            bool(given.aggregated_listen)
            and addresses.port_of(given.aggregated_listen) > addresses.PORT_MAX
        ),
        f"the port is beyond {addresses.PORT_MAX}; choose a smaller one",
    ),
    (
        "tls_cert",
        lambda given: bool(given.tls_cert) and not given.tls_key,
        "has no key; give tls_key too",
    ),
    (
        "tls_key",
        lambda given: bool(given.tls_key) and not given.tls_cert,
        "has no certificate; give tls_cert too",
    ),
    (
        "plain_http",
        lambda given: (
            given.plain_http and bool(given.client_ca or given.tls_cert or given.tls_secret)
        ),
        "makes client_ca, tls_cert and tls_secret useless; drop them or serve TLS",
    ),
    (
        "tls_ca",
        lambda given: bool(given.tls_ca) and not given.tls_cert,
        "has no certificate; give tls_cert too",
    ),
    (
        "tls_secret",
        lambda given: bool(given.tls_secret and given.tls_cert),
        "is given beside tls_cert; keep one",
    ),
    (
        "tls_secret",
        lambda given: bool(given.tls_secret) and not given.kubernetes,
        "needs a cluster; drop --no-kubernetes",
    ),
    (
        "plain_http",
        lambda given: given.plain_http and given.production,
        "is not for production; serve TLS",
    ),
    (
        "client_subjects",
        lambda given: bool(given.client_subjects) and not given.client_ca,
        "are checked against nothing; give client_ca too",
    ),
    (
        "page",
        lambda given: given.page in ("token", "login") and not given.kubernetes,
        "needs a cluster that reviews tokens; drop --no-kubernetes",
    ),
    (
        "page_proxy_subjects",
        lambda given: (
            bool(given.page_proxy_subjects) and not (given.client_ca and given.kubernetes)
        ),
        "need client_ca, which verifies their certificates, and a cluster, which reviews rights",
    ),
    (
        "page_proxy_subjects",
        lambda given: (
            bool(given.page_proxy_subjects and given.client_ca) and not given.client_subjects
        ),
        "would allow the proxy to send reviews; name the API server's certificate in"
        " client_subjects",
    ),
    (
        "page_proxy_subjects",
        lambda given: bool(set(given.page_proxy_subjects) & set(given.client_subjects)),
        "and client_subjects have a name in common, so the proxy could send reviews, and the API"
        " server name users; give the proxy a certificate of its own",
    ),
    (
        "page_proxy_subjects",
        lambda given: bool(given.page_proxy_subjects) and given.page == "off",
        "have no page; drop them, or set page to loopback",
    ),
    (
        "kubeconfig",
        lambda given: bool(given.kubeconfig) and not given.kubernetes,
        "contradicts --no-kubernetes; drop one",
    ),
    (
        "register_webhook",
        lambda given: bool(given.register_webhook) and not given.kubernetes,
        "needs a cluster; drop --no-kubernetes",
    ),
    (
        "register_webhook",
        lambda given: bool(given.register_webhook) and given.plain_http,
        "needs TLS, which plain_http turns off; drop one",
    ),
    (
        "register_service",
        lambda given: bool(given.register_service and given.register_webhook),
        "is given beside register_webhook; keep one",
    ),
    (
        "register_service",
        lambda given: bool(given.register_service) and not given.kubernetes,
        "needs a cluster; drop --no-kubernetes",
    ),
    (
        "register_service",
        lambda given: (
            bool(given.register_service)
            and not given.tls_secret
            and not (given.tls_cert and given.tls_ca)
        ),
        "needs one CA for all replicas; give tls_secret, or tls_cert with tls_ca",
    ),
    (
        "replicas",
        lambda given: given.replicas > 1 and not given.nats,
        "needs as many NATS servers, and the embedded one is alone; give nats",
    ),
    (
        "nats_creds",
        lambda given: bool(given.nats_creds and (given.nats_user or given.nats_password)),
        "is given beside nats_user or nats_password; give one kind of credentials",
    ),
    (
        "nats_login_file",
        lambda given: bool(
            given.nats_login_file and (given.nats_user or given.nats_password or given.nats_creds)
        ),
        "is given beside nats_user, nats_password or nats_creds; give one kind of credentials",
    ),
    (
        "nats",
        lambda given: (
            not given.nats
            and bool(given.nats_user or given.nats_login_file or given.nats_creds or given.nats_ca)
        ),
        "is empty, so the credentials have no server; give its URL",
    ),
    (
        "nats",
        lambda given: any(map(_is_no_server, given.nats)),
        f"is not the URL of a server; write nats://HOST:PORT or tls://HOST:PORT, up to port"
        f" {addresses.PORT_MAX}",
    ),
    (
        "server",
        lambda given: _is_no_service(given.server),
        f"is not the URL of a service; write https://HOST:PORT, up to port {addresses.PORT_MAX}",
    ),
    (
        "nats_domain",
        lambda given: bool(given.nats_domain) and not given.nats,
        "needs servers in nats; give their URLs",
    ),
    (
        "trusted_identities",
        lambda given: not all(map(_may_be_user, given.trusted_identities)),
        "has an invalid user name; a service account's is"
        " system:serviceaccount:NAMESPACE:NAME, and groups are not read",
    ),
    (
        "claim_controllers",
        lambda given: not all(map(_may_be_user, given.claim_controllers)),
        "has an invalid user name; a service account's is"
        " system:serviceaccount:NAMESPACE:NAME, and groups are not read",
    ),
    (
        "claim_schedulers",
        lambda given: not all(map(_may_be_user, given.claim_schedulers)),
        "has an invalid user name; a service account's is"
        " system:serviceaccount:NAMESPACE:NAME, and groups are not read",
    ),
    (
        "other_device_classes",
        lambda given: len(given.other_device_classes) > OTHER_CLASSES_MAX,
        f"has more than {OTHER_CLASSES_MAX} classes; list those that are requested often, and their"
        " drivers as otherDrivers in device_classes_file",
    ),
    (
        "card_schedulers",
        lambda given: not all(map(_may_be_scheduler, given.card_schedulers)),
        "has an invalid scheduler name; give the schedulerName of its pods",
    ),
    (
        "cluster_labels",
        lambda given: (
            len(given.cluster_labels)
            > len({text.partition("=")[0] for text in given.cluster_labels})
        ),
        "gives one key two values; keep one",
    ),
    (
        "queue_per_namespace_max",
        lambda given: given.queue_per_namespace_max > given.queue_commands_max,
        "is larger than the whole queue; lower it or raise queue_commands_max",
    ),
    (
        "settle_seconds",
        lambda given: given.production and given.settle_seconds < SETTLE_SECONDS_PRODUCTION,
        "is shorter than a write may take after its admission;"
        f" give {SETTLE_SECONDS_PRODUCTION:g} or more in production",
    ),
    (
        "settle_seconds",
        lambda given: (
            given.production
            and given.extender
            and SETTLE_SECONDS_PRODUCTION <= given.settle_seconds < SETTLE_SECONDS_PLACING
        ),
        "is shorter than a Binding may take after its placement;"
        f" give {SETTLE_SECONDS_PLACING:g} or more in production, or turn the extender off",
    ),
)


def contradictions(given: Settings) -> Iterator[tuple[str, str]]:
    """Yield `(name, remedy)` for each setting that contradicts another one."""
    for name, broken, remedy in _RULES:
        if broken(given):
            yield name, remedy
