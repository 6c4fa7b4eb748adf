"""The command line: one module for each command, and what the commands share."""

from biro.cli.app import main

__all__ = ["main"]
