"""The commands: their options, help and tables, one family per module.

Each family is registered on the app that `gpuledger.command_line` makes.
"""
