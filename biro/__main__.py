"""`python -m biro` is the `biro` command."""

from biro.cli.app import main

main()
