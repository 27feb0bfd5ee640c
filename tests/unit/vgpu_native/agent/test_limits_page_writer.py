"""Limits of running containers follow the ledger at once, and stay when the ledger is away."""

from pathlib import Path

import pytest

from gpuledger.node.agent_settings import AgentSettings
from ledger.core.model.cards import Share
from vgpu_native.agent.limits_page_writer import LimitsWriter
from vgpu_native.plugin.allocation.initial_limits import closed, flags
from vgpu_native.plugin.placement_source import PlacedContainer
from vgpu_native.shared import limits_page
from vgpu_native.shared.container_limits import limits_of
from vgpu_native.shared.layout import CONTEXTS_EXEMPT, MAY_DISABLE, NO_LIMIT
from vgpu_native.shared.limits_page import MEBIBYTE, ContainerLimits, DeviceLimits, LimitsPage


def container(*shares: Share, uid: str = "uid-1") -> PlacedContainer:
    return PlacedContainer("team", "p", uid, "main", 0, shares, 1)


KEY = ("uid-1", "main")
BEFORE = Share("GPU-a", 100, 30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    limits_page.write(tmp_path / "limits", limits_of((BEFORE,)))
    return tmp_path / "limits"


def test_shares_become_bytes_and_percent() -> None:
    shares = (Share("GPU-a", 100, 30), Share("GPU-b", 0, 0), Share("GPU-c", 1, 150))
    assert limits_of(shares).devices == (
        DeviceLimits("GPU-a", 100 * MEBIBYTE, 30),
        DeviceLimits("GPU-b", NO_LIMIT, 100),
        DeviceLimits("GPU-c", MEBIBYTE, 100),
    )


def test_the_mapped_page_has_the_new_limits_after_a_resize(path: Path) -> None:
    limiter = LimitsWriter()
    inode = path.stat().st_ino
    assert limiter.apply({KEY: path}, [container(BEFORE)]) == []
    assert limiter.apply({KEY: path}, [container(Share("GPU-a", 200, 50))]) == [KEY]
    [device] = limits_page.read(path).devices
    assert (device.memory, device.cores) == (200 * MEBIBYTE, 50)
    assert path.stat().st_ino == inode
    limiter.close()


def test_the_order_of_cards_is_that_of_the_page(path: Path) -> None:
    limiter, other = LimitsWriter(), Share("GPU-b", 5, 5)
    limits_page.write(path, limits_of((other, BEFORE)))
    assert limiter.apply({KEY: path}, [container(Share("GPU-a", 9, 9), other)]) == [KEY]
    assert [device.uuid for device in limits_page.read(path).devices] == ["GPU-b", "GPU-a"]
    limiter.close()


@pytest.mark.parametrize(("overhead", "flag"), [(True, 0), (False, CONTEXTS_EXEMPT)])
def test_pages_exempt_contexts_when_overhead_does_not_count(
    overhead: bool, flag: int, path: Path
) -> None:
    settings = AgentSettings(overhead=overhead).plugin_settings()
    assert closed(["GPU-a"], settings).flags == flag
    limiter = LimitsWriter(flags(settings))
    limiter.apply({KEY: path}, [container(BEFORE)])
    assert limits_page.read(path).flags == flag
    limiter.close()


def test_limits_stay_when_the_placement_is_gone(path: Path) -> None:
    limiter = LimitsWriter()
    limiter.apply({KEY: path}, [container(Share("GPU-a", 200, 50))])
    limiter.apply({KEY: path}, [])
    assert limits_page.read(path).devices[0].memory == 200 * MEBIBYTE
    limiter.close()


def test_a_page_changes_only_for_its_own_container(path: Path) -> None:
    limiter = LimitsWriter()
    assert limiter.apply({KEY: path}, [container(Share("GPU-a", 7, 7), uid="uid-2")]) == []
    assert limits_page.read(path) == limits_of((BEFORE,))
    limiter.close()


def test_other_cards_are_an_error_until_the_page_is_replaced(path: Path) -> None:
    limiter = LimitsWriter()
    moved = container(Share("GPU-b", 100, 30))
    assert limiter.apply({KEY: path}, [moved]) == []
    assert "keeps its devices" in limiter.troubles[KEY]
    limits_page.write(path, limits_of((Share("GPU-b", 1, 1),)))
    assert limiter.apply({KEY: path}, [moved]) == [KEY]
    assert not limiter.troubles
    limiter.close()


def test_a_missing_or_foreign_page_does_not_affect_other_containers(path: Path) -> None:
    limiter, other = LimitsWriter(), path.with_name("other")
    limits_page.write(other, limits_of((BEFORE,)))
    path.unlink()
    pages = {KEY: path, ("uid-2", "main"): other}
    those = [container(Share("GPU-a", 9, 9)), container(Share("GPU-a", 9, 9), uid="uid-2")]
    assert limiter.apply(pages, those) == [("uid-2", "main")]
    assert set(limiter.troubles) == {KEY}
    limiter.close()


def test_overhead_stays_while_limits_change(path: Path) -> None:
    limiter = LimitsWriter(MAY_DISABLE)
    assert limiter.set_overhead(path, {"GPU-a": 5})
    assert not limiter.set_overhead(path, {"GPU-a": 5})
    limiter.apply({KEY: path}, [container(Share("GPU-a", 200, 50))])
    assert limits_page.read(path) == ContainerLimits(
        (DeviceLimits("GPU-a", 200 * MEBIBYTE, 50, 5),), MAY_DISABLE, generation=3
    )
    limiter.close()


def test_the_pages_of_ended_containers_are_unmapped(path: Path) -> None:
    limiter = LimitsWriter()
    limiter.apply({KEY: path}, [container(Share("GPU-a", 200, 50))])
    limiter.apply({}, [])
    with LimitsPage(path) as page:
        page.change(ContainerLimits((DeviceLimits("GPU-a", 1, 1),)))
    assert limiter.limits(path) == limits_page.read(path)
    limiter.close()


def test_the_granted_limit_stays_until_it_is_settled_or_raised(path: Path) -> None:
    limiter = LimitsWriter()

    def granted(memory: int) -> int:
        limiter.apply({KEY: path}, [container(Share("GPU-a", memory, 30))])
        return limits_page.read(path).devices[0].granted // MEBIBYTE

    assert [granted(limit) for limit in (400, 300, 200, 350, 500, 300)] == [
        0,
        400,
        400,
        400,
        0,
        500,
    ]
    generation = limits_page.read(path).generation
    assert not limiter.settle(path, generation - 1, ["GPU-a"]), "the page has changed since"
    assert not limiter.settle(path, generation, ["GPU-b"])
    assert limiter.settle(path, generation, ["GPU-a"])
    assert granted(300) == 0
    limiter.close()
    limiter = LimitsWriter()
    assert granted(100) == 300
    limiter.close()
