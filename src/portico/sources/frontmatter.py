"""Reads the front matter of pages as schema.org fields, and what Jekyll and its kin say by the names of files.

Runs no templates: their tags are taken out of texts.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, cast

import yaml

from portico.sources.plain import load_yaml, plain_object

_FENCES = {"---": "yaml", "+++": "toml"}
# Common names in front matter, and their names in schema.org.
_NAMES = {
    "title": "name", "date": "datePublished", "tags": "keywords", "summary": "description", "excerpt": "description",
    "lastmod": "dateModified", "last_modified_at": "dateModified", "lang": "inLanguage", "category": "categories",
}  # fmt: skip
# What tells a generator how to make the page, and nothing about it.
_SETTINGS = frozenset((
    "layout", "permalink", "published", "draft", "comments", "toc", "redirect_from", "render_with_liquid", "sitemap",
))  # fmt: skip
_LISTS = ("keywords", "categories")
_POST = re.compile(r"(\d{4}-\d\d-\d\d)-(.+)\Z", re.DOTALL)
_ZONED = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?) ?([+-]\d\d):?(\d\d)\Z")
_FENCE_TAG = re.compile(r"\{%-?\s*(?:end)?highlight\b[^%]{0,200}%\}")
_TAG = re.compile(r"\{%[^%]{0,1000}%\}|\{\{[^{}]{0,1000}\}\}")
_ATTRIBUTES = re.compile(r"^[ \t]*\{:[^}\n]{0,300}\}[ \t]*$", re.MULTILINE)


class InvalidFrontMatter(ValueError):
    """Front matter that is not a table of fields."""


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The fields of a page by their names in schema.org, its settings, and the text below."""

    fields: dict[str, Any]
    settings: dict[str, Any]
    text: str
    slug: str = ""  # of a post, whose file is named by its date
    is_post: bool = False
    is_draft: bool = False


def read_front_matter(text: str, name: str) -> FrontMatter:
    """Return what a page says between its fences and by the name of its file."""
    values, body = _split(text)
    settings = {key: value for key, value in values.items() if key in _SETTINGS}
    fields = _schema_fields({key: value for key, value in values.items() if key not in _SETTINGS})
    path = PurePosixPath(name.replace("\\", "/"))
    post = _POST.match(path.stem)
    if post and "datePublished" not in fields:
        fields["datePublished"] = post[1]
    is_post = "_posts" in path.parts[:-1] and post is not None
    if is_post or "layout" in settings:
        body = _without_tags(body)
    is_draft = settings.get("published") is False or settings.get("draft") is True or "_drafts" in path.parts[:-1]
    return FrontMatter(fields, settings, body, post[2] if post else "", is_post, is_draft)


def _split(text: str) -> tuple[dict[str, Any], str]:
    """Return the fields between the fences, and the text after them."""
    first, _, rest = text.partition("\n")
    language = _FENCES.get(first.strip())
    if language is None:
        return {}, text
    closing = re.compile(rf"^{re.escape(first.strip())}[ \t]*\r?$", re.MULTILINE).search(rest)
    if closing is None:
        return {}, text  # a rule, not a fence
    head = rest[: closing.start()]
    try:
        fields: Any = load_yaml(head) if language == "yaml" else tomllib.loads(head.replace("\r\n", "\n"))
    except (yaml.YAMLError, tomllib.TOMLDecodeError, ValueError, RecursionError) as problem:
        raise InvalidFrontMatter(" ".join(str(problem).split())) from problem
    if fields is not None and not isinstance(fields, dict):
        raise InvalidFrontMatter("it is not a table of fields")
    return plain_object(cast("dict[Any, Any]", fields or {})), rest[closing.end() :]


def _schema_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in fields.items() if name not in _NAMES}
    for name, value in fields.items():
        if name in _NAMES:
            result.setdefault(_NAMES[name], value)
    for name in _LISTS:
        if isinstance(result.get(name), str):
            result[name] = _words(result[name])
    for name in ("datePublished", "dateModified"):
        if isinstance(value := result.get(name), str):
            result[name] = _ZONED.sub(r"\1T\2\3:\4", value.strip())
    if isinstance(image := result.get("image"), dict):
        members = cast("dict[str, Any]", image)
        result["image"] = members.get("path") or members.get("url") or members.get("src") or image
    return result


def _words(text: str) -> list[str]:
    """Return the tags of a text: between commas, else between spaces, as Jekyll does."""
    return [word.strip() for word in (text.split(",") if "," in text else text.split()) if word.strip()]


def _without_tags(text: str) -> str:
    return _ATTRIBUTES.sub("", _TAG.sub("", _FENCE_TAG.sub("\n```\n", text)))
