"""Embeds through an OpenAI-compatible service. Believes nothing in an answer that it has not checked.

Never puts the key or the service's own words into an error: both could reach a caller.
"""

import random
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated
from urllib.parse import SplitResult

import httpx
import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from portico.errors import TimedOut, Unavailable
from portico.models.address import Secret, service_key, service_url
from portico.models.options import read_options
from portico.models.vectors import Vectors, remember, unit

BATCH_CHARS = 200_000
"""Services bound the tokens of a request too; this stays below OpenAI's 300,000 in every script."""

LARGEST_ANSWER = 64 * 1024 * 1024
FIRST_WAIT = 0.25

HINTS: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "Check the key in the variable that key_env names.",
    HTTPStatus.FORBIDDEN: "Check what the key in the variable that key_env names may do.",
    HTTPStatus.NOT_FOUND: "Check the path and the model in the embedder's URL.",
    HTTPStatus.BAD_REQUEST: "The model may not accept shorten=true, or texts as long as max_chars.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Lower batch or max_chars in the embedder's URL.",
}


class ServiceOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of `openai:`. `shorten` asks the service for vectors of `dimensions`; not every model can do that."""

    dimensions: Annotated[int, Meta(ge=1, le=65_536)]
    key_env: str | None = None
    shorten: bool = False
    batch: Annotated[int, Meta(ge=1, le=512)] = 64
    max_chars: Annotated[int, Meta(ge=1, le=BATCH_CHARS)] = 8000
    timeout: Annotated[float, Meta(gt=0, le=600)] = 30.0
    query_prefix: str = ""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often to try, how many seconds each try may take, and how many to wait between two at the most."""

    tries: int
    seconds: float
    longest_wait: float


