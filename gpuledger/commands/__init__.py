"""The commands, one family per module; each is registered on the app that `gpuledger.cli.app`
makes."""
