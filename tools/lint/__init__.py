"""Rules of this repository beside ruff, mypy and import-linter: `python -m tools.lint`.

A rule yields findings. `exceptions.toml` lists findings that stay, each with a reason.
"""
