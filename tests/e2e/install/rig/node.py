"""A node of a rig: containerd and kubelet in namespaces of their own, which end all at once.

The node's PID namespace ends with the process that made it, and every container with it, as after a
power cut. Its disk remains: `start` after `kill` is a reboot. `down` ends one of the two programs
and keeps it down until `up`, as a service manager does.
"""

import os
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import Final

from tests.e2e.harness.kubectl import Kubectl
from tests.e2e.harness.processes import Child
from tests.e2e.install.rig import (
    cgroups,
    containerd,
    images,
    kubelet,
    network,
    process_tree,
)

DRAIN_SECONDS: Final = 120.0
END_SECONDS: Final = 30.0
SOCKET_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05
_DISK: Final = {"lib": "/var/lib", "opt": "/opt", "local": "/usr/local", "run": "/run"}
"""The folders of a node, by folder of its disk. All but the last outlive a power cut."""

PROGRAMS: Final = ("containerd", "kubelet")
KUBELET_VERBOSITY: Final = 0

_INIT: Final = """set -eu
mount --make-rshared /
{mounts}
export PATH={assets}:$PATH
cd {disk}
# A program may end where it has a file `down`, and starts again when its file `ended` is removed.
keep() {{
  while :; do
    "$@" >>{logs}/$1.log 2>&1 || true
    mv $1.down $1.ended || return 1
    while [ -e $1.ended ]; do sleep 0.02; done
  done
}}
rm -f *.down *.ended
keep containerd --config containerd.toml &
runtime=$!
until [ -S {socket} ]; do kill -0 $runtime; sleep 0.05; done
keep kubelet --config kubelet.json --kubeconfig {kubeconfig} --hostname-override {name} \
    --node-ip {address} --root-dir /var/lib/kubelet --v={verbosity} &
wait -n
echo "containerd or kubelet ended"
exit 1
"""


