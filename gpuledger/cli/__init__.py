"""The command line: options, output, progress, exit codes and errors."""
