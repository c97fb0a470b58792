"""Renders an OpenAPI document as a page. Knows nothing but the document, and escapes everything in it."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from http import HTTPStatus
from typing import Any, TypeAlias, cast
from urllib.parse import quote, urlencode

from portico.web.item import trail

BASE = "http://address.invalid"  # placeholder for the base URL of the site
METHODS = ("post", "get", "delete")  # in the order of a path
MAX_LEVELS = 4  # of nested members that are listed
MAX_SHOWN = 400  # characters of a description in a table

Schema: TypeAlias = Mapping[str, Any]


class DocsPage:
    """The page, with BASE in place of the base URL of the site."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def body(self) -> str:
        info, groups = self._document["info"], self._group_operations()
        tags = [tag for tag in self._document["tags"] if tag["name"] in groups]
        sections = "".join(_group(tag, groups[tag["name"]]) for tag in tags)
        return f"""<div class="docs">{trail(("/", info["title"]))}
<p class="kind">Interface</p><h1>{escape(info["title"])}</h1>
<p class="lead">{_prose(info["description"])}</p>
<p>For programs: <a href="/openapi.json">openapi.json</a>. Who has a key sends it as
<code>authorization: Bearer …</code> or <code>x-api-key: …</code>.</p>
<nav class="contents row" aria-label="Contents">{"".join(_entry(tag) for tag in tags)}</nav>
{sections}</div>"""

    def _group_operations(self) -> dict[str, list[str]]:
        """Return the rendered operations of all paths by tag."""
        groups: dict[str, list[str]] = {}
        for path, item in self._document["paths"].items():
            for method in METHODS:
                if method in item:
                    groups.setdefault(item[method]["tags"][0], []).append(self._render_operation(path, method, item))
        return groups

    def _render_operation(self, path: str, method: str, item: Schema) -> str:
        step = item[method]
        parameters = [self._resolve(schema) for schema in (*item.get("parameters", ()), *step.get("parameters", ()))]
        description = step.get("description", "")
        parts = (
            f"<p>{_prose(description)}</p>" if description else "",
            f"<p>Danger: {escape(step['x-danger'])}.</p>" if "x-danger" in step else "",
            _table("Parameters", ("Name", "Type", "What"), map(self._parameter_row, parameters)),
            *self._bodies(step),
            _table("Answers", ("Status", "Form", "What"), self._response_rows(step)),
            f"<h3>Example</h3><pre>{escape(self._curl(path, method, step, parameters))}</pre>",
        )
        # A link to the id inside opens the details.
        return (
            f'<details><summary><span class="method">{method.upper()}</span><code>{escape(path)}</code>'
            f'<span class="faint">{escape(step["summary"])}</span></summary>'
            f'<div id="{escape(step["operationId"])}">{"".join(parts)}</div></details>'
        )

    # Tables

    def _parameter_row(self, parameter: Schema) -> tuple[str, ...]:
        name = f"<code>{escape(parameter['name'])}</code> <span class='faint'>{escape(parameter['in'])}</span>"
        return name, escape(self._type(parameter["schema"])), _describe(parameter, parameter["required"])

    def _bodies(self, step: Schema) -> Iterator[str]:
        for kind, media in step.get("requestBody", {}).get("content", {}).items():
            options = self._resolve(media["schema"]).get("anyOf") or [media["schema"]]
            for number, option in enumerate(options):
                title = f"Body as {kind}" if not number else "or"
                yield _table(title, ("Member", "Type", "What"), self._member_rows(self._resolve(option)))

    def _member_rows(self, schema: Schema, before: str = "", level: int = 1) -> Iterator[tuple[str, ...]]:
        for name, own_schema in schema.get("properties", {}).items():
            member = self._resolve(own_schema)
            merged = {**member, **own_schema}  # members beside a reference override it
            full_name = f"{before}{name}"
            yield (
                f"<code>{escape(full_name)}</code>",
                escape(self._type(member)),
                _describe(merged, name in schema.get("required", ())),
            )
            if level < MAX_LEVELS:
                inner, step = (self._resolve(member["items"]), "[].") if "items" in member else (member, ".")
                yield from self._member_rows(inner, f"{full_name}{step}", level + 1)

    def _response_rows(self, step: Schema) -> Iterator[tuple[str, ...]]:
        """Yield a row for each successful status, and one for all errors of a media type."""
        refusals: dict[str, list[str]] = {}
        for status, own_schema in step["responses"].items():
            answer = self._resolve(own_schema)
            form, description = escape(", ".join(answer.get("content", {}))), escape(answer["description"])
            if int(status) < HTTPStatus.BAD_REQUEST:
                yield f"<code>{status}</code>", form, description
            else:
                refusals.setdefault(form, []).append(f"<code>{status}</code> {description}")
        for form, several in refusals.items():
            yield "refused", form, ", ".join(several)

    def _type(self, schema: Schema) -> str:
        target = self._resolve(schema)
        match target:
            case {"enum": options} | {"const": _, "enum": options}:
                return " | ".join(map(str, options))
            case {"const": value}:
                return str(value)
            case {"anyOf": options} | {"oneOf": options}:
                return " or ".join(map(self._type, options))
            case {"type": "array", "items": inner}:
                return f"list of {self._type(inner)}"
            case {"type": [*kinds]}:
                return " or ".join(map(str, kinds))
            case {"type": kind}:
                return str(kind)
            case _:
                return "anything"

    # Examples

    def _curl(self, path: str, method: str, step: Schema, parameters: Sequence[Schema]) -> str:
        start = "curl" if method == "get" else f"curl -X {method.upper()}"
        with_examples = [parameter for parameter in parameters if "example" in parameter]
        query = {item["name"]: _as_text(item["example"]) for item in with_examples if item["in"] == "query"}
        for parameter in with_examples:
            path = path.replace(f"{{{parameter['name']}}}", quote(_as_text(parameter["example"]), safe=""))
        address = f"{BASE}{path}{'?' if query else ''}{urlencode(query, quote_via=quote)}"
        lines = [f"{start} {shlex.quote(address)}"]
        for kind, media in list(step.get("requestBody", {}).get("content", {}).items())[:1]:
            sample = media.get("example") or self._sample(media["schema"])
            lines.append(f"-H {shlex.quote(f'content-type: {kind}')}")
            lines.append(f"-d {shlex.quote(json.dumps(sample, ensure_ascii=False))}")
        return " \\\n  ".join(lines)

    def _sample(self, schema: Schema, level: int = 1) -> Any:
        """Return an example of a schema: its own, or the smallest that is valid."""
        target = self._resolve(schema)
        match target:
            case {"examples": [first, *_]} | {"const": first} | {"enum": [first, *_]} | {"default": first}:
                return first
            case {"anyOf": [first, *_]}:
                return self._sample(first, level)
            case {"properties": members} if level < MAX_LEVELS:
                return {name: self._sample(members[name], level + 1) for name in target.get("required", ())}
            case _:
                return _SAMPLES.get(_first(target.get("type")), "…")

    def _resolve(self, schema: Schema) -> Schema:
        """Return the target of a reference, without the members beside it."""
        for _ in range(MAX_LEVELS):
            if "$ref" not in schema:
                break
            part, name = schema["$ref"].removeprefix("#/components/").split("/")
            schema = self._document["components"][part][name]
        return schema


