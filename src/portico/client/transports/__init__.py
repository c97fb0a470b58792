"""Transports of the client: HTTP, NWP, and carriers over MCP and A2A, which use the official SDKs.

    from portico.client.transports.mcp import McpCarrier

    AsyncClient("http://127.0.0.1:8000", carrier=McpCarrier)

Each is a module of its own, since its SDK takes a second to load. Nothing here imports the server.
"""
