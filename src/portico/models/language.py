"""The interface of a language model. Its replies are data; nothing here acts on them."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt for a model. With a schema, the reply must be JSON that fits it."""

    system: str
    user: str
    schema: Mapping[str, Any] | None = None
    max_tokens: int = 800  # of the reply


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens and the price of one exchange: the service's own count, or an estimate if it sends none."""

    prompt_tokens: int
    completion_tokens: int
    price: float = 0.0


class LanguageModel(Protocol):
    name: str

    def stream(self, prompt: Prompt) -> AsyncGenerator[str | Usage]:
        """Yield pieces of the reply as they arrive, then one Usage. Raise Unavailable or TimedOut if there is none."""
        ...

    async def close(self) -> None: ...


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too many than too few: for keeping within a budget."""
    return len(text.encode()) // 3 + 1
