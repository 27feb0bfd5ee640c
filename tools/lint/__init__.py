"""The house's own ratchets, beside ruff, mypy and import-linter: `python -m tools.lint`.

A rule yields findings. `exceptions.toml` lists findings that stay, each with a reason;
`baseline.txt` records how many others each file had when it was last written. The lint fails when
a file has more findings than recorded, and also when it has fewer: then `make lint-baseline` writes
the file again, which never raises the total of a rule.
"""
