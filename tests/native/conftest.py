"""Fixtures that build libvgpu.so, the stub driver and the C programs of the tests."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from native.harness.builds import BUILD, build
from native.harness.card_user import CardUser


@pytest.fixture(scope="session")
def make() -> Callable[..., None]:
    """Return what makes targets of the Makefile: `make("build/libvgpu.so", CC="clang")`."""
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("there is no C compiler: install gcc to test libvgpu.so")
    return build


@pytest.fixture(scope="session")
def library(make: Callable[..., None]) -> Path:
    """Return libvgpu.so, built."""
    make(str(BUILD / "libvgpu.so"))
    return BUILD / "libvgpu.so"


@pytest.fixture(scope="session")
def native(make: Callable[..., None]) -> Path:
    """Return the directory with libvgpu.so and stub/libcuda.so.1, built."""
    make("all")
    return BUILD


@pytest.fixture(scope="session")
def program(native: Path, make: Callable[..., None]) -> Callable[[str], Path]:
    """Return what builds a program of tests/programs by its name and says where it is."""

    def built(name: str) -> Path:
        target = native / "tests" / name
        make(str(target))
        return target

    return built


@pytest.fixture(scope="session")
def ledger_program(make: Callable[..., None]) -> Callable[[str], Path]:
    """Return what builds a program of tests/core, named `kind/name`, and says where it is."""

    def built(name: str) -> Path:
        target = BUILD / "core" / name
        make(str(target))
        return target

    return built


@pytest.fixture(scope="session")
def abi(make: Callable[..., None]) -> Path:
    """Return the directory with the echoing driver, its caller, and a library that hooks all."""
    make("abi")
    return BUILD / "abi"


@pytest.fixture
def users(native: Path, tmp_path: Path) -> Iterator[Callable[..., CardUser]]:
    """Return what starts processes that share one stub machine, with settings of the stub."""
    started: list[CardUser] = []

    def start(begin: bool = True, preload: str = "", **settings: str) -> CardUser:
        environment = {"VGPU_STUB_STATE": str(tmp_path / "machine"), **settings}
        started.append(CardUser(native / "stub", environment, begin, preload))
        return started[-1]

    yield start
    for each in started:
        each.end()
