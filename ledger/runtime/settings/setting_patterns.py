"""Patterns that several settings share, and the mark of a secret."""

from typing import Final

SECRET: Final = {"secret": True}
"""Marks a setting whose value is masked wherever settings are shown."""

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
OPTIONAL_NAME_PATTERN: Final = r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"
HOST_PORT_PATTERN: Final = r"^(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):[0-9]{1,5}$"
HEADER_PATTERN: Final = r"^[A-Za-z0-9-]{1,64}$"
OPTIONAL_HEADER_PATTERN: Final = r"^[A-Za-z0-9-]{0,64}$"
SERVICE_URL_PATTERN: Final = r"^(https?://[^\s/?#@]+/?)?$"
WEBHOOK_URL_PATTERN: Final = r"^(https://[^\s/]+)?$"
LABEL_VALUE_PATTERN: Final = r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$"
POD_NAME_PATTERN: Final = r"^([a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?)?$"
DOMAIN_PATTERN: Final = r"^([A-Za-z0-9_-]{1,64})?$"
OPTIONAL_HOST_PORT_PATTERN: Final = r"^((\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):[0-9]{1,5})?$"
