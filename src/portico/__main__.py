"""`python -m portico` is the command `portico`."""

from portico.cli import main

main()
