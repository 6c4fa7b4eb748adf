"""The command line: one module for each command, and the options that commands share."""

from biro.cli.app import main

__all__ = ["main"]
