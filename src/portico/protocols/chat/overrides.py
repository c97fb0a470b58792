"""`context.overrides`: what a request may set. What means something here is honoured, all else is reported with why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from portico.ask.languages.localization import LANGUAGES, best_language
from portico.config import Asking
from portico.errors import BadRequest
from portico.requests import Retrieval

MAX_REPORTED = 50
MAX_LABEL = 80
MAX_LANGUAGE = 100

_RANKING = "Items are ranked by words and meaning together; nothing else ranks them"
_RIGHTS = "Who asks decides what is read here, not the request"
_PICTURES = "Pictures are shown, not read"
_MODEL = "How answers are written is for the site to say"
REASONS: Mapping[str, str] = {
    "temperature": _MODEL,
    "seed": _MODEL,
    "prompt_template": _MODEL,
    "prompt_template_prefix": _MODEL,
    "prompt_template_suffix": _MODEL,
    "semantic_ranker": _RANKING,
    "semantic_captions": _RANKING,
    "query_rewriting": _RANKING,
    "minimum_search_score": _RANKING,
    "minimum_reranker_score": _RANKING,
    "vector_fields": "Meaning is taken of whole items, not of single fields",
    "use_oid_security_filter": _RIGHTS,
    "use_groups_security_filter": _RIGHTS,
    "use_gpt4v": _PICTURES,
    "gpt4v_input": _PICTURES,
    "send_text_sources": _PICTURES,
    "send_image_sources": _PICTURES,
}
UNKNOWN = "There is no such setting here"
NO_VECTORS = "This site finds items by words alone"
NO_LANGUAGE = f"Answers come in these languages: {', '.join(LANGUAGES)}"
NO_CATEGORY = "There is no collection of that name"


@dataclass(frozen=True, slots=True)
class Overrides:
    top: int
    retrieval: Retrieval = "hybrid"
    followups: bool = True
    language: str = ""
    collections: tuple[str, ...] = ()
    without: str = ""  # a collection
    unused: Mapping[str, str] = field(default_factory=dict[str, str])  # what has no meaning here, and why


def read_overrides(said: Mapping[str, Any], asking: Asking, *, has_vectors: bool, known: frozenset[str]) -> Overrides:
    """`known` are the names of collections, which others call categories."""
    given = {name: value for name, value in said.items() if value is not None}
    unused = {name[:MAX_LABEL]: REASONS.get(name, UNKNOWN) for name in given if name not in _READ}
    retrieval = _retrieval(given)
    if not has_vectors and given.get("retrieval_mode", "text") != "text":
        unused["retrieval_mode"] = NO_VECTORS
    top = _number(given, "top", asking.items)
    if top > asking.most:
        unused["top"] = f"An answer has at most {asking.most} items"
    language = _text(given, "language")[:MAX_LANGUAGE]
    # A model writes in whatever language it is told; without one, a language that is not known here is none.
    if language and not asking.has_model and not best_language(language, ("", *LANGUAGES)):
        unused["language"], language = NO_LANGUAGE, ""
    categories = {name: _text(given, name) for name in ("include_category", "exclude_category")}
    for name, value in categories.items():
        if value and value not in known:
            unused[name], categories[name] = NO_CATEGORY, ""
    included = categories["include_category"]
    return Overrides(
        min(top, asking.most),
        retrieval if has_vectors else "text",
        _flag(given, "suggest_followup_questions", default=True),
        language,
        (included,) if included else (),
        categories["exclude_category"],
        dict(list(unused.items())[:MAX_REPORTED]),
    )


_READ = frozenset(
    {"top", "retrieval_mode", "suggest_followup_questions", "language", "include_category", "exclude_category"}
)


def _retrieval(given: Mapping[str, Any]) -> Retrieval:
    said = given.get("retrieval_mode", "hybrid")
    if said not in get_args(Retrieval):
        raise BadRequest("context.overrides.retrieval_mode is hybrid, vectors or text")
    return cast("Retrieval", said)


def _number(given: Mapping[str, Any], name: str, default: int) -> int:
    said = given.get(name, default)
    if isinstance(said, float) and said.is_integer():
        said = int(said)
    if not isinstance(said, int) or isinstance(said, bool) or said < 1:
        raise BadRequest(f"context.overrides.{name} is a whole number from 1 on")
    return said


def _flag(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    said = given.get(name, default)
    if not isinstance(said, bool):
        raise BadRequest(f"context.overrides.{name} is true or false")
    return said


def _text(given: Mapping[str, Any], name: str) -> str:
    said = given.get(name, "")
    if not isinstance(said, str):
        raise BadRequest(f"context.overrides.{name} is a text")
    return said
