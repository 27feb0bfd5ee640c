"""Manifests: the objects of a folder as `kubectl apply -k` applies them, and look-ups in them."""

from pathlib import Path
from typing import Any, Final

import yaml

Manifest = dict[str, Any]

DEPLOY: Final = Path(__file__).parents[3] / "deploy"

VERSIONS: Final = ("1.34", "1.35", "1.36", "1.37")
"""The versions of Kubernetes that every manifest is valid for."""


def documents(path: Path) -> list[Manifest]:
    """Return the manifests of a file."""
    return list(yaml.safe_load_all(path.read_text()))


def name_of(manifest: Manifest) -> str:
    """Return the name of a manifest in tests: its kind and name."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


class Folder:
    """A folder with a kustomization, and the manifests in its own files; bases are left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        [self.kustomization] = documents(path / "kustomization.yaml")
        files: list[str] = self.kustomization["resources"]
        own = [path / file for file in files if file.endswith(".yaml")]
        self.manifests = [manifest for file in own for manifest in documents(file)]

    def manifest(self, name: str) -> Manifest:
        """Return the manifest of a kind and name, which is there once."""
        [manifest] = [candidate for candidate in self.manifests if name_of(candidate) == name]
        return manifest

    def pod_of(self, workload: str) -> Manifest:
        """Return the pod template of a workload."""
        template: Manifest = self.manifest(workload)["spec"]["template"]
        return template
