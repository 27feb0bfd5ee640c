"""Kustomize files: the manifests of deploy/, rendered from the chart.

Their values are in deploy/kustomize-values.yaml. kustomize adds no labels of helm, and makes the
ConfigMaps of settings itself, with a hash in their names. So the labels, annotations and checksums
that only helm needs are left out, and the settings become files.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from tools.manifests.helm_chart import Rendered, render

DEPLOY: Final = "deploy"
VALUES: Final = "deploy/kustomize-values.yaml"
NOTE: Final = "# Rendered from deploy/chart by `make manifests`; edit the chart.\n"

_MANIFESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "deployment.yaml": ("service/deployment.yaml",),
    "service.yaml": ("service/service.yaml",),
    "network/service.yaml": ("service/networkpolicy.yaml",),
    "nats.yaml": ("log/nats.yaml",),
    "viewers.yaml": ("access/viewers.yaml",),
    "own-writes.yaml": (
        "access/own-pods.yaml",
        "access/own-objects.yaml",
        "access/own-webhooks.yaml",
    ),
    "monitoring.yaml": ("access/metrics.yaml",),
    "alerts.yaml": ("monitoring/rules.yaml",),
    "crds/ledgerpolicies.yaml": ("definitions/ledgerpolicies.yaml",),
    "crds/universeresourcequotas.yaml": ("definitions/universeresourcequotas.yaml",),
    "scheduler/access.yaml": ("scheduler/access.yaml",),
    "scheduler/deployment.yaml": ("scheduler/deployment.yaml",),
    "scheduler/settings.yaml": ("scheduler/settings.yaml",),
    "agent/namespace.yaml": ("agent/namespace.yaml",),
    "agent/access.yaml": ("agent/access.yaml",),
    "agent/own-node.yaml": ("agent/own-node.yaml",),
    "agent/daemonset.yaml": ("agent/daemonset.yaml",),
}
"""The files, and the templates of their objects."""

_SWITCHED: Final[Mapping[str, tuple[str, str]]] = {
    "rbac.yaml": ("access/roles.yaml", "webhook.register=true"),
    "preemption/access.yaml": ("scheduler/preemption.yaml", "scheduler.preemption=true"),
    "agent-evict/access.yaml": ("agent/evict.yaml", "agent.evict=true"),
    "certificates/access.yaml": ("certificates/access.yaml", "certificates.existingSecret="),
}
"""Files that need another value than the others: the template of each, and that value."""

_SETTINGS: Final[Mapping[str, tuple[str, str]]] = {
    "gpuledger.toml": ("service/settings.yaml", "gpuledger.toml"),
    "nats.conf": ("log/settings.yaml", "nats.conf"),
    "agent/agent.toml": ("agent/settings.yaml", "agent.toml"),
}
"""Files that kustomize makes ConfigMaps of: the template and key of each."""

_OF_HELM: Final = re.compile(
    r"^ +(?:helm\.sh/[-a-z]+|checksum/[-a-z]+"
    r"|app\.kubernetes\.io/(?:instance|managed-by|part-of|version)): .*\n",
    re.MULTILINE,
)
_EMPTY_ANNOTATIONS: Final = re.compile(r"^( *)annotations:\n(?!\1 )", re.MULTILINE)
_BLANK_LINES: Final = re.compile(r"^ *\n", re.MULTILINE)


def files(root: Path) -> dict[str, str]:
    """Return the text of each rendered file by its path below deploy/. Raises HelmFailed."""
    objects = render(root, [root / VALUES])
    added = render(root, [root / VALUES], [switch for _, switch in _SWITCHED.values()])
    made = {path: _manifests(objects, templates) for path, templates in _MANIFESTS.items()}
    made |= {path: _manifests(added, (template,)) for path, (template, _) in _SWITCHED.items()}
    return made | {path: _settings(objects, *origin) for path, origin in _SETTINGS.items()}


def _manifests(objects: Iterable[Rendered], templates: tuple[str, ...]) -> str:
    chosen = [each for each in objects if each.template in templates]
    chosen.sort(key=lambda each: templates.index(each.template))
    texts = [_plain(each.text) for each in chosen]
    return NOTE + "---\n".join(texts)


def _plain(text: str) -> str:
    """Return the text of an object without what only helm needs."""
    steps: tuple[Callable[[str], str], ...] = (
        lambda given: _OF_HELM.sub("", given),
        lambda given: _EMPTY_ANNOTATIONS.sub("", given),
        lambda given: given if "|\n" in given else _BLANK_LINES.sub("", given),
    )
    for step in steps:
        text = step(text)
    return f"{text.strip()}\n"


def _settings(objects: Iterable[Rendered], template: str, key: str) -> str:
    [text] = [each.manifest["data"][key] for each in objects if each.template == template]
    return f"{text.rstrip()}\n"
