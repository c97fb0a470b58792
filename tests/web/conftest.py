"""Pages are asked for at the same inn as everything else."""

from tests.protocols.conftest import inn, parts

__all__ = ["inn", "parts"]
