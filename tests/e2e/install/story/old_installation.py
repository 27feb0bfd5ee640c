"""An installation by the kustomize files of commit 75bd653, by its own page and its own image.

The page's settings for a control plane that takes no client certificate are used, because the rig
is one. The images are named as a site names those of its registry.
"""

from pathlib import Path
from typing import Final

import yaml

from gpuledger.version import VERSION
from tests.e2e.harness.cluster import Manifest
from tests.e2e.harness.kubectl import commands_of
from tests.e2e.install.rig.real_cluster import HELM_SECONDS, RealCluster
from tests.e2e.install.story.old_image import OLD, tree_of

SPACE: Final = "gpuledger-system"
SECTIONS: Final = ("Secrets", "The server's certificate", "Apply", "Register the webhooks")
LOOKED_AT: Final = "kubectl -n gpuledger-system logs"
"""Beginning of a block that is for a replica that does not become ready."""

SMALL: Final = {"500m": "100m"}
"""Requests for CPU, because two versions of all replicas run on one machine."""


class OldInstallation:
    """The files of the commit with the changes that its page asks for."""

    def __init__(self, cluster: RealCluster, folder: Path, *, name: str) -> None:
        """`name` is the cluster in the ledger; the files are unpacked into the folder."""
        self._cluster = cluster
        self._tree = tree_of(OLD, folder)
        deploy = self._tree / "deploy"
        _edit(deploy / "gpuledger.toml", {'cluster = "local"': f'cluster = "{name}"'})
        _edit(deploy / "gpuledger.toml", {"production = true": "production = false"})
        _remove_lines(deploy / "gpuledger.toml", "client_ca", "client_subjects")
        _edit(deploy / "deployment.yaml", SMALL)
        _edit(deploy / "nats.yaml", SMALL)
        images = {
            "gpuledger": {"newName": "gpuledger", "newTag": OLD},
            "nats": {"newName": "gpuledger-nats", "newTag": VERSION},
        }
        written = deploy / "kustomization.yaml"
        kustomization = yaml.safe_load(written.read_text())
        kustomization["images"] = [{"name": name} | to for name, to in images.items()]
        written.write_text(yaml.safe_dump(kustomization))

    def install(self) -> None:
        """Type the sections of the page, in the root of the commit's files."""
        page = (self._tree / "docs" / "install.md").read_text()
        for section in SECTIONS:
            for block in commands_of(page, section):
                if not block.startswith(LOOKED_AT):
                    self._cluster.kubectl.type(f"cd {self._tree}\n{block}", within=HELM_SECONDS)

    def objects(self) -> list[Manifest]:
        """Return the manifests that `kubectl apply -k deploy` applies."""
        rendered = self._cluster.kubectl.type(f"kubectl kustomize {self._tree}/deploy")
        return [each for each in yaml.safe_load_all(rendered) if each]


def _edit(path: Path, changes: dict[str, str]) -> None:
    text = path.read_text()
    for before, after in changes.items():
        assert before in text, f"{path} has no {before!r}"
        text = text.replace(before, after)
    path.write_text(text)


def _remove_lines(path: Path, *beginnings: str) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(beginnings)))
