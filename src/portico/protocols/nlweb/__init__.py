"""NLWeb: questions in natural language over HTTP and WebSocket, in the three dialects that its clients speak.

`routes.py` and `socket.py` receive requests, and `service.py` asks the site. `dialects.py` has the dialects,
`models.py` parses requests, and `answers.py` publishes the types of answers. `render.py` renders events,
`compat_054.py` adapts items to 0.54, and `errors.py` has the codes. Conversations are in `conversations/dialogue.py`,
items in `protocols/rendering.py`.
"""

from typing import Final

from portico.config import Config
from portico.errors import ConfigError
from portico.protocols import Example, Protocol, action_tool
from portico.protocols.nlweb.settings import NlwebSettings


def _check_settings(config: Config, _: frozenset[str]) -> None:
    if "MCP" in config.section(NlwebSettings).actions and action_tool(config) != "":
        raise ConfigError(
            "nlweb.actions offers tools of MCP, and there are none", hint='Set mcp.operations to "own" or "all".'
        )


PROTOCOL: Final = Protocol(
    name="nlweb",
    title="NLWeb",
    settings=NlwebSettings,
    mount="portico.protocols.nlweb.routes:mount",
    describe="portico.protocols.nlweb.description:describe",
    paths=lambda _: ("/ask", "/await"),
    resource="/ask",
    check=_check_settings,
    action_forms=lambda config: config.section(NlwebSettings).actions,
    examples=lambda _: (
        Example("NLWeb", "/ask", """curl {base}/ask -d '{{"query": {{"text": "a warm soup"}}}}'""", 1),
    ),
)