class ServiceEmbedder:
    def __init__(self, url: httpx.URL, model: str, key: str | None, options: ServiceOptions) -> None:
        # Without the host: a service that moves keeps its vectors.
        self.name = f"{model}-{options.dimensions}"
        self.dimensions = options.dimensions
        self._url = url
        self._model = model
        self._options = options
        self._bulk = Patience(tries=4, seconds=options.timeout, longest_wait=20.0)
        # Somebody waits for a query, and text search can answer without its vector.
        self._waiting = Patience(tries=2, seconds=min(options.timeout, 5.0), longest_wait=0.5)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        # Only config.py reads the environment; httpx would take a proxy and a .netrc from it.
        self._client = httpx.Client(headers=headers, trust_env=False)
        weakref.finalize(self, self._client.close)
        self._query = remember(lambda text: self._ask([options.query_prefix + text], self._waiting)[0])

    def embed(self, texts: Sequence[str]) -> Vectors:
        rows = [self._ask(batch, self._bulk) for batch in self._batches(texts)]
        return np.concatenate(rows) if rows else np.empty((0, self.dimensions), dtype=np.float32)

    def embed_query(self, text: str) -> Vectors:
        return self._query(text)

    def _batches(self, texts: Sequence[str]) -> Iterator[list[str]]:
        batch: list[str] = []
        size = 0
        for text in texts:
            cut = text[: self._options.max_chars]
            if batch and (len(batch) == self._options.batch or size + len(cut) > BATCH_CHARS):
                yield batch
                batch, size = [], 0
            batch.append(cut)
            size += len(cut)
        if batch:
            yield batch

    def _ask(self, texts: Sequence[str], patience: Patience) -> Vectors:
        body = msgspec.json.encode(
            _Request(
                model=self._model,
                input=[_sendable(text[: self._options.max_chars]) for text in texts],
                dimensions=self.dimensions if self._options.shorten else msgspec.UNSET,
            )
        )
        return _vectors(self._post_patiently(body, patience), len(texts), self.dimensions)

    def _post_patiently(self, body: bytes, patience: Patience) -> bytes:
        setback = _Setback("was not asked")
        for attempt in range(patience.tries):
            try:
                return self._post(body, patience.seconds)
            except _Setback as caught:
                setback = caught
            if attempt + 1 < patience.tries:
                wait = _backoff(attempt) if setback.wait is None else setback.wait
                time.sleep(min(wait, patience.longest_wait))
        raise setback.kind(
            f"The embedding service {setback}", hint="It was tried several times.", tries=patience.tries
        ) from setback

    def _post(self, body: bytes, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        try:
            with self._client.stream("POST", self._url, content=body, timeout=seconds) as response:
                _refuse_failure(response)
                return _read(response, deadline)
        except httpx.TimeoutException as error:
            raise _Setback("did not answer in time", kind=TimedOut) from error
        except httpx.RequestError as error:
            raise _Setback("cannot be reached") from error


def open_service(url: SplitResult, secret: Secret) -> ServiceEmbedder:
    options = read_options(url, ServiceOptions)
    endpoint, model = service_url(url, "embeddings", "?dimensions=N")
    key = service_key(options.key_env, secret, "embedder") if options.key_env else None
    return ServiceEmbedder(endpoint, model, key, options)


def _sendable(text: str) -> str:
    """Never empty, which OpenAI refuses; and without half of a surrogate pair, which UTF-8 cannot carry."""
    return text.encode("utf-8", "replace").decode("utf-8") or " "


class _Request(msgspec.Struct, frozen=True):
    model: str
    input: list[str]
    encoding_format: str = "float"
    dimensions: int | msgspec.UnsetType = msgspec.UNSET


class _Row(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Answer(msgspec.Struct, frozen=True):
    data: list[_Row]


class _Setback(Exception):
    """A failure that may pass. `wait` is what the service asks for, in seconds."""

    def __init__(self, message: str, *, kind: type[Unavailable] = Unavailable, wait: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.wait = wait


def _refuse_failure(response: httpx.Response) -> None:
    status = response.status_code
    if response.is_success:
        return
    if status in {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS} or response.is_server_error:
        raise _Setback(f"answers with status {status}", wait=_seconds(response.headers.get("Retry-After", "")))
    raise Unavailable(
        f"The embedding service refuses with status {status}",
        hint=HINTS.get(status),
        status=status,
    )


def _seconds(retry_after: str) -> float | None:
    return float(retry_after) if retry_after.isdecimal() else None


def _backoff(attempt: int) -> float:
    # Jitter, so that several processes do not return together. Nothing secret depends on it.
    return FIRST_WAIT * 2**attempt * random.uniform(1.0, 2.0)  # noqa: S311


def _read(response: httpx.Response, deadline: float) -> bytes:
    """The body, unless it is too large or trickles in past the deadline: httpx times single reads."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise Unavailable("The embedding service answers with more than can be a list of vectors")
        if time.monotonic() > deadline:
            raise _Setback("did not answer in time", kind=TimedOut)
    return bytes(body)


def _vectors(body: bytes, count: int, dimensions: int) -> Vectors:
    try:
        answer = msgspec.json.decode(body, type=_Answer)
    except msgspec.DecodeError as error:
        raise Unavailable("The embedding service does not answer with a list of vectors") from error
    rows = sorted(answer.data, key=lambda row: row.index)
    if [row.index for row in rows] != list(range(count)):
        raise Unavailable(f"The embedding service does not answer with one vector for each of {count} texts")
    for row in rows:
        if len(row.embedding) != dimensions:
            raise Unavailable(
                f"The embedding service answers with {len(row.embedding)} dimensions instead of {dimensions}",
                hint="Correct dimensions= in the embedder's URL, or add shorten=true if the model can.",
            )
    return _checked(np.array([row.embedding for row in rows], dtype=np.float64))


def _checked(vectors: NDArray[np.float64]) -> Vectors:
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise Unavailable("The embedding service answers with a vector that has no direction")
    return unit(vectors)
