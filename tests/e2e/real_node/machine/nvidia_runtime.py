#!/usr/bin/python3 -IS
"""A container runtime that gives containers the driver, as nvidia-container-runtime does.

It is runc but for `create`: where the environment of the container has NVIDIA_VISIBLE_DEVICES, it
adds the driver's libraries by NVIDIA_DRIVER_CAPABILITIES, and the device nodes of these cards.
A file of settings beside it has the paths, and the uuids of the cards in their order.
"""

import json
import os
import sys
import time
from pathlib import Path

SETTINGS = Path(__file__).with_name("runtime.json")
LIBRARIES = {"compute": "libcuda.so.1", "utility": "libnvidia-ml.so.1"}
DEFAULT_CAPABILITIES = "utility,compute"
LIBRARIES_AT = "/usr/lib/x86_64-linux-gnu"
NODES_AT = "/dev"


def main() -> None:
    """Prepare a container that is created, and become runc."""
    settings = json.loads(SETTINGS.read_text())
    arguments = sys.argv[1:]
    if "create" in arguments:
        bundle = Path(arguments[arguments.index("--bundle") + 1])
        prepare(bundle / "config.json", settings)
    os.execv(settings["runc"], [settings["runc"], *arguments])


def prepare(file: Path, settings: dict) -> None:
    """Add the driver to the specification of a container."""
    spec = json.loads(file.read_text())
    variables = dict(entry.partition("=")[::2] for entry in spec["process"].get("env", ()))
    visible = variables.get("NVIDIA_VISIBLE_DEVICES", "")
    record(spec, visible, settings)
    if visible in ("", "void"):
        return
    numbers = cards_of(visible, settings["cards"])
    capabilities = variables.get("NVIDIA_DRIVER_CAPABILITIES") or DEFAULT_CAPABILITIES
    for capability, library in LIBRARIES.items():
        if capabilities == "all" or capability in capabilities.split(","):
            place = f"{LIBRARIES_AT}/{library}"
            spec["mounts"].append(mount(f"{settings['libraries']}/{library}", place, "ro"))
    for number in numbers:
        node = f"nvidia{number}"
        spec["mounts"].append(mount(f"{settings['nodes']}/{node}", f"{NODES_AT}/{node}", "rw"))
    state = settings["state"]
    spec["mounts"].append(mount(state, state, "rw"))
    machine = {**settings["machine"], "VGPU_STUB_STATE": state, "VGPU_STUB_NODES": NODES_AT}
    spec["process"]["env"] += [f"{name}={value}" for name, value in machine.items()]
    file.write_text(json.dumps(spec))


def cards_of(visible: str, cards: list) -> list:
    """Return the numbers of the cards that a variable names; exits for an unknown card."""
    if visible in ("all", "none"):
        return list(range(len(cards))) if visible == "all" else []
    known = {str(number): number for number in range(len(cards))}
    known.update({uuid: number for number, uuid in enumerate(cards)})
    named = [name for name in visible.split(",") if name]
    unknown = [name for name in named if name not in known]
    if unknown:
        sys.exit(f"nvidia-container-cli: device error: {unknown[0]}: unknown device")
    return [known[name] for name in named]


def mount(source: str, place: str, mode: str) -> dict:
    """Return a bind mount of a specification."""
    options = ["bind", "nosuid", "nodev", mode]
    return {"type": "bind", "source": source, "destination": place, "options": options}


def record(spec: dict, visible: str, settings: dict) -> None:
    """Append a line with the container and its cards to the log."""
    annotations = spec.get("annotations", {})
    names = ("sandbox-uid", "sandbox-namespace", "sandbox-name", "container-name")
    line = {name: annotations.get(f"io.kubernetes.cri.{name}", "") for name in names}
    with Path(settings["log"]).open("a", encoding="utf-8") as log:
        log.write(json.dumps({"time": time.time(), **line, "visible": visible}) + "\n")


if __name__ == "__main__":
    main()
