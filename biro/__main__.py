"""Run the command `biro` as `python -m biro`."""

from biro.cli.app import main

main()
