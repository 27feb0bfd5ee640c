"""Images of a rig: those of the product, busybox for sandboxes and containers, and programs."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gpuledger.version import VERSION

BUSYBOX: Final = "docker.io/library/busybox:rig"
SERVICE: Final = f"docker.io/library/gpuledger:{VERSION}"
IMPORT_SECONDS: Final = 120.0
BUILT: Final = Path(__file__).parents[4] / "build" / "images"
_OCI: Final = "application/vnd.oci.image"


def product_archives() -> list[Path]:
    """Return the archives that `make image` wrote. Raises FileNotFoundError without them."""
    archives = sorted(BUILT.glob(f"*-{VERSION}.oci.tar"))
    if not archives:
        raise FileNotFoundError(f"{BUILT} has no image of version {VERSION}: run `make image`")
    return archives


def write_busybox(busybox: Path, archive: Path) -> None:
    """Write an OCI archive of one layer, with all commands of busybox in /bin."""
    listed = subprocess.run(
        [busybox, "--list"], capture_output=True, text=True, check=True, timeout=10
    )
    layer = _layer({"busybox": busybox}, dict.fromkeys(listed.stdout.split(), "busybox"))
    _write(archive, BUSYBOX, layer, ["/bin/tail", "-f", "/dev/null"])


def write_program(program: Path, archive: Path, reference: str) -> None:
    """Write an OCI archive of one layer, with a statically linked program in /bin."""
    _write(archive, reference, _layer({program.name: program}, {}), [f"/bin/{program.name}"])


def import_into(ctr: Path, socket: Path, archive: Path) -> None:
    """Import an OCI archive into the containerd that listens at a socket."""
    command = [ctr, "-a", socket, "-n", "k8s.io", "images", "import", "--no-unpack", archive]
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=IMPORT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"import of {archive}: {done.stdout}{done.stderr}"


def _write(archive: Path, reference: str, layer: bytes, command: list[str]) -> None:
    """Write an OCI archive with one layer."""
    packed = gzip.compress(layer, compresslevel=1, mtime=0)
    configuration = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": command, "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
    }
    with tarfile.open(archive, "w") as out:
        _add(out, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        described = _blob(out, f"{_OCI}.config.v1+json", json.dumps(configuration).encode())
        layers = [_blob(out, f"{_OCI}.layer.v1.tar+gzip", packed)]
        kind = f"{_OCI}.manifest.v1+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": described,
            "layers": layers,
        }
        entry = _blob(out, kind, json.dumps(manifest).encode())
        entry["annotations"] = {"io.containerd.image.name": reference}
        index = {"schemaVersion": 2, "manifests": [entry]}
        _add(out, "index.json", json.dumps(index).encode())


def _layer(programs: Mapping[str, Path], links: Mapping[str, str]) -> bytes:
    """Return a layer with programs in /bin, and with links to them by their names."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for folder in ("bin", "etc", "tmp"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            out.addfile(entry)
        for name, program in programs.items():
            _add(out, f"bin/{name}", program.read_bytes(), 0o755)
        for name, target in links.items():
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, target
            if name not in programs:
                out.addfile(link)
    return buffer.getvalue()


def _blob(out: tarfile.TarFile, kind: str, content: bytes) -> dict[str, Any]:
    digest = _digest(content)
    _add(out, f"blobs/{digest.replace(':', '/')}", content)
    return {"mediaType": kind, "digest": digest, "size": len(content)}


def _add(out: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    out.addfile(entry, io.BytesIO(content))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
