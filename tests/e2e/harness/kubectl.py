"""kubectl in bash, for the commands that a page gives its readers."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.service import COMMAND

COMMAND_SECONDS: Final = 60.0


class Kubectl:
    """kubectl and gpuledger on the path, an administrator's kubeconfig, and a folder to work in."""

    def __init__(self, assets: Path, kubeconfig: Path, folder: Path) -> None:
        """Take kubectl from the folder of the control plane's binaries; skip without one."""
        if not (assets / "kubectl").is_file():
            pytest.skip(f"{assets} has no kubectl: the commands of the pages were not typed")
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(exist_ok=True)
        self._env = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(self.home),
            "PATH": os.pathsep.join([str(assets), str(COMMAND.parent), os.environ["PATH"]]),
        }

    def attempt(self, commands: str, *, within: float = COMMAND_SECONDS) -> tuple[int, str]:
        """Run commands in bash up to the first that fails; return its status and all output.

        Raises subprocess.TimeoutExpired after `within` seconds.
        """
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within,
            check=False,
        )
        return done.returncode, done.stdout

    def type(self, commands: str, *, within: float = COMMAND_SECONDS) -> str:
        """Run commands that have to succeed; return their output."""
        status, output = self.attempt(commands, within=within)
        assert status == 0, f"{commands}\n{output}"
        return output

    def get(self, namespace: str, what: str) -> Manifest:
        """Return an object."""
        manifest: Manifest = json.loads(self.type(f"kubectl -n {namespace} get {what} -o json"))
        return manifest


def commands_of(page: str, heading: str) -> list[str]:
    """Return the blocks of commands in a section of a page."""
    pattern = rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)"
    section = re.search(pattern, page, re.MULTILINE | re.DOTALL)
    assert section is not None, f"the page has no section {heading!r}"
    blocks = re.findall(r"```sh\n(.*?)```", section[1], re.DOTALL)
    assert blocks, f"the section {heading!r} has no commands"
    return blocks
