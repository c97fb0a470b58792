"""Language models behind one small interface. What a model says is data; nothing here acts on it."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Prompt:
    """What to say to a model. With a schema, the reply is to be JSON of that shape."""

    system: str
    user: str
    schema: Mapping[str, Any] | None = None
    most: int = 800  # tokens of the reply


@dataclass(frozen=True, slots=True)
class Usage:
    """What one exchange took. Counted by the service where it says so, estimated where it does not."""

    prompt_tokens: int
    completion_tokens: int
    price: float = 0.0


class LanguageModel(Protocol):
    name: str

    def stream(self, prompt: Prompt) -> AsyncGenerator[str | Usage]:
        """Pieces of the reply as they come, then one Usage. Unavailable or TimedOut when there is none."""
        ...

    async def close(self) -> None: ...


def tokens(text: str) -> int:
    """About as many tokens as a text has, rather more than less: for keeping within a budget."""
    return len(text.encode()) // 3 + 1
