"""The reports of kubelet, agent, runtime and process, side by side and in the order of time."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

_KLOG: Final = re.compile(r"^[IWE]\d{4} (\d\d):(\d\d):([\d.]+) +\d+ [^]]+\] (.*)$")
_KUBELET: Final = re.compile(
    r"Got registration request|Making allocation request|Issuing a PreStartContainer"
    r"|UnexpectedAdmissionError|SyncLoop (ADD|DELETE|REMOVE)|PreStartContainer"
)
_AGENT_EVENTS: Final = {
    *("plugin_registered", "allocated", "container_assigned", "kubelet_refused", "evicted"),
    *("memory_not_accounted_for", "cards_announced", "allocate_waits", "plugin_socket_gone"),
}
_WIDTH: Final = 150


class Utterance(NamedTuple):
    """A line of one of the programs, at seconds of Unix time."""

    time: float
    program: str
    text: str


class Voices:
    """The logs of a node since they were last printed."""

    def __init__(self, logs: Path) -> None:
        """Read the logs of a node's programs."""
        self._logs = logs
        self._read: dict[Path, int] = {}
        self._process: list[Utterance] = []

    def process(self, text: str) -> None:
        """Take an answer of the process in a container, now."""
        self._process.append(Utterance(datetime.now(UTC).timestamp(), "process", text))

    def new_lines(self) -> list[str]:
        """Return the lines since the last call."""
        spoken = [*self._kubelet(), *self._agent(), *self._runtime(), *self._process]
        self._process = []
        return [_line(utterance) for utterance in sorted(spoken)]

    def _kubelet(self) -> Iterator[Utterance]:
        today = datetime.now(UTC)
        for line in self._new(self._logs / "kubelet.log"):
            matched = _KLOG.match(line)
            if matched is None or not _KUBELET.search(line):
                continue
            hour, minute, seconds = int(matched[1]), int(matched[2]), float(matched[3])
            at = today.replace(hour=hour, minute=minute, second=0, microsecond=0).timestamp()
            yield Utterance(at + seconds, "kubelet", matched[4])

    def _agent(self) -> Iterator[Utterance]:
        for log in sorted(self._logs.glob("pods/*_gpuledger-agent-*/agent/*.log")):
            for line in self._new(log):
                event = _event(line)
                if event.get("event") in _AGENT_EVENTS:
                    at = datetime.fromisoformat(event.pop("time")).timestamp()
                    name = event.pop("event")
                    facts = {key: event[key] for key in event if key not in ("level", "logger")}
                    text = " ".join(f"{key}={value}" for key, value in facts.items())
                    yield Utterance(at, "agent", f"{name} {text}")

    def _runtime(self) -> Iterator[Utterance]:
        for line in self._new(self._logs / "nvidia-runtime.log"):
            made = json.loads(line)
            if made["container-name"]:
                whose = f"{made['sandbox-namespace']}/{made['sandbox-name']}"
                text = f"{made['container-name']} of {whose} sees {made['visible'] or 'no card'}"
                yield Utterance(made["time"], "runtime", text)

    def _new(self, log: Path) -> list[str]:
        """Return the whole lines that were written since the last call."""
        if not log.exists():
            return []
        with log.open("rb") as file:
            file.seek(self._read.get(log, 0))
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read[log] = self._read.get(log, 0) + len(whole)
        return whole.decode(errors="replace").splitlines()


def _event(line: str) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line.split(" ", 3)[3])
    except (IndexError, ValueError):
        return {}
    return event


def _line(utterance: Utterance) -> str:
    at = datetime.fromtimestamp(utterance.time, UTC).strftime("%H:%M:%S.%f")[:-3]
    return f"{at}  {utterance.program:8} {utterance.text}"[:_WIDTH]
