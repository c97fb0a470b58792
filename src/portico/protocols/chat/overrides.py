"""`context.overrides`: the settings of a request. Supported ones apply; all others are reported with a reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from portico.ask.languages.localization import LANGUAGES, best_language
from portico.config import AskSettings
from portico.errors import BadRequest
from portico.requests import Retrieval

MAX_REPORTED = 50
MAX_LABEL = 80
MAX_LANGUAGE = 100

_RANKING = "Items are ranked by words and meaning together; this setting has no effect"
_RIGHTS = "Rights depend on the caller, not on the request"
_PICTURES = "Images are displayed, but not read"
_MODEL = "The site decides how answers are written"
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
    "vector_fields": "Vectors describe whole items, not single fields",
    "use_oid_security_filter": _RIGHTS,
    "use_groups_security_filter": _RIGHTS,
    "use_gpt4v": _PICTURES,
    "gpt4v_input": _PICTURES,
    "send_text_sources": _PICTURES,
    "send_image_sources": _PICTURES,
}
UNKNOWN = "This setting is not supported"
NO_VECTORS = "This site searches by words only"
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


def read_overrides(
    raw: Mapping[str, Any], settings: AskSettings, *, has_vectors: bool, collections: frozenset[str]
) -> Overrides:
    """Parse the settings of a request. `collections` are the readable ones, which this protocol calls categories."""
    values = {name: value for name, value in raw.items() if value is not None}
    unused = {name[:MAX_LABEL]: REASONS.get(name, UNKNOWN) for name in values if name not in _READ}
    retrieval = _retrieval(values)
    if not has_vectors and values.get("retrieval_mode", "text") != "text":
        unused["retrieval_mode"] = NO_VECTORS
    top = _number(values, "top", settings.items)
    if top > settings.most:
        unused["top"] = f"An answer has at most {settings.most} items"
    language = _text(values, "language")[:MAX_LANGUAGE]
    # A model writes any language; without one, only the languages that Portico knows count.
    if language and not settings.has_model and not best_language(language, ("", *LANGUAGES)):
        unused["language"], language = NO_LANGUAGE, ""
    categories = {name: _text(values, name) for name in ("include_category", "exclude_category")}
    for name, value in categories.items():
        if value and value not in collections:
            unused[name], categories[name] = NO_CATEGORY, ""
    included = categories["include_category"]
    return Overrides(
        min(top, settings.most),
        retrieval if has_vectors else "text",
        _flag(values, "suggest_followup_questions", default=True),
        language,
        (included,) if included else (),
        categories["exclude_category"],
        dict(list(unused.items())[:MAX_REPORTED]),
    )


_READ = frozenset(
    {"top", "retrieval_mode", "suggest_followup_questions", "language", "include_category", "exclude_category"}
)


def _retrieval(values: Mapping[str, Any]) -> Retrieval:
    value = values.get("retrieval_mode", "hybrid")
    if value not in get_args(Retrieval):
        raise BadRequest("`context.overrides.retrieval_mode` must be `hybrid`, `vectors` or `text`")
    return cast("Retrieval", value)


def _number(values: Mapping[str, Any], name: str, default: int) -> int:
    value = values.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequest(f"`context.overrides.{name}` must be an integer of at least 1")
    return value


def _flag(values: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = values.get(name, default)
    if not isinstance(value, bool):
        raise BadRequest(f"`context.overrides.{name}` must be true or false")
    return value


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name, "")
    if not isinstance(value, str):
        raise BadRequest(f"`context.overrides.{name}` must be a string")
    return value
