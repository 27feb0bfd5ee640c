"""The command `gpuledger`; also `python -m gpuledger`."""

from gpuledger.app import build


def main() -> None:
    """Run the command line."""
    build()()


if __name__ == "__main__":
    main()
