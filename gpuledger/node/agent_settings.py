"""Settings of `gpuledger agent`, in addition to the shared ones of ledger and cluster."""

import re
import socket
from pathlib import Path
from typing import Final

import msgspec

from gpuledger.cli.exit_codes import CommandError, Exit
from ledger.core.model.cards import WHOLE
from ledger.runtime.addresses import PORT_MAX, port_of
from ledger.runtime.settings.setting_patterns import HOST_PORT_PATTERN
from vgpu_native.agent.bypass_reports import BypassPolicy
from vgpu_native.agent.cards.card_announcement import AnnouncementForm, CardOffer
from vgpu_native.agent.misallocation_reports import MisallocationPolicy
from vgpu_native.plugin.plugin_settings import PluginSettings
from vgpu_native.shared.limits_page import MEBIBYTE

LISTEN: Final = "127.0.0.1:9394"
STATE_DIR: Final = "/var/lib/gpuledger"
KUBELET_DIR: Final = "/var/lib/kubelet"
LIBRARY: Final = "/usr/local/gpuledger/libvgpu.so"
CDI_DIR: Final = "/var/run/cdi"
SLOTS_MAX: Final = 256
PERCENT_MAX: Final = 1_000
"""The ledger rejects a card with a scale of more than ten times."""
PRELOAD_BREAKS: Final = re.compile(r"[\s:#$]")
"""Characters that end a path in /etc/ld.so.preload, or are replaced there."""

FORMS: Final[dict[str, AnnouncementForm]] = {"json": "json", "colons": "colons"}
BYPASSES: Final[dict[str, BypassPolicy]] = {"report": "report", "evict": "evict"}
WRONG_CARDS: Final[dict[str, MisallocationPolicy]] = {"report": "report", "evict": "evict"}


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one node. Scaling is in percent, `slack` in MiB, `look` in seconds."""

    node: str = ""
    listen: str = LISTEN
    state_dir: str = STATE_DIR
    kubelet_dir: str = KUBELET_DIR
    library: str = LIBRARY
    slots: int = 10
    memory_scaling: int = WHOLE
    cores_scaling: int = WHOLE
    form: str = "json"
    bypass: str = "report"
    wrong_cards: str = "report"
    slack: int = 512
    look: float = 5.0
    plugin: bool = True
    announce: bool = True
    overhead: bool = True
    cdi: bool = False
    cdi_dir: str = CDI_DIR
    limit_whole_cards: bool = False
    may_disable: bool = False
    cores_off: bool = False

    @property
    def name(self) -> str:
        """The node's name in Kubernetes; by default that of the host."""
        return self.node or socket.gethostname()

    @property
    def state(self) -> Path:
        """Directory of data that outlives the agent."""
        return Path(self.state_dir)

    @property
    def slack_bytes(self) -> int:
        """Uncounted bytes that a process may use."""
        return self.slack * MEBIBYTE

    def offer(self) -> CardOffer:
        """Return the offered amounts of each card."""
        return CardOffer(self.slots, self.memory_scaling, self.cores_scaling)

    def plugin_settings(self) -> PluginSettings:
        """Return the settings of the device plugin."""
        kubelet = Path(self.kubelet_dir)
        return PluginSettings(
            plugins_dir=kubelet / "device-plugins",
            pod_resources=kubelet / "pod-resources" / "kubelet.sock",
            state_dir=self.state,
            library=Path(self.library),
            cdi=self.cdi,
            cdi_dir=Path(self.cdi_dir),
            limit_whole_cards=self.limit_whole_cards,
            oversubscribe=self.memory_scaling > WHOLE,
            may_disable=self.may_disable,
            cores_off=self.cores_off,
            overhead=self.overhead,
        )


_LISTEN: Final = re.compile(HOST_PORT_PATTERN)


def checked(settings: AgentSettings) -> AgentSettings:
    """Return valid settings. Raises CommandError naming the first invalid option."""
    for option, value, least, most in (
        ("--slots", settings.slots, 1, SLOTS_MAX),
        ("--memory-scaling", settings.memory_scaling, 1, PERCENT_MAX),
        ("--cores-scaling", settings.cores_scaling, 1, PERCENT_MAX),
        ("--slack", settings.slack, 0, 1_048_576),
        ("--look", settings.look, 1, 300),
    ):
        if not least <= value <= most:
            raise CommandError(
                Exit.USAGE, f"{option} {value}: write a number from {least} to {most}"
            )
    for option, word, words in (
        ("--form", settings.form, FORMS),
        ("--bypass", settings.bypass, BYPASSES),
        ("--wrong-cards", settings.wrong_cards, WRONG_CARDS),
    ):
        if word not in words:
            raise CommandError(Exit.USAGE, f"{option} {word!r}: write {' or '.join(words)}")
    if not _LISTEN.fullmatch(settings.listen) or port_of(settings.listen) > PORT_MAX:
        raise CommandError(
            Exit.USAGE, f"--listen {settings.listen!r}: write HOST:PORT, up to port {PORT_MAX}"
        )
    for option, path in (
        ("--state-dir", settings.state_dir),
        ("--kubelet-dir", settings.kubelet_dir),
        ("--library", settings.library),
        ("--cdi-dir", settings.cdi_dir),
    ):
        if not Path(path).is_absolute():
            raise CommandError(
                Exit.USAGE,
                f"{option} {path!r}: write an absolute path, the same in this container and on the"
                " host: the kubelet mounts it into others",
            )
    if PRELOAD_BREAKS.search(settings.library):
        raise CommandError(
            Exit.USAGE,
            f"--library {settings.library!r}: write a path without spaces, colons, # and $, which"
            " /etc/ld.so.preload does not take: containers would run without limits",
        )
    return settings
