"""Commands in an agent's pod work without options."""

import inspect
from pathlib import Path
from typing import Any, Final

import yaml

from gpuledger.commands import node, vgpu

DAEMON_SET: Final = Path(__file__).parents[3] / "deploy" / "agent" / "daemonset.yaml"


def agent() -> dict[str, Any]:
    [container] = yaml.safe_load(DAEMON_SET.read_text())["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def default(command: Any, option: str) -> str:
    return str(inspect.signature(command).parameters[option].default)


def test_node_top_asks_the_agent_of_its_pod() -> None:
    [port] = agent()["ports"]
    assert default(node.top, "agent") == f"http://127.0.0.1:{port['containerPort']}"


def test_the_selftest_has_the_library_and_a_driver_of_cuda() -> None:
    mounted = [Path(mount["mountPath"]) for mount in agent()["volumeMounts"]]
    assert Path(default(vgpu.selftest, "library")).parent in mounted
    [shown] = [
        variable for variable in agent()["env"] if variable["name"] == "NVIDIA_DRIVER_CAPABILITIES"
    ]
    # NVML is part of utility; libcuda.so.1 of compute alone.
    assert set(shown["value"].split(",")) == {"compute", "utility"}
