"""Fixtures that build libvgpu.so, the stub driver and the C programs of the tests.

Most tests use the checked build, whose assertions abort the process. `library` and `shipped` are
the build that ships, which has none.
"""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from native.harness.builds import BUILD, CHECKED, build
from native.harness.card_user import CardUser

SHIPPED_KIND = "shipped-"


@pytest.fixture(scope="session")
def make() -> Callable[..., None]:
    """Return a function that builds targets of the Makefile: `make("abi", CC="clang")`."""
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler: install gcc to test libvgpu.so")
    return build


@pytest.fixture(scope="session")
def make_checked(make: Callable[..., None]) -> Callable[..., None]:
    """Return the same for targets of the checked build."""
    return partial(make, checks=2)


@pytest.fixture(scope="session")
def library(make: Callable[..., None]) -> Path:
    """Return the libvgpu.so that ships, built."""
    make(str(BUILD / "libvgpu.so"))
    return BUILD / "libvgpu.so"


@pytest.fixture(scope="session")
def shipped(make: Callable[..., None]) -> Path:
    """Return the directory of the build that ships: libvgpu.so and stub/libcuda.so.1."""
    make("all")
    return BUILD


@pytest.fixture(scope="session")
def native(make_checked: Callable[..., None]) -> Path:
    """Return the directory of the checked build: libvgpu.so and stub/libcuda.so.1."""
    make_checked("all")
    return CHECKED


@pytest.fixture(scope="session")
def program(native: Path, make_checked: Callable[..., None]) -> Callable[[str], Path]:
    """Return a function that builds a program of tests/programs by name and returns its path."""

    def built(name: str) -> Path:
        target = native / "tests" / name
        make_checked(str(target))
        return target

    return built


@pytest.fixture(scope="session")
def core_program(
    make: Callable[..., None], make_checked: Callable[..., None]
) -> Callable[[str], Path]:
    """Return a function that builds a program of tests/core, `kind/name`, and returns its path.

    They have all assertions, but programs of the kinds `shipped-plain` and `shipped-address`.
    """

    def built(name: str) -> Path:
        if name.startswith(SHIPPED_KIND):
            target = BUILD / "core" / name.removeprefix(SHIPPED_KIND)
            make(str(target))
        else:
            target = CHECKED / "core" / name
            make_checked(str(target))
        return target

    return built


@pytest.fixture(scope="session")
def abi(make: Callable[..., None]) -> Path:
    """Return the directory with the echoing driver, its caller, and a library with all hooks."""
    make("abi")
    return BUILD / "abi"


@pytest.fixture
def users(native: Path, tmp_path: Path) -> Iterator[Callable[..., CardUser]]:
    """Return a function that starts processes sharing one stub machine, with stub settings."""
    started: list[CardUser] = []

    def start(begin: bool = True, preload: str = "", **settings: str) -> CardUser:
        environment = {"VGPU_STUB_STATE": str(tmp_path / "machine"), **settings}
        started.append(CardUser(native / "stub", environment, begin, preload))
        return started[-1]

    yield start
    for each in started:
        each.end()
