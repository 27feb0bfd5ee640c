"""Access to a cluster: the TLS context and the headers that a context of a kubeconfig gives.

In a pod without a kubeconfig, the service account of the pod is a context.
"""

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading.access_files import content_of, identify, trusting, usable_token
from gpuledger.reading.kubeconfig_files import ClusterAccess, KubeContext, UserAccess, decoded
from gpuledger.reading.request_credentials import (
    FixedCredentials,
    Headers,
    PluginCredentials,
    RequestCredentials,
    TokenFileCredentials,
    bearer,
)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def context_of_pod(
    environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT
) -> KubeContext | None:
    """Return the context of this pod's service account, None outside a pod."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{part}", "") for part in ("HOST", "PORT"))
    if not host or not (folder / "token").is_file():
        return None
    host = f"[{host}]" if ":" in host else host
    cluster = ClusterAccess(f"https://{host}:{port}", str(folder / "ca.crt"))
    namespace = content_of("namespace", str(folder / "namespace")).decode("ascii", "replace")
    user = UserAccess(token_file=str(folder / "token"))
    return KubeContext("the service account of this pod", cluster, user, namespace.strip())


async def access_of(
    context: KubeContext,
) -> tuple[ssl.SSLContext, RequestCredentials, Headers]:
    """Return the TLS context, the credentials, and the other headers of each request.

    Raises CommandError.
    """
    user, also = context.user, _impersonation(context.user)
    tls = _tls(context.cluster)
    _identify(tls, user)
    if user.token_file:
        return tls, TokenFileCredentials("tokenFile", user.token_file), also
    if user.plugin is not None and not user.token:
        credentials = await PluginCredentials.started(user.plugin, context.cluster, tls)
        return tls, credentials, also
    return tls, FixedCredentials(_authorization(user)), also


def _tls(cluster: ClusterAccess) -> ssl.SSLContext:
    field, authority = "certificate-authority", b""
    if cluster.certificate_authority_data:
        field = "certificate-authority-data"
        authority = decoded(field, cluster.certificate_authority_data)
    elif cluster.certificate_authority:
        authority = content_of(field, cluster.certificate_authority)
    tls = trusting(field, authority)
    if cluster.insecure_skip_tls_verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls


def _identify(tls: ssl.SSLContext, user: UserAccess) -> None:
    certificate = _part("client-certificate", user.client_certificate_data, user.client_certificate)
    key = _part("client-key", user.client_key_data, user.client_key)
    if bool(certificate) != bool(key):
        raise CommandError(
            Exit.USAGE,
            "the user of the kubeconfig has a client certificate or a key, and both are needed",
        )
    if certificate:
        identify(tls, certificate, key)


def _part(field: str, data: str, path: str) -> bytes:
    if data:
        return decoded(f"{field}-data", data)
    return content_of(field, path) if path else b""


def _authorization(user: UserAccess) -> Headers:
    token = user.token
    if not token and user.auth_provider is not None:
        token = _provided(user.auth_provider)
    if token:
        return bearer(usable_token("token", token))
    if user.username:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return [("Authorization", f"Basic {pair}")]
    return []


def _provided(provider: Mapping[str, object]) -> str:
    """Return the token of an auth-provider. Raises CommandError if it has none."""
    config = provider.get("config")
    token = config.get("id-token") if isinstance(config, dict) else None
    if not isinstance(token, str) or not token:
        raise CommandError(
            Exit.USAGE,
            f"the auth-provider {provider.get('name')} of the kubeconfig has no id-token: use an"
            " exec plugin, such as kubelogin",
        )
    return token


def _refuse_parts(user: UserAccess) -> None:
    """Refuse parts of an impersonation without a name, as kubectl does. Raises CommandError.

    The API server would take the request for one of the user itself, whose rights may be wider.
    """
    parts = {
        "as-uid": user.impersonate_uid,
        "as-groups": user.impersonate_groups,
        "as-user-extra": user.impersonate_extra,
    }
    if given := [field for field, value in parts.items() if value]:
        raise CommandError(
            Exit.USAGE,
            f"the user of the kubeconfig has {', '.join(given)} without `as`: add the name of the"
            f" user to act as, or remove {'it' if len(given) == 1 else 'them'}",
        )


def _impersonation(user: UserAccess) -> Headers:
    """Return the headers of a user that acts as another. Raises CommandError without its name."""
    if not user.impersonate:
        _refuse_parts(user)
        return []
    headers = [("Impersonate-User", user.impersonate)]
    if user.impersonate_uid:
        headers.append(("Impersonate-Uid", user.impersonate_uid))
    headers += [("Impersonate-Group", group) for group in user.impersonate_groups or ()]
    headers += [
        (f"Impersonate-Extra-{quote(key.lower(), safe='')}", value)
        for key, values in (user.impersonate_extra or {}).items()
        for value in values
    ]
    return headers
