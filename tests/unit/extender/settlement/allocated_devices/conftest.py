"""Allocated devices: one site for each test."""

from collections.abc import AsyncIterator

import pytest
from support.devices.device_site import DeviceSite, device_site


@pytest.fixture
async def site() -> AsyncIterator[DeviceSite]:
    async with device_site() as made:
        yield made