_SAMPLES: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}, "null": None}


def _first(kind: Any) -> str:
    return str(cast("list[Any]", kind)[0]) if isinstance(kind, list) else str(kind)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _group(tag: Schema, steps: Sequence[str]) -> str:
    name = escape(tag["name"])
    return f'<h2 id="{_anchor(tag["name"])}">{name}</h2><p>{_prose(tag["description"])}</p>{"".join(steps)}'


def _entry(tag: Schema) -> str:
    return f'<a class="button small" href="#{_anchor(tag["name"])}">{escape(tag["name"])}</a>'


def _anchor(name: str) -> str:
    return escape(re.sub(r"\W+", "-", name.lower()))


def _prose(text: str) -> str:
    """Return escaped text, with words between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _describe(schema: Schema, required: bool) -> str:
    text = str(schema.get("description", ""))
    description = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    default = (
        f"Default: {json.dumps(schema['default'], default=list)}." if schema.get("default") not in (None, "") else ""
    )
    parts = ("<b>Required.</b>" if required else "", _prose(description), escape(default))
    return " ".join(filter(None, parts))


def _table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a titled table, or nothing without rows. Cells must be safe HTML."""
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    if not body:
        return ""
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<h3>{escape(title)}</h3><div class="rows wide"><table><tr>{head}</tr>{body}</table></div>'
