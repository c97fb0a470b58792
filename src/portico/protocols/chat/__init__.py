"""The AI Chat Protocol (2024-05-29): questions as messages, answers as one object or as lines of JSON.

routes.py     the endpoints                   conversations.py  stored conversations and feedback
requests.py   the types of a request          overrides.py      its settings
multipart.py  its files                       threads.py        its conversation
turns.py      from a request to an answer     render.py         events to messages and chunks
points.py     data points and citations       azure_compat.py   endpoints of older front ends
errors.py     errors
"""

from typing import Final

from portico.config import Config
from portico.errors import ConfigError
from portico.protocols import Example, Protocol
from portico.protocols.chat.settings import ChatSettings

AZURE_PATHS: Final = ("/auth_setup", "/config", "/content")  # where older front ends of Azure samples look
CHATS: Final = "/api/chats"


def _paths(config: Config) -> tuple[str, ...]:
    settings = config.section(ChatSettings)
    bases = (settings.path, *AZURE_PATHS, CHATS) if settings.azure else (settings.path,)
    return tuple(path for base in bases for path in (base, f"{base}/"))


def _check_settings(config: Config, others: frozenset[str]) -> None:
    path = config.section(ChatSettings).path
    if path.split("/")[1] in {*others, *(other[1:] for other in AZURE_PATHS)}:
        raise ConfigError(f"chat.path: something else is served at {path}", hint="As in /chat.")


def _examples(config: Config) -> tuple[Example, ...]:
    path = config.section(ChatSettings).path
    messages = """'{{"messages": [{{"role": "user", "content": "a warm soup"}}]}}'"""
    return (Example("AI Chat", path, f"curl {{base}}{path} --json {messages}", 6),)


PROTOCOL: Final = Protocol(
    name="chat",
    title="AI Chat Protocol",
    settings=ChatSettings,
    mount="portico.protocols.chat.routes:mount",
    describe="portico.protocols.chat.description:describe",
    paths=_paths,
    check=_check_settings,
    accepted_headers=("api-key", "x-ms-useragent"),
    examples=_examples,
)
