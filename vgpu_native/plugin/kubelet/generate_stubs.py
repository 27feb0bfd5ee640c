"""Generate stubs: write `generated` from `protos` for `make protos`; needs grpcio-tools."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PACKAGE: Final = "vgpu_native/plugin/kubelet/generated"
NAMES: Final = ("deviceplugin", "podresources")


def generate(root: Path) -> None:
    """Write the modules of all protos below a root directory. Raises RuntimeError."""
    from grpc_tools import protoc  # type: ignore[import-untyped]

    (root / PACKAGE).mkdir(parents=True, exist_ok=True)
    code = protoc.main(
        [
            "protoc",
            # Map the files to the package that imports them later.
            f"-I{PACKAGE}={HERE / 'protos'}",
            f"--python_out={root}",
            f"--pyi_out={root}",
            f"--grpc_python_out={root}",
            *(f"{PACKAGE}/{name}.proto" for name in NAMES),
        ]
    )
    if code:
        raise RuntimeError(f"protoc ended with {code}: see its output above")


def main(arguments: Sequence[str]) -> None:
    """Write into the checkout, or below the directory of the first argument."""
    generate(Path(arguments[0]) if arguments else HERE.parents[2])


if __name__ == "__main__":
    main(sys.argv[1:])