class RigNode:
    """A node; everything that it keeps is in the folder `disk`."""

    kubelet_verbosity = KUBELET_VERBOSITY

    def __init__(
        self,
        name: str,
        index: int,
        *,
        assets: Path,
        disk: Path,
        logs: Path,
        cgroup: str,
        kubeconfig: Path,
        kubectl: Kubectl,
    ) -> None:
        """Take the number of the node, from which its addresses follow, and its cgroup."""
        self.name = name
        self.address = network.node_address(index)
        self._index = index
        self._assets = assets
        self._disk = disk
        self._logs = logs
        self._kubeconfig = kubeconfig
        self._kubectl = kubectl
        self._cgroup = cgroup
        self._child: Child | None = None

    @property
    def runs(self) -> bool:
        """Return whether the node has power, and its containerd and kubelet run."""
        return self._child is not None and self._child.runs

    def start(self) -> None:
        """Start the node; its containerd is ready afterwards, its kubelet registers soon."""
        assert self._child is None, f"node {self.name} runs already"
        shutil.rmtree(self._disk / "run", ignore_errors=True)
        for folder in (*(self._disk / name for name in _DISK), self._logs / "pods"):
            folder.mkdir(parents=True, exist_ok=True)
        self._write_configuration()
        cgroups.make(self._cgroup)
        network.connect_node(self.name, self._index)
        enter = ["nsenter", f"--net={network.namespace(self.name)}", "unshare"]
        options = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        init = ["bash", "-c", self._init()]
        log = self._logs / "init.log"
        self._child = Child(f"node {self.name}", [*_paths(enter), *options, *init], log)
        self._wait_for_containerd()

    def kill(self) -> None:
        """End the node as a power cut does; returns when all its processes are gone."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        deadline = time.monotonic() + END_SECONDS
        while left := cgroups.remove(self._cgroup):
            assert time.monotonic() < deadline, f"node {self.name} ended, but not {left}"
            time.sleep(_PAUSE_SECONDS)
        network.disconnect_node(self.name)

    def down(self, program: str, sent: int = signal.SIGKILL) -> None:
        """End containerd or the kubelet by a signal; returns when it is gone. Containers run on."""
        assert program in PROGRAMS, program
        (self._disk / f"{program}.down").touch()
        self.end(program, sent=sent)
        deadline = time.monotonic() + END_SECONDS
        while not self._ended(program).exists():
            assert time.monotonic() < deadline, f"{program} of node {self.name} did not end"
            time.sleep(_PAUSE_SECONDS / 5)

    def up(self, program: str) -> None:
        """Let a program start again."""
        self._ended(program).unlink()

    def _ended(self, program: str) -> Path:
        return self._disk / f"{program}.ended"

    def end(self, *words: str, sent: int = signal.SIGKILL) -> int:
        """End the process whose command line begins so, once there is one; return its id."""
        deadline = time.monotonic() + END_SECONDS
        while len(pids := self.processes(*words)) != 1:
            assert time.monotonic() < deadline, f"node {self.name}: {words} has processes {pids}"
            time.sleep(_PAUSE_SECONDS)
        (pid,) = pids
        os.kill(pid, sent)
        while pid in self.processes(*words):
            assert time.monotonic() < deadline, f"{words} did not end by signal {sent}"
            time.sleep(_PAUSE_SECONDS / 5)
        return pid

    def processes(self, *words: str) -> list[int]:
        """Return the ids of the node's processes whose command lines begin with these words."""
        assert self._child is not None, f"node {self.name} has no power"
        return process_tree.below(self._child.pid, words)

    @property
    def disk(self) -> Path:
        """Return the folder with the node's files."""
        return self._disk

    @property
    def logs(self) -> Path:
        """Return the folder with the logs of the node's programs."""
        return self._logs

    def drain(self) -> str:
        """Evict all pods but those of DaemonSets, as an administrator does before maintenance."""
        options = "--ignore-daemonsets --delete-emptydir-data --force"
        within = f"--timeout={DRAIN_SECONDS:g}s"
        command = f"kubectl drain {self.name} {options} {within}"
        return self._kubectl.type(command, within=DRAIN_SECONDS + END_SECONDS)

    def uncordon(self) -> None:
        """Let pods be scheduled to the node again."""
        self._kubectl.type(f"kubectl uncordon {self.name}")

    def import_image(self, archive: Path) -> None:
        """Import an OCI archive."""
        images.import_into(self._assets / "ctr", self._socket, archive)

    @property
    def _socket(self) -> Path:
        return self._disk / containerd.SOCKET.removeprefix("/")

    def _write_configuration(self) -> None:
        sandbox = images.BUSYBOX
        files = {
            "containerd.toml": containerd.configuration(self._assets, sandbox, self._runtimes()),
            "run/cni/pods.conflist": containerd.network(network.pod_subnet(self._index)),
            "kubelet.json": kubelet.configuration(
                self._cgroup, containerd.SOCKET, network.CLUSTER_DNS
            ),
        }
        sysctls = {f"sysctl/{name}": value + "\n" for name, value in kubelet.SYSCTLS.items()}
        for name, text in {**files, **sysctls}.items():
            file = self._disk / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def _runtimes(self) -> dict[str, Path]:
        """Return the container runtimes of this node besides runc, by name."""
        return {}

    def _init(self) -> str:
        bound = {self._disk / name: path for name, path in _DISK.items()}
        bound[self._logs] = "/var/log"
        for name in kubelet.SYSCTLS:
            bound[self._disk / "sysctl" / name] = f"/proc/sys/{name}"
        mounts = [f"mount --bind {shlex.quote(str(source))} {bound[source]}" for source in bound]
        return _INIT.format(
            mounts="\n".join(mounts),
            assets=self._assets,
            disk=self._disk,
            logs=self._logs,
            socket=containerd.SOCKET,
            kubeconfig=self._kubeconfig,
            name=self.name,
            address=self.address,
            verbosity=self.kubelet_verbosity,
        )

    def _wait_for_containerd(self) -> None:
        assert self._child is not None
        deadline = time.monotonic() + SOCKET_SECONDS
        while not self._socket.exists():
            assert self._child.runs, self._child.state()
            assert time.monotonic() < deadline, f"no {self._socket} after {SOCKET_SECONDS:g} s"
            time.sleep(_PAUSE_SECONDS)


def _paths(command: list[str]) -> list[str]:
    return [shutil.which(command[0]) or command[0], *command[1:]]
