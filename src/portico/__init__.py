"""Portico: one entrance to a site's data and operations."""

__version__ = "0.1.0"
