"""Serving: certificates, clients and connections."""

from typing import Annotated, Literal

from msgspec import Meta

from ledger.runtime.settings.cluster_section import ClusterSection
from ledger.runtime.settings.setting_patterns import (
    HEADER_PATTERN,
    OPTIONAL_HEADER_PATTERN,
    OPTIONAL_HOST_PORT_PATTERN,
    OPTIONAL_NAME_PATTERN,
)


class ServingSection(ClusterSection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Serving: certificates, clients and connections."""

    tls_cert: Annotated[
        str, Meta(description="PEM certificate chain of the server; none: the service creates one.")
    ] = ""
    tls_key: Annotated[str, Meta(description="PEM private key that belongs to tls_cert.")] = ""
    tls_ca: Annotated[
        str,
        Meta(
            description="PEM file with the CA of tls_cert, which the registration gives the API"
            " server; none: the API server's own CAs must include it."
        ),
    ] = ""
    tls_secret: Annotated[
        str,
        Meta(
            pattern=OPTIONAL_NAME_PATTERN,
            description="Secret of the own namespace in which all replicas share a certificate and"
            " its CA; they create and renew both.",
            examples=["gpuledger-tls"],
        ),
    ] = ""
    tls_names: Annotated[
        tuple[str, ...],
        Meta(
            description="Further host names and addresses in the created certificate.",
            examples=["gpuledger.gpuledger-system.svc"],
        ),
    ] = ()
    client_ca: Annotated[
        str,
        Meta(description="PEM file with the CA whose clients may use /admission and /extender."),
    ] = ""
    client_subjects: Annotated[
        tuple[str, ...],
        Meta(
            description="Subjects (RFC 4514) of accepted client certificates; none: all of"
            " client_ca.",
            examples=["CN=kube-apiserver"],
        ),
    ] = ()
    aggregated_listen: Annotated[
        str,
        Meta(
            pattern=OPTIONAL_HOST_PORT_PATTERN,
            description="HOST:PORT of the aggregated API (query.gpuledger.io), for users with a"
            " kubeconfig; none: it is not served.",
            examples=["0.0.0.0:8444"],
        ),
    ] = ""
    metrics_token_file: Annotated[
        str,
        Meta(
            description="File with a token that may read /metrics and /readyz?verbose from other"
            " machines, besides tokens of the cluster that may `get` /metrics and clients that may"
            " send reviews."
        ),
    ] = ""
    page: Annotated[
        Literal["off", "loopback", "token", "login"],
        Meta(
            description="Clients that may read the pages below /page: none; those on this machine;"
            " also those with a bearer token of the cluster; also those that give it on a login"
            " page."
        ),
    ] = "loopback"
    page_session_seconds: Annotated[
        float,
        Meta(ge=60, le=86_400, description="Longest session that begins on the login page."),
    ] = 3600
    page_proxy_subjects: Annotated[
        tuple[str, ...],
        Meta(
            description="Subjects (RFC 4514) of client certificates of authenticating proxies,"
            " whose headers name the user of the pages.",
            examples=["CN=ingress"],
        ),
    ] = ()
    page_user_header: Annotated[
        str,
        Meta(
            pattern=HEADER_PATTERN,
            description="Header in which such a proxy names the user; the proxy has to replace one"
            " that a browser sends.",
        ),
    ] = "X-Forwarded-User"
    page_groups_header: Annotated[
        str,
        Meta(
            pattern=OPTIONAL_HEADER_PATTERN,
            description="Header in which such a proxy names the user's groups, separated by commas;"
            " the proxy has to replace one that a browser sends. None: groups are not read.",
            examples=["X-Forwarded-Groups"],
        ),
    ] = ""
    legacy_metrics: Annotated[
        bool,
        Meta(
            description="Add the earlier names of renamed metrics to /metrics, for dashboards and"
            " rules that still read them. The next version does not have this setting."
        ),
    ] = False
    plain_http: Annotated[
        bool, Meta(description="Serve HTTP without TLS, for a proxy or a test on loopback.")
    ] = False
    connections_max: Annotated[
        int,
        Meta(
            ge=16,
            le=65_536,
            description="Open connections of clients that may send reviews; a further one replaces"
            " the least recently used.",
        ),
    ] = 4096
    connections_uncertified_max: Annotated[
        int,
        Meta(
            ge=16,
            le=65_536,
            description="Open connections of all other clients with client_ca, a quarter of them"
            " from one address; a further one replaces the least recently used.",
        ),
    ] = 512
    production: Annotated[
        bool,
        Meta(
            description="Ready only if the log is durable and replicated, and clients are"
            " authenticated."
        ),
    ] = False
