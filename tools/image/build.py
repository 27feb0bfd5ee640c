"""Build the images of a tree with buildah, without a registry, and keep the results."""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.image import bases
from tools.image.archive import Archive, read_archive
from tools.image.buildah import Buildah, BuildFailed
from tools.image.contents import faults
from tools.image.fetch import fetch
from tools.image.recipe import TARGETS, Target, context_files, digest_of, epoch, version_of

REGISTRY: Final = "docker.io/library"
"""Registry and folder in references; containerd adds the same to names without one."""

KEPT: Final = 4
"""So many results, and so many folders of packages, stay in the cache: the newest."""

LAYERS_MAX: Final = 300
"""A storage with more images, those of the steps of builds included, is emptied before a build."""

Report = Callable[[str], None]
"""Takes a line of progress."""

LOCK_SECONDS: Final = 1800.0
"""How long a build waits for another one of the same cache."""


def cache_folder() -> Path:
    """Return the folder of bases, packages, layers and built images."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "gpuledger-images"


def build(
    tree: Path,
    output: Path,
    targets: Sequence[Target] = TARGETS,
    *,
    base: str | None = None,
    cache: Path | None = None,
    report: Report = lambda _line: None,
) -> dict[str, Archive]:
    """Build targets of a tree's Dockerfile and return the archives by the names of the images.

    Without `base`, the name of an image with Python 3.11 that is pulled from a registry, mmdebstrap
    makes the bases. Each archive is in `output`, its bill of materials beside it. The archives of a
    tree that was built before are copied from the cache, whose key is the content of all inputs.
    `report` takes a line before each step that takes long.

    Raises:
        BuildFailed: a program is missing or failed, or another build took too long.
        ValueError: the tree has no version.
    """
    cache = cache or cache_folder()
    with _locked(cache):
        built = _built(tree, targets, base, cache, report)
        output.mkdir(parents=True, exist_ok=True)
        copied = [_copied(archive, output) for archive in built]
    return dict(zip((target.image for target in targets), copied, strict=True))


def _built(
    tree: Path, targets: Sequence[Target], base: str | None, cache: Path, report: Report
) -> list[Archive]:
    files = context_files(tree)
    version, time_of_files = version_of(tree), epoch()
    recipe = (digest_of(tree, files), time_of_files, base, *bases.RECIPES.values(), *_tool())
    folder = cache / "built" / hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]
    paths = {target: folder / f"{target.image}-{version}.oci.tar" for target in targets}
    if missing := [target for target, path in paths.items() if not path.exists()]:
        storage = cache / f"storage-{time_of_files}"
        _trim(cache, storage)
        folder.mkdir(parents=True, exist_ok=True)
        buildah = Buildah(storage)
        arguments = {"VERSION": version, **_bases(buildah, base, cache, report)}
        report("fetching the locked packages")
        packages = None if base else fetch(tree, cache)
        for target in missing:
            report(f"building {target.image}")
            image = f"localhost/{target.image}:{folder.name}"
            buildah.build(
                tree,
                stage=target.stage,
                image=image,
                arguments=arguments,
                packages=packages,
                epoch=time_of_files,
                pull=base is not None,
            )
            unfinished = folder / "unfinished.tar"
            buildah.write_archive(image, unfinished, f"{REGISTRY}/{target.image}:{version}")
            archive = read_archive(unfinished)
            if lines := list(faults(archive)):
                raise BuildFailed("\n".join([f"{target.image} must not contain", *lines]))
            bill = archive.read(target.bill)
            _bill_beside(paths[target]).write_bytes(bill)
            unfinished.rename(paths[target])
    os.utime(folder)
    return [read_archive(path) for path in paths.values()]


def _bases(buildah: Buildah, base: str | None, cache: Path, report: Report) -> dict[str, str]:
    """Return the build arguments that name the bases; import those that mmdebstrap makes."""
    if base:
        return {"BUILD_BASE": base, "RUNTIME_BASE": base}
    for name in bases.RECIPES:
        if not buildah.has(bases.image_of(name)):
            report(f"making the base for the {name} stage")
            buildah.make_base(bases.image_of(name), bases.archive_of(name, cache), bases.EPOCH)
    return {
        "BUILD_BASE": bases.image_of("build"),
        "RUNTIME_BASE": bases.image_of("runtime"),
        "PIP_NO_INDEX": "1",
    }


def _tool() -> Iterator[str]:
    """Yield the text of the modules that decide on the content of an archive."""
    for name in ("bases.py", "build.py", "buildah.py", "fetch.py"):
        yield Path(__file__).with_name(name).read_text()


def _copied(built: Archive, output: Path) -> Archive:
    """Copy an archive and its bill of materials to the folder of output."""
    for source in (built.path, _bill_beside(built.path)):
        shutil.copyfile(source, output / source.name)
    return Archive(output / built.path.name, built.reference, built.digest)


def _bill_beside(archive: Path) -> Path:
    return archive.with_name(archive.name.replace(".oci.tar", ".cdx.json"))


def _trim(cache: Path, storage: Path) -> None:
    """Delete the oldest results and packages, layers of other times, and too many layers."""
    for kind in ("built", "packages"):
        folders = sorted((cache / kind).glob("*"), key=lambda folder: folder.stat().st_mtime)
        for folder in folders[: -KEPT + 1]:
            shutil.rmtree(folder)
    for other in cache.glob("storage-[0-9]*"):
        if other != storage:
            Buildah(other).delete()
    buildah = Buildah(storage)
    if len(buildah.run("images", "--all", "--quiet").splitlines()) > LAYERS_MAX:
        buildah.run("rmi", "--all", "--force")


@contextmanager
def _locked(cache: Path) -> Iterator[None]:
    """Let one build at a time use the cache."""
    cache.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + LOCK_SECONDS
    with (cache / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise BuildFailed(f"another build holds {file.name}: wait for it") from None
                time.sleep(1.0)
        yield
