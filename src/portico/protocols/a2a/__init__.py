"""A2A: the site as an agent, on the official SDK. A binding of NLWeb: it answers what `/ask` answers.

`routes.py`, `card.py` and `errors.py` are loaded at the start; the rest is loaded later, together with the SDK.
"""

from typing import Final

from portico.protocols import Example, Protocol
from portico.protocols.a2a.settings import A2aSettings

PROTOCOL: Final = Protocol(
    name="a2a",
    title="A2A",
    settings=A2aSettings,
    mount="portico.protocols.a2a.routes:mount",
    describe="portico.protocols.a2a.description:describe",
    paths=lambda _: ("/a2a",),
    resource="/a2a",
    accepted_headers=("a2a-version", "a2a-extensions"),
    examples=lambda _: (Example("A2A", "/a2a", "curl {base}/.well-known/agent-card.json", 3),),
)
