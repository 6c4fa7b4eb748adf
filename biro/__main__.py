"""`python -m biro` is the `biro` command."""

from biro.cli import main

main()
