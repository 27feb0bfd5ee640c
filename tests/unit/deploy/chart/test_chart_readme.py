"""The README installs the chart with the one value that is required."""

import re
from pathlib import Path
from typing import Final

from tests.e2e.harness.kubectl import commands_of

README: Final = (Path(__file__).parents[4] / "README.md").read_text()


def test_the_readme_installs_the_chart_and_shows_a_denial() -> None:
    install, quota, denied = commands_of(README, "Install")
    command = " ".join(install.replace("\\\n", " ").split())
    assert command.startswith("helm install gpuledger deploy/chart/gpuledger ")
    assert re.findall(r"--set (\S+)", command) == ["cluster=east-1"]
    limit = re.search(r"limits\.nvidia\.com/gpumem=(\d+)", quota)
    wanted = re.search(r'"nvidia\.com/gpumem": "(\d+)"', denied)
    assert limit is not None
    assert wanted is not None
    assert int(wanted[1]) > int(limit[1])
