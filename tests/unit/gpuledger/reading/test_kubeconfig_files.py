"""Kubeconfig files: lists of files, contexts, relative paths, and errors that name the file."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading.kubeconfig_files import (
    FILE_BYTES_MAX,
    KubeContext,
    decoded,
    load_context,
    paths_of,
)


def config(name: str = "a", **more: Any) -> dict[str, Any]:
    """Return a kubeconfig with a context, a cluster and a user of one name."""
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}"}}],
        "users": [{"name": name, "user": {"token": f"token-{name}"}}],
        **more,
    }


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def load(*paths: Path, name: str = "") -> KubeContext:
    return load_context(list(paths), name, given=False)


def test_files_are_the_given_one_then_the_list_then_the_home(tmp_path: Path) -> None:
    listed = {"KUBECONFIG": f"one{os.pathsep}{os.pathsep}two"}
    assert paths_of("given", listed) == [Path("given")]
    assert paths_of("", listed) == [Path("one"), Path("two")]
    assert paths_of("", {"KUBECONFIG": ""}) == [Path("~/.kube/config").expanduser()]


def test_the_first_file_counts_for_each_entry(tmp_path: Path) -> None:
    other = config("b")
    other["users"].append({"name": "a", "user": {"token": "second"}})
    first, second = write(tmp_path / "1", config("a")), write(tmp_path / "2", other)
    context = load(first, tmp_path / "missing", second)
    assert (context.cluster.server, context.user.token) == ("https://a", "token-a")
    assert load(second, first).cluster.server == "https://b"
    assert load(first, second, name="b").cluster.server == "https://b"


def test_a_context_may_join_entries_of_two_files(tmp_path: Path) -> None:
    joined = {
        "contexts": [{"name": "c", "context": {"cluster": "a", "user": "b", "namespace": "n"}}]
    }
    files = [write(tmp_path / "1", joined), write(tmp_path / "2", config("a"))]
    context = load(*files, write(tmp_path / "3", config("b")), name="c")
    assert (context.cluster.server, context.user.token) == ("https://a", "token-b")
    assert context.namespace == "n"


def test_the_namespace_of_a_context_without_one_is_default(tmp_path: Path) -> None:
    assert load(write(tmp_path / "1", config())).namespace == "default"


def test_relative_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    folder = tmp_path / "sub"
    folder.mkdir()
    content = config()
    content["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"
    plugin = {"command": "./login", "apiVersion": "client.authentication.k8s.io/v1"}
    content["users"][0]["user"] = {"tokenFile": "token", "client-key": "/abs/key", "exec": plugin}
    context = load(write(folder / "config", content))
    assert context.cluster.certificate_authority == str(folder / "ca.crt")
    assert (context.user.token_file, context.user.client_key) == (str(folder / "token"), "/abs/key")
    assert context.user.plugin is not None
    assert context.user.plugin.command == str(folder / "login")


def test_a_command_without_a_path_is_left_to_the_search_path(tmp_path: Path) -> None:
    content = config()
    plugin = {"command": "login", "apiVersion": "client.authentication.k8s.io/v1"}
    content["users"][0]["user"] = {"exec": plugin}
    context = load(write(tmp_path / "config", content))
    assert context.user.plugin is not None
    assert context.user.plugin.command == "login"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (": [", "it is not YAML"),
        ("- 1", "it is not a kubeconfig"),
        ({"contexts": {"a": 1}}, "it is not a kubeconfig"),
        (config(contexts=[{"name": "a", "context": None}]), "has no context 'a', known are a"),
        (config(clusters=None), "cluster 'a' of context 'a' has no server"),
        (config(users=[]), "user 'a' of context 'a' is not there"),
        ({}, "has no current context: choose one"),
        ("#" * (FILE_BYTES_MAX + 1), "more than"),
    ],
)
def test_an_unusable_file_is_named_with_a_remedy(
    tmp_path: Path, content: Any, message: str
) -> None:
    path = write(tmp_path / "config", content)
    with pytest.raises(CommandError, match=message) as refused:
        load(path)
    assert refused.value.status is Exit.USAGE
    assert str(path) in str(refused.value)


def test_an_unknown_context_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "config", config("a"))
    with pytest.raises(CommandError, match="has no context 'x', known are a"):
        load(path, name="x")


def test_a_given_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        load_context([tmp_path / "none"], "", given=True)


def test_data_that_is_not_base64_is_named() -> None:
    assert decoded("client-key-data", "YQ==") == b"a"
    with pytest.raises(CommandError, match="client-key-data of the kubeconfig is not base64"):
        decoded("client-key-data", "%%%")
