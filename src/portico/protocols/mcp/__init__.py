"""The Model Context Protocol: tools, resources and prompts of a site, over HTTP and standard input and output."""
