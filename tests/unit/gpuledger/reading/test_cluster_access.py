"""Access to a cluster without a server: the headers of users, and the service account of a pod."""

from pathlib import Path
from typing import Any

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading.cluster_access import access_of, context_of_pod
from gpuledger.reading.kubeconfig_files import ClusterAccess, KubeContext, UserAccess

IN_POD = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}


def context(**user: Any) -> KubeContext:
    return KubeContext("context c", ClusterAccess("https://api"), UserAccess(**user))


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        ({"username": "u", "password": "p"}, [("Authorization", "Basic dTpw")]),
        (
            {"auth_provider": {"name": "oidc", "config": {"id-token": "stored"}}},
            [("Authorization", "Bearer stored")],
        ),
        ({"token": "t", "auth_provider": {"name": "oidc"}}, [("Authorization", "Bearer t")]),
        ({}, []),
    ],
)
async def test_a_user_has_its_header(user: dict[str, Any], headers: list[tuple[str, str]]) -> None:
    _, credentials, _ = await access_of(context(**user))
    assert await credentials.headers() == headers


@pytest.mark.parametrize("config", [None, {"id-token": ""}, {"id-token": 1}])
async def test_a_provider_without_a_token_is_named(config: Any) -> None:
    with pytest.raises(CommandError, match="auth-provider oidc of the kubeconfig has no id-token"):
        await access_of(context(auth_provider={"name": "oidc", "config": config}))


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"impersonate_groups": ["a"]}, "has as-groups without `as`"),
        ({"impersonate_uid": "u"}, "has as-uid without `as`"),
        (
            {"impersonate_uid": "u", "impersonate_extra": {"k": ["v"]}},
            "has as-uid, as-user-extra without `as`",
        ),
    ],
)
async def test_parts_of_another_user_need_its_name(user: dict[str, Any], named: str) -> None:
    with pytest.raises(CommandError, match=named) as refused:
        await access_of(context(token="t", **user))
    assert refused.value.status is Exit.USAGE
    assert "add the name of the user" in str(refused.value)
    assert (await access_of(context(token="t", impersonate_groups=[])))[2] == []


def test_the_service_account_of_a_pod_is_a_context(tmp_path: Path) -> None:
    assert context_of_pod(IN_POD, tmp_path) is None
    for name, content in (("token", "t"), ("namespace", "team-a\n")):
        (tmp_path / name).write_text(content)
    assert context_of_pod({}, tmp_path) is None
    account = context_of_pod(IN_POD, tmp_path)
    assert account is not None
    assert (account.cluster.server, account.namespace) == ("https://[fd00::1]:443", "team-a")
    assert account.user.token_file == str(tmp_path / "token")
    assert account.cluster.certificate_authority == str(tmp_path / "ca.crt")
