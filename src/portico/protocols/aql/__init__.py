"""MCP-AQL: all operations of a site behind a few endpoints that explain themselves, as tools of MCP and over HTTP."""
