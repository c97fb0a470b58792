"""Runs a site: assembles its parts, the HTTP application, the listener and worker processes.

`assembly.py` builds the site, `mounts.py` its protocols, and `http.py` the application around them. `connections.py` is
what the network reaches first.
"""
