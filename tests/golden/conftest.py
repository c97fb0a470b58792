"""Files in the shapes that other people's programs export, loaded with the command as a site owner would."""

from tests.cli.conftest import portico_in, warm

__all__ = ["portico_in", "warm"]
