"""The commands, one family per module; each is registered on the app that `gpuledger.command_line`
makes."""
