"""Plain HTTP endpoints: operations, items, pages, the operator's desk (/desk) and the inspector.

`routes.py` mounts them; each other module has the endpoints of its name.
"""

from typing import Any, Final

from portico.protocols import ActionBinding, ActionCall, Example, FooterLink, Protocol


def _describe_action(call: ActionCall) -> dict[str, Any]:
    return {"method": "POST", "endpoint": f"{call.base_url}/operations/{call.operation}", "params": call.params}


PROTOCOL: Final = Protocol(
    name="rest",
    title="Plain HTTP",
    mount="portico.protocols.rest.routes:mount",
    describe="portico.protocols.rest.description:describe",
    paths=lambda _: ("/operations", "/operations/", "/tasks/", "/desk", "/desk/", "/hooks/"),
    documents=(
        *("/", "/collections/", "/items/", "/assets/", "/embed.js", "/images/", "/inspect"),
        *("/healthz", "/readyz", "/metrics"),
    ),
    action_binding=ActionBinding("HTTP", _describe_action),
    footer=(FooterLink("/inspect", "inspector"),),
    examples=lambda _: (
        Example("Home page", "/", "curl {base}/", 0),
        Example("Inspector", "/inspect", "curl {base}/inspect", 7),
        Example("Desk", "/desk", "curl {base}/desk", 7),
        Example("Operations", "/operations", "curl {base}/operations", 9),
        Example("Health", "/healthz", "curl {base}/healthz", 9),
        Example("Readiness", "/readyz", "curl {base}/readyz", 9),
        Example("Metrics", "/metrics", "curl {base}/metrics", 9),
    ),
)
