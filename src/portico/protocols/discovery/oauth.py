"""Protected resource metadata (RFC 9728): which authorization server gives out tokens for the site or a door of it."""

from typing import Any

from portico.config import Config


def metadata(config: Config, base: str, door: str) -> dict[str, Any]:
    return {
        "resource": f"{base}{door}",
        "authorization_servers": [config.oauth.issuer],
        # RFC 9728 3.2: a list without members is left out.
        **({"scopes_supported": list(config.oauth.scopes)} if config.oauth.scopes else {}),
        "bearer_methods_supported": ["header"],
        "resource_name": config.site.name,
        "resource_documentation": f"{base}/",
    }
