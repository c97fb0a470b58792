"""Runs a site: assembles its parts, the HTTP application, the listener and worker processes."""
