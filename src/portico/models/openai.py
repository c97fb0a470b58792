"""Embeds through an OpenAI-compatible service. Checks every response before it is used.

Never puts the key or the service's own words into an error: both could reach a caller.
"""

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
from portico.models.service import TransientError, backoff, transient_failure
from portico.models.urls import Secret, parse_options, service_key, service_url
from portico.models.vectors import Vectors, cache_queries, unit

BATCH_CHARS = 200_000
"""Services also limit the tokens of a request; this stays below OpenAI's 300,000 in every script."""

LARGEST_ANSWER = 64 * 1024 * 1024

HINTS: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "Check the key in the variable that key_env names.",
    HTTPStatus.FORBIDDEN: "Check what the key in the variable that key_env names may do.",
    HTTPStatus.NOT_FOUND: "Check the path and the model in the embedder's URL.",
    HTTPStatus.BAD_REQUEST: "The model may not accept shorten=true, or texts as long as max_chars.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "Lower batch or max_chars in the embedder's URL.",
}


class ServiceOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `openai:`. `shorten` requests vectors of `dimensions`, which not every model supports."""

    dimensions: Annotated[int, Meta(ge=1, le=65_536)]
    key_env: str | None = None
    shorten: bool = False
    batch: Annotated[int, Meta(ge=1, le=512)] = 64
    max_chars: Annotated[int, Meta(ge=1, le=BATCH_CHARS)] = 8000
    timeout: Annotated[float, Meta(gt=0, le=600)] = 30.0
    query_prefix: str = ""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, the seconds that each try may take, and the most seconds to wait between two."""

    tries: int
    seconds: float
    max_wait: float


class ServiceEmbedder:
    def __init__(self, url: httpx.URL, model: str, key: str | None, options: ServiceOptions) -> None:
        # Without the host: a service that moves keeps its vectors.
        self.name = f"{model}-{options.dimensions}"
        self.dimensions = options.dimensions
        self._url = url
        self._model = model
        self._options = options
        self._batch_policy = RetryPolicy(tries=4, seconds=options.timeout, max_wait=20.0)
        # A person waits for the results of a query, and text search can find them without its vector.
        self._query_policy = RetryPolicy(tries=2, seconds=min(options.timeout, 5.0), max_wait=0.5)
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        # Only config.py reads the environment; httpx would take a proxy and a .netrc from it.
        self._client = httpx.Client(headers=headers, trust_env=False)
        weakref.finalize(self, self._client.close)
        self._query = cache_queries(
            lambda text: self._request_vectors([options.query_prefix + text], self._query_policy)[0]
        )

    def embed(self, texts: Sequence[str]) -> Vectors:
        rows = [self._request_vectors(batch, self._batch_policy) for batch in self._batches(texts)]
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

    def _request_vectors(self, texts: Sequence[str], policy: RetryPolicy) -> Vectors:
        body = msgspec.json.encode(
            _EmbeddingRequest(
                model=self._model,
                # OpenAI refuses an empty text, and UTF-8 cannot carry half of a surrogate pair.
                input=[text[: self._options.max_chars].encode("utf-8", "replace").decode() or " " for text in texts],
                dimensions=self.dimensions if self._options.shorten else msgspec.UNSET,
            )
        )
        return _vectors(self._post_with_retries(body, policy), len(texts), self.dimensions)

    def _post_with_retries(self, body: bytes, policy: RetryPolicy) -> bytes:
        attempt = 1
        while True:
            try:
                return self._post(body, policy.seconds)
            except TransientError as failure:
                if attempt == policy.tries:
                    message = f"The embedding service {failure}"
                    hint = f"Portico tried {attempt} times; try again later."
                    raise failure.kind(message, hint=hint, tries=attempt) from failure
                wait = backoff(attempt - 1) if failure.wait is None else failure.wait
            time.sleep(min(wait, policy.max_wait))
            attempt += 1

    def _post(self, body: bytes, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        try:
            with self._client.stream("POST", self._url, content=body, timeout=seconds) as response:
                _refuse_failure(response)
                return _read(response, deadline)
        except httpx.TimeoutException as error:
            raise TransientError("did not answer in time", kind=TimedOut) from error
        except httpx.RequestError as error:
            raise TransientError("cannot be reached") from error


def open_service(url: SplitResult, secret: Secret) -> ServiceEmbedder:
    options = parse_options(url, ServiceOptions)
    endpoint, model = service_url(url, "embeddings", "?dimensions=N")
    key = service_key(options.key_env, secret, "embedder") if options.key_env else None
    return ServiceEmbedder(endpoint, model, key, options)


class _EmbeddingRequest(msgspec.Struct, frozen=True):
    model: str
    input: list[str]
    encoding_format: str = "float"
    dimensions: int | msgspec.UnsetType = msgspec.UNSET


class _EmbeddingRow(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _EmbeddingResponse(msgspec.Struct, frozen=True):
    data: list[_EmbeddingRow]


def _refuse_failure(response: httpx.Response) -> None:
    if response.is_success:
        return
    if failure := transient_failure(response):
        raise failure
    status = response.status_code
    raise Unavailable(
        f"The embedding service refused the request with status {status}", hint=HINTS.get(status), status=status
    )


def _read(response: httpx.Response, deadline: float) -> bytes:
    """Return the body; refuse one that is too large or late. httpx limits the time of single reads only."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > LARGEST_ANSWER:
            raise Unavailable(f"The embedding service sent more than {LARGEST_ANSWER} bytes")
        if time.monotonic() > deadline:
            raise TransientError("did not answer in time", kind=TimedOut)
    return bytes(body)


def _vectors(body: bytes, count: int, dimensions: int) -> Vectors:
    try:
        answer = msgspec.json.decode(body, type=_EmbeddingResponse)
    except msgspec.DecodeError as error:
        raise Unavailable("The embedding service did not send a list of vectors") from error
    rows = sorted(answer.data, key=lambda row: row.index)
    if [row.index for row in rows] != list(range(count)):
        raise Unavailable(f"The embedding service did not send one vector for each of {count} texts")
    for row in rows:
        if len(row.embedding) != dimensions:
            raise Unavailable(
                f"The embedding service sent a vector of {len(row.embedding)} dimensions instead of {dimensions}",
                hint="Correct dimensions= in the embedder's URL, or add shorten=true if the model supports it.",
            )
    return _unit_vectors(np.array([row.embedding for row in rows], dtype=np.float64))


def _unit_vectors(vectors: NDArray[np.float64]) -> Vectors:
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(vectors, axis=1)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise Unavailable("The embedding service sent a vector of length zero or infinity")
    return unit(vectors)
