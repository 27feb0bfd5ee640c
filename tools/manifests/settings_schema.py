"""Settings schema: the value `settings` of the chart takes the settings of the service."""

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from ledger.runtime.settings.client_section import CLIENT
from ledger.runtime.settings.settings import Settings
from tools.manifests.helm_chart import CHART

SCHEMA: Final = f"{CHART}/values.schema.json"
PLACE: Final = "settings"
"""The definition in the schema of values that is made here."""


def with_settings(root: Path) -> str:
    """Return the schema of values with the settings of this tree's service.

    Defaults are left out, because the service has them. Settings that the chart writes itself are
    allowed here; a template refuses them with the name of the value to set instead.
    """
    schema = json.loads((root / SCHEMA).read_text())
    schema["definitions"][PLACE] = settings()
    return f"{json.dumps(schema, indent=2)}\n"


def settings() -> dict[str, Any]:
    """Return the JSON schema of a table of settings."""
    made = msgspec.json.schema(Settings)["$defs"][Settings.__name__]["properties"]
    properties = {
        name: _without_default(field) for name, field in sorted(made.items()) if name not in CLIENT
    }
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _without_default(field: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in field.items() if key not in ("default", "examples")}
