"""OpenAI's API, as far as it asks a model: the site as a model that answers from its own data.

requests.py      what clients send, as one question in its conversation
answers.py       events as text with citations
completions.py   `/v1/chat/completions`: one object, or chunks
responses.py     `/v1/responses`: one object, or events
errors.py        errors
routes.py        the endpoints
description.py   what OpenAPI says of them

A third-party package adds a protocol in the same way: one `Protocol` value, registered under its name.
"""

from typing import Final

from portico.config import Config
from portico.protocols import Example, Protocol
from portico.protocols.openai.settings import OpenaiSettings

BASE: Final = "/v1"
MODELS_PATH: Final = f"{BASE}/models"
COMPLETIONS_PATH: Final = f"{BASE}/chat/completions"
RESPONSES_PATH: Final = f"{BASE}/responses"

# What the official client for JavaScript sends from a page.
_CLIENT_HEADERS = tuple(
    f"x-stainless-{name}"
    for name in ("arch", "lang", "os", "package-version", "retry-count", "runtime", "runtime-version", "timeout")
)


def _paths(config: Config) -> tuple[str, ...]:
    if not config.section(OpenaiSettings).enabled:
        return ()
    return (COMPLETIONS_PATH, MODELS_PATH, f"{MODELS_PATH}/", RESPONSES_PATH)


def _examples(config: Config) -> tuple[Example, ...]:
    settings = config.section(OpenaiSettings)
    if not settings.enabled:
        return ()
    body = f"""'{{{{"model": "{settings.model}", "messages": [{{{{"role": "user", "content": "a warm soup"}}}}]}}}}'"""
    return (Example("OpenAI API", BASE, f"curl {{base}}{COMPLETIONS_PATH} --json {body}", 6),)


PROTOCOL: Final = Protocol(
    name="openai",
    title="OpenAI API",
    settings=OpenaiSettings,
    mount="portico.protocols.openai.routes:mount",
    describe="portico.protocols.openai.description:describe",
    paths=_paths,
    accepted_headers=("openai-beta", "openai-organization", "openai-project", *_CLIENT_HEADERS),
    exposed_headers=("x-request-id",),
    examples=_examples,
)
