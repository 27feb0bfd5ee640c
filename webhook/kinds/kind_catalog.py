"""Kind catalog: every known kind, from the built-in files and from users' files.

A user's document for a built-in kind replaces that kind as a whole.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import msgspec
import yaml

from webhook.kinds.kind_schema import WorkloadKind, decode

FILES_MAX: Final = 256
"""Maximum number of files in a folder of kinds."""

FILE_BYTES_MAX: Final = 256 * 1024
"""Maximum size of a file of kinds, in bytes."""

KINDS_MAX: Final = 256
"""Maximum number of kinds: each is watched and has its own conditions at the API server."""

_SUFFIXES: Final = (".yaml", ".yml")
_log: Final = logging.getLogger(__name__)


class KindError(ValueError):
    """A document of a kind is invalid; the text names file, field, value and remedy."""


class KindCatalog:
    """All kinds, by resource and by the name that ownerReferences use."""

    def __init__(self, kinds: Iterable[WorkloadKind]) -> None:
        """Raises KindError if two of the kinds have the same resource or name."""
        self._of_resource: dict[tuple[str, str], WorkloadKind] = {}
        self._of_name: dict[tuple[str, str], WorkloadKind] = {}
        for kind in kinds:
            for index, word in ((self._of_resource, kind.resource), (self._of_name, kind.kind)):
                other = index.setdefault((kind.group, word), kind)
                if other is not kind:
                    raise KindError(
                        f"{word} of {kind.group or 'the core group'} is described twice, as"
                        f" {other.name} and as {kind.name}: remove one of them"
                    )
        if len(self._of_resource) > KINDS_MAX:
            raise KindError(f"there are more than {KINDS_MAX} kinds: remove some")

    @classmethod
    def load(
        cls,
        paths: Iterable[str | Path] = (),
        controllers: Mapping[str, tuple[str, ...]] | None = None,
    ) -> "KindCatalog":
        """Return the built-in kinds, and those of users' YAML files and folders of them.

        `controllers` has, by `resource.group`, identities that replace those in the documents.
        Raises KindError that names the file, the field, its value and the remedy.
        """
        kinds = {kind.name: kind for kind in _builtin()}
        theirs: dict[str, Path] = {}
        for file in _files(Path(path) for path in paths):
            for kind in _read(file, str(file)):
                if kind.name in theirs:
                    raise KindError(
                        f"{file}: {kind.name} is described in {theirs[kind.name]} already:"
                        " remove one of them"
                    )
                if kind.name in kinds:
                    _log.info("kind_replaced", extra={"kind": kind.name, "file": str(file)})
                theirs[kind.name] = file
                kinds[kind.name] = kind
        return cls(_controlled(kinds, controllers or {}))

    def __iter__(self) -> Iterator[WorkloadKind]:
        """Yield all kinds."""
        return iter(self._of_resource.values())

    def of_resource(self, group: str, resource: str) -> WorkloadKind | None:
        """Return the kind of a resource, such as `apps` and `deployments`."""
        return self._of_resource.get((group, resource))

    def of_owner(self, api_version: str, name: str) -> WorkloadKind | None:
        """Return the kind that an ownerReference names, in any version."""
        group, slash, _ = api_version.partition("/")
        return self._of_name.get((group if slash else "", name))

    @property
    def roots(self) -> tuple[WorkloadKind, ...]:
        """Return the kinds whose objects are charged."""
        return tuple(kind for kind in self if kind.root)

    @property
    def scalable(self) -> tuple[WorkloadKind, ...]:
        """Return the kinds whose objects are charged and have a scale."""
        return tuple(kind for kind in self.roots if kind.scale is not None)


def _builtin() -> Iterator[WorkloadKind]:
    folder = resources.files("webhook.kinds") / "builtin"
    for file in sorted(folder.iterdir(), key=lambda path: path.name):
        yield from _read(file, file.name)


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES)
        if len(inside) > FILES_MAX:
            raise KindError(f"{path} holds more than {FILES_MAX} files of kinds: split it")
        yield from inside


def _read(file: Traversable, name: str) -> Iterator[WorkloadKind]:
    """Yield the kinds of one file. Raises KindError."""
    try:
        with file.open("rb") as opened:
            text = opened.read(FILE_BYTES_MAX + 1)
        if len(text) > FILE_BYTES_MAX:
            raise KindError(f"{name} is larger than {FILE_BYTES_MAX} bytes: split it")
        for number, document in enumerate(yaml.safe_load_all(text), start=1):
            if document is not None:
                yield _decoded(document, f"{name}, document {number}")
    except OSError as error:
        raise KindError(f"{name} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise KindError(f"{name} is not YAML: {error}") from error


def _decoded(document: object, where: str) -> WorkloadKind:
    try:
        return decode(document)
    except msgspec.ValidationError as error:
        raise KindError(f"{where}: {error}") from error


def _controlled(
    kinds: Mapping[str, WorkloadKind], controllers: Mapping[str, tuple[str, ...]]
) -> Iterator[WorkloadKind]:
    """Yield the kinds with the identities that a setting names. Raises KindError."""
    unknown = sorted(controllers.keys() - kinds.keys())
    if unknown:
        raise KindError(
            f"{unknown[0]} is not a known kind: write one of {', '.join(sorted(kinds))}, or"
            " describe it in a file of kinds"
        )
    for name, kind in kinds.items():
        theirs = controllers.get(name)
        yield kind if theirs is None else msgspec.structs.replace(kind, controllers=theirs)
