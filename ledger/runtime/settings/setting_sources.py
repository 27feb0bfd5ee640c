"""Sources of settings, in rising priority: defaults, TOML file, environment, command line.

All problems are reported together, each with its source, field, value and remedy. An unknown name
is refused, never ignored. A setting of an earlier version is ignored and reported.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ledger.runtime import addresses
from ledger.runtime.settings import setting_texts, settings
from ledger.runtime.settings.settings import NAMES, Settings

SETTLE_SECONDS_PRODUCTION: Final = 45.0
"""An admission may take 34 s in the API server, and the write to etcd some seconds more."""

SETTLE_SECONDS_PLACING: Final = 60.0
"""A Binding may be sent 25 s after its placement, and the API server may take 34 s for it."""

FILE_BYTES_MAX: Final = 1_048_576

RETIRED: Final = {
    "stamp_key_file": "has no effect since stamps were removed; remove it, and delete the key",
}
"""Settings of earlier versions, and the remedy for each."""

CONFIG_VARIABLE: Final = setting_texts.ENVIRONMENT_PREFIX + "CONFIG"

_ACCEPTED: Final = frozenset((*NAMES, *RETIRED))

# A Service named "gpuledger" makes the kubelet set these in every pod of its namespace.
_SERVICE_LINKS: Final = re.compile(r"^GPULEDGER_(SERVICE_(HOST|PORT)|PORT($|_))")


class SettingProblem(msgspec.Struct, frozen=True):
    """One problem of a setting. `value` is masked if it is a secret."""

    source: str
    field: str
    value: str
    remedy: str

    def __str__(self) -> str:
        """Render the problem as one line."""
        return f"{self.source}: {self.field} = {self.value}: {self.remedy}"


class InvalidSettings(Exception):
    """Some settings are invalid; `problems` has all problems in the order of the sources."""

    def __init__(self, problems: tuple[SettingProblem, ...]) -> None:
        """Keep the problems; the message has one line for each."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class LoadedSettings(msgspec.Struct, frozen=True):
    """Valid settings, and the source of each setting that differs from its default.

    `without_options` are the settings without those of the command line. `ignored` are the given
    settings of earlier versions.
    """

    settings: Settings
    sources: dict[str, str]
    without_options: Settings
    ignored: tuple[SettingProblem, ...] = ()

    def describe(self) -> list[tuple[str, str, str]]:
        """Return `(name, value, source)` of every setting, secrets masked."""
        return [
            (
                name,
                setting_texts.rendered(setting_texts.masked(name, getattr(self.settings, name))),
                self.sources.get(name, "default"),
            )
            for name in NAMES
        ]


def load(
    command_line: Mapping[str, object],
    environment: Mapping[str, str],
    file: str | None = None,
) -> LoadedSettings:
    """Merge all sources into settings. A None on the command line means "not given".

    `file` is the TOML file to read; without it the variable GPULEDGER_CONFIG may name one. Raises
    InvalidSettings with all problems.
    """
    problems: list[SettingProblem] = []
    ignored: list[SettingProblem] = []
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    without_options = settings.DEFAULTS
    for source, given in _sources(command_line, environment, file, problems):
        without_options = msgspec.structs.replace(settings.DEFAULTS, **values)
        for name, raw in given.items():
            if name in RETIRED:
                ignored.append(SettingProblem(source, name, "(given)", RETIRED[name]))
                continue
            value = _converted(source, name, raw, problems)
            if value is not None:
                values[name], sources[name] = value, source
    # Contradictions are checked among the valid values, so that one start reports all problems.
    merged = msgspec.structs.replace(settings.DEFAULTS, **values)
    problems.extend(_contradictions(merged, sources))
    if problems:
        raise InvalidSettings(tuple(problems))
    return LoadedSettings(merged, sources, without_options, tuple(ignored))


def _sources(
    command_line: Mapping[str, object],
    environment: Mapping[str, str],
    file: str | None,
    problems: list[SettingProblem],
) -> Iterator[tuple[str, Mapping[str, object]]]:
    path = file or environment.get(CONFIG_VARIABLE)
    if path:
        yield f"file {path}", _file(path, problems)
    yield "environment", _environment(environment, problems)
    yield (
        "command line",
        {name: value for name, value in command_line.items() if value is not None},
    )


def _file(path: str, problems: list[SettingProblem]) -> Mapping[str, object]:
    source = f"file {path}"
    try:
        with Path(path).open("rb") as opened:
            found = tomllib.loads(opened.read(FILE_BYTES_MAX).decode())
    except OSError as error:
        problems.append(
            SettingProblem(
                source, "config", path, f"cannot be read ({error.strerror}); check the path"
            )
        )
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(
            SettingProblem(source, "config", path, f"is not TOML: {error}; correct that line")
        )
        return {}
    problems.extend(_unknown(source, name, NAMES) for name in found if name not in _ACCEPTED)
    return {name: value for name, value in found.items() if name in _ACCEPTED}


def _environment(
    environment: Mapping[str, str], problems: list[SettingProblem]
) -> Mapping[str, object]:
    names = {setting_texts.environment_name(name): name for name in _ACCEPTED}
    given: dict[str, object] = {}
    for variable, value in environment.items():
        if variable in names:
            given[names[variable]] = value
        elif _is_misspelt(variable):
            known = tuple(setting_texts.environment_name(name) for name in NAMES)
            problems.append(_unknown("environment", variable, known))
    return given


def _is_misspelt(variable: str) -> bool:
    return (
        variable.startswith(setting_texts.ENVIRONMENT_PREFIX)
        and variable != CONFIG_VARIABLE
        and not _SERVICE_LINKS.match(variable)
    )


def _unknown(source: str, name: str, known: tuple[str, ...]) -> SettingProblem:
    nearest = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean {nearest[0]}?" if nearest else "remove it"
    return SettingProblem(source, name, "(given)", f"is not a setting; {remedy}")


def _converted(
    source: str, name: str, raw: object, problems: list[SettingProblem]
) -> object | None:
    from_text = isinstance(raw, str)
    if from_text and setting_texts.is_list(name):
        raw = [part.strip() for part in str(raw).split(",") if part.strip()]
    try:
        value: object = msgspec.convert(raw, settings.TYPES[name], strict=not from_text)
    except msgspec.ValidationError:
        problems.append(
            SettingProblem(source, name, _shown(name, raw), f"give {setting_texts.wanted(name)}")
        )
        return None
    return value


def _shown(name: str, raw: object) -> str:
    return setting_texts.rendered(setting_texts.masked(name, raw))


_SERVER: Final = re.compile(r"(?:(?:nats|tls|ws|wss)://)?[^/?#\s]+/?")


def _is_no_server(url: str) -> bool:
    """Return whether a URL cannot be that of a NATS server."""
    if not _SERVER.fullmatch(url):
        return True
    try:
        return urlsplit(url if "://" in url else f"nats://{url}").port == 0
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
        lambda given: given.plain_http and bool(given.client_ca or given.tls_cert),
        "makes client_ca and tls_cert useless; drop them or serve TLS",
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


def _contradictions(given: Settings, sources: Mapping[str, str]) -> Iterator[SettingProblem]:
    for name, broken, remedy in _RULES:
        if broken(given):
            shown = _shown(name, getattr(given, name))
            yield SettingProblem(sources.get(name, "default"), name, shown, remedy)
