"""Sources of settings, in rising priority: defaults, TOML file, environment, command line.

All problems are reported together, each with its source, field, value and remedy. An unknown name
is refused, never ignored. A setting of an earlier version is ignored and reported.
"""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from ledger.runtime.settings import setting_texts, settings
from ledger.runtime.settings.setting_contradictions import contradictions
from ledger.runtime.settings.settings import NAMES, Settings

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
    problems.extend(
        SettingProblem(
            sources.get(name, "default"), name, _shown(name, getattr(merged, name)), remedy
        )
        for name, remedy in contradictions(merged)
    )
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
            table = tomllib.loads(opened.read(FILE_BYTES_MAX).decode())
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
    problems.extend(_unknown(source, name, NAMES) for name in table if name not in _ACCEPTED)
    return {name: value for name, value in table.items() if name in _ACCEPTED}


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
