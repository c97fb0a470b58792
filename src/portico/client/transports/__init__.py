"""Other ways to a server than a POST: MCP and A2A, with the official SDKs. What is said and understood is the client's.

    from portico.client.transports.mcp import McpCarrier

    AsyncClient("http://127.0.0.1:8000", carrier=McpCarrier)

Each way is a module of its own: its SDK takes a second to load. Nothing here knows the server.
"""
