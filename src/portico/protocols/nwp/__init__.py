"""NWP 0.4: the site as nodes that agents query, invoke and subscribe to, over HTTP and natively over TCP."""
