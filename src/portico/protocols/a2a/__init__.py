"""A2A: the site as an agent, on the official SDK. A binding of NLWeb: it answers what `/ask` answers.

`routes.py`, `card.py` and `errors.py` are loaded at the start; the rest is loaded later, together with the SDK.
"""

from typing import Any, Final

from portico.protocols import ActionBinding, ActionCall, Example, Protocol
from portico.protocols.a2a.settings import A2aSettings


def _describe_action(call: ActionCall) -> dict[str, Any]:
    # As in version 1.0. The sender adds an id.
    part = {"data": {"operation": call.operation, "params": call.params}, "mediaType": "application/json"}
    message = {"role": "ROLE_USER", "parts": [part]}
    return {"agent_url": f"{call.base_url}/a2a", "skill": call.operation, "message": message}


PROTOCOL: Final = Protocol(
    name="a2a",
    title="A2A",
    settings=A2aSettings,
    mount="portico.protocols.a2a.routes:mount",
    describe="portico.protocols.a2a.description:describe",
    paths=lambda _: ("/a2a",),
    resource="/a2a",
    action_binding=ActionBinding("A2A", _describe_action),
    carrier="portico.client.transports.a2a:A2aCarrier",
    accepted_headers=("a2a-version", "a2a-extensions"),
    examples=lambda _: (Example("A2A", "/a2a", "curl {base}/.well-known/agent-card.json", 3),),
)
