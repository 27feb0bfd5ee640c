"""The benchmarks, one file each, by the name that `--only` takes."""
