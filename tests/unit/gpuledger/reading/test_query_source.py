"""The source of a command: options before settings, a store before a kubeconfig, one source."""

from pathlib import Path

import pytest

from gpuledger.cli.exit_codes import CommandError, Exit
from gpuledger.reading import access_files
from gpuledger.reading.query_source import CLUSTER, SERVICE, STORE, chosen, ledger_queries
from ledger.runtime.settings.setting_sources import LoadedSettings, load
from projections.queries.query_scope import QueryScope

URL = "https://ledger"


def given(options: dict[str, str], **environment: str) -> LoadedSettings:
    return load(options, {f"GPULEDGER_{name}": value for name, value in environment.items()})


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("loaded", "family"),
    [
        (given({"store_dir": "s"}), STORE),
        (given({"nats": "nats://n"}), STORE),
        (given({"server": URL}), SERVICE),
        (given({"context": "c"}), CLUSTER),
        (given({"kubeconfig": "k"}), CLUSTER),
        (given({"server": URL}, STORE_DIR="s"), SERVICE),
        (given({"context": "c"}, STORE_DIR="s"), CLUSTER),
        (given({"store_dir": "s"}, SERVER=URL), STORE),
        (given({"server": URL}, CONTEXT="c"), SERVICE),
        (given({}, STORE_DIR="s", KUBECONFIG="k"), STORE),
        (given({}, SERVER=URL), SERVICE),
        (given({}, CONTEXT="c"), CLUSTER),
        (given({}), CLUSTER),
    ],
)
def test_the_source_is_that_of_options_then_of_settings(
    loaded: LoadedSettings, family: tuple[str, ...]
) -> None:
    assert chosen(loaded) is family


def test_a_default_store_is_read_before_the_kubeconfig(empty_home: Path) -> None:
    (empty_home / "gpuledger-data").mkdir()
    assert chosen(given({})) is STORE


@pytest.mark.parametrize(
    ("loaded", "names"),
    [
        (given({"server": URL, "store_dir": "s"}), ("--server", "--store-dir")),
        (given({"server": URL, "context": "c"}), ("--server", "--context")),
        (given({"kubeconfig": "k", "nats": "nats://n"}), ("--kubeconfig", "--nats")),
        (given({"token_file": "t", "store_dir": "s"}), ("--token-file", "--store-dir")),
        (given({}, SERVER=URL, STORE_DIR="s"), ("server (environment)", "store_dir (environment)")),
    ],
)
def test_two_sources_are_an_error_with_both(loaded: LoadedSettings, names: tuple[str, str]) -> None:
    with pytest.raises(CommandError) as refused:
        chosen(loaded)
    assert refused.value.status is Exit.USAGE
    assert all(name in str(refused.value) for name in names)


async def ask(loaded: LoadedSettings, of_store: tuple[str, ...] = ()) -> str:
    """Return the error of a question."""
    with pytest.raises(CommandError) as refused:
        async with ledger_queries(loaded, of_store=of_store) as queries:
            await queries.usage(QueryScope())
    return str(refused.value)


async def test_no_source_is_an_error_with_every_place(empty_home: Path) -> None:
    message = await ask(given({}))
    assert f"no store at {empty_home}/gpuledger-data" in message
    assert f"no kubeconfig at {empty_home}/.kube/config" in message


@pytest.mark.parametrize("variable", ["", "first:second"])
async def test_a_context_without_a_kubeconfig_is_an_error_with_its_name(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", variable)
    places = "first, second" if variable else f"{empty_home}/.kube/config"
    for loaded in (given({"context": "prod"}), given({}, CONTEXT="prod")):
        message = await ask(loaded)
        assert f"no context 'prod', because there is no kubeconfig at {places}: name" in message
        assert "--kubeconfig (KUBECONFIG)" in message
        assert "no store" not in message


async def test_a_token_is_not_sent_in_the_clear() -> None:
    assert "http shows the token" in await ask(given({"server": "http://ledger.example"}))


async def test_options_of_a_service_need_its_address() -> None:
    assert "name it with --server" in await ask(given({"ca_file": "x"}))


async def test_settings_of_a_decision_are_refused_for_a_service() -> None:
    message = await ask(given({"server": URL, "cluster": "east"}), of_store=("cluster",))
    assert "--cluster is for a store" in message


@pytest.mark.parametrize("token", ["two lines\nof it", "", "a b"])
async def test_a_token_file_without_one_token_is_named(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)
    message = await ask(given({"server": URL, "token_file": str(file)}))
    assert f"token_file = {file}" in message
    assert not token or token not in message


async def test_a_file_is_not_read_beyond_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_files, "BYTES_MAX", 10)
    file = tmp_path / "ca.crt"
    file.write_bytes(b"x" * 11)
    message = await ask(given({"server": URL, "ca_file": str(file)}))
    assert f"ca_file = {file}: has more than 10 bytes" in message


async def test_the_namespace_of_the_context_is_the_default(empty_home: Path) -> None:
    path = empty_home / ".kube" / "config"
    path.parent.mkdir()
    path.write_text(
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: c, namespace: team-a}}]\n"
        "clusters: [{name: c, cluster: {server: 'https://api'}}]\n"
    )
    async with ledger_queries(given({})) as queries:
        assert queries.scope("", "") == QueryScope("team-a")
        assert queries.scope("other", "east") == QueryScope("other", "east")
        assert queries.scope("", "", everywhere=True) == QueryScope()
        assert queries.scope("other", "", everywhere=True) == QueryScope()
