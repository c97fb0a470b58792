"""An OpenAPI document as a page for people. Knows the document and nothing else; everything shown is escaped."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from http import HTTPStatus
from typing import Any, TypeAlias, cast
from urllib.parse import quote, urlencode

from portico.web.item import trail
from portico.web.style import reading_page

BASE = "http://address.invalid"  # stands where the address of the site belongs, which a request tells
METHODS = ("post", "get", "delete")  # in the order of a path
MAX_LEVELS = 4  # of members in members that are told
MAX_SHOWN = 400  # characters of a description in a table

Schema: TypeAlias = Mapping[str, Any]


def docs_page(document: Schema) -> str:
    """The page, with BASE where the address of the site belongs."""
    site = document["info"]["title"]
    return reading_page(f"{site}: interface", site, _Page(document).body())


class _Page:
    def __init__(self, document: Schema) -> None:
        self._document = document

    def body(self) -> str:
        info, groups = self._document["info"], self._grouped()
        tags = [tag for tag in self._document["tags"] if tag["name"] in groups]
        shown = "".join(_group(tag, groups[tag["name"]]) for tag in tags)
        return f"""<div class="docs">{trail(("/", info["title"]))}
<p class="kind">Interface</p><h1>{escape(info["title"])}</h1>
<p class="lead">{_prose(info["description"])}</p>
<p>For programs: <a href="/openapi.json">openapi.json</a>. Who has a key sends it as
<code>authorization: Bearer …</code> or <code>x-api-key: …</code>.</p>
<nav class="contents row" aria-label="Contents">{"".join(_entry(tag) for tag in tags)}</nav>
{shown}</div>"""

    def _grouped(self) -> dict[str, list[str]]:
        """Every method of every path, by its tag."""
        groups: dict[str, list[str]] = {}
        for path, item in self._document["paths"].items():
            for method in METHODS:
                if method in item:
                    groups.setdefault(item[method]["tags"][0], []).append(self._step(path, method, item))
        return groups

    def _step(self, path: str, method: str, item: Schema) -> str:
        step = item[method]
        parameters = [self._found(each) for each in (*item.get("parameters", ()), *step.get("parameters", ()))]
        told = step.get("description", "")
        parts = (
            f"<p>{_prose(told)}</p>" if told else "",
            f"<p>Danger: {escape(step['x-danger'])}.</p>" if "x-danger" in step else "",
            _table("Parameters", ("Name", "Type", "What"), map(self._parameter_row, parameters)),
            *self._bodies(step),
            _table("Answers", ("Status", "Form", "What"), self._answer_rows(step)),
            f"<h3>Example</h3><pre>{escape(self._curl(path, method, step, parameters))}</pre>",
        )
        # An address that names what is folded up unfolds it.
        return (
            f'<details><summary><span class="method">{method.upper()}</span><code>{escape(path)}</code>'
            f'<span class="faint">{escape(step["summary"])}</span></summary>'
            f'<div id="{escape(step["operationId"])}">{"".join(parts)}</div></details>'
        )

    # Tables

    def _parameter_row(self, parameter: Schema) -> tuple[str, ...]:
        name = f"<code>{escape(parameter['name'])}</code> <span class='faint'>{escape(parameter['in'])}</span>"
        return name, escape(self._type(parameter["schema"])), _says(parameter, parameter["required"])

    def _bodies(self, step: Schema) -> Iterator[str]:
        for kind, media in step.get("requestBody", {}).get("content", {}).items():
            options = self._found(media["schema"]).get("anyOf") or [media["schema"]]
            for number, option in enumerate(options):
                title = f"Body as {kind}" if not number else "or"
                yield _table(title, ("Member", "Type", "What"), self._member_rows(self._found(option)))

    def _member_rows(self, schema: Schema, before: str = "", level: int = 1) -> Iterator[tuple[str, ...]]:
        for name, written in schema.get("properties", {}).items():
            member = self._found(written)
            said = {**member, **written}  # what is said beside a reference counts first
            named = f"{before}{name}"
            yield (
                f"<code>{escape(named)}</code>",
                escape(self._type(member)),
                _says(said, name in schema.get("required", ())),
            )
            if level < MAX_LEVELS:
                inner, step = (self._found(member["items"]), "[].") if "items" in member else (member, ".")
                yield from self._member_rows(inner, f"{named}{step}", level + 1)

    def _answer_rows(self, step: Schema) -> Iterator[tuple[str, ...]]:
        """A row for each status; one for all refusals of a form."""
        refusals: dict[str, list[str]] = {}
        for status, written in step["responses"].items():
            answer = self._found(written)
            form, says = escape(", ".join(answer.get("content", {}))), escape(answer["description"])
            if int(status) < HTTPStatus.BAD_REQUEST:
                yield f"<code>{status}</code>", form, says
            else:
                refusals.setdefault(form, []).append(f"<code>{status}</code> {says}")
        for form, several in refusals.items():
            yield "refused", form, ", ".join(several)

    def _type(self, schema: Schema) -> str:
        shown = self._found(schema)
        match shown:
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
        shown = [each for each in parameters if "example" in each]
        query = {each["name"]: _written(each["example"]) for each in shown if each["in"] == "query"}
        for each in shown:
            path = path.replace(f"{{{each['name']}}}", quote(_written(each["example"]), safe=""))
        address = f"{BASE}{path}{'?' if query else ''}{urlencode(query, quote_via=quote)}"
        lines = [f"{start} {shlex.quote(address)}"]
        for kind, media in list(step.get("requestBody", {}).get("content", {}).items())[:1]:
            sample = media.get("example") or self._sample(media["schema"])
            lines.append(f"-H {shlex.quote(f'content-type: {kind}')}")
            lines.append(f"-d {shlex.quote(json.dumps(sample, ensure_ascii=False))}")
        return " \\\n  ".join(lines)

    def _sample(self, schema: Schema, level: int = 1) -> Any:
        """Something of this shape: what its author gives as an example, or as little as it takes."""
        shown = self._found(schema)
        match shown:
            case {"examples": [first, *_]} | {"const": first} | {"enum": [first, *_]} | {"default": first}:
                return first
            case {"anyOf": [first, *_]}:
                return self._sample(first, level)
            case {"properties": members} if level < MAX_LEVELS:
                return {name: self._sample(members[name], level + 1) for name in shown.get("required", ())}
            case _:
                return _SAMPLES.get(_first(shown.get("type")), "…")

    def _found(self, written: Schema) -> Schema:
        """What a reference refers to. What stands beside it is for who shows it."""
        for _ in range(MAX_LEVELS):
            if "$ref" not in written:
                break
            part, name = written["$ref"].removeprefix("#/components/").split("/")
            written = self._document["components"][part][name]
        return written


_SAMPLES: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": False, "array": [], "object": {}, "null": None}


def _first(kind: Any) -> str:
    return str(cast("list[Any]", kind)[0]) if isinstance(kind, list) else str(kind)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _group(tag: Schema, steps: Sequence[str]) -> str:
    name = escape(tag["name"])
    return f'<h2 id="{_anchor(tag["name"])}">{name}</h2><p>{_prose(tag["description"])}</p>{"".join(steps)}'


def _entry(tag: Schema) -> str:
    return f'<a class="button small" href="#{_anchor(tag["name"])}">{escape(tag["name"])}</a>'


def _anchor(name: str) -> str:
    return escape(re.sub(r"\W+", "-", name.lower()))


def _prose(text: str) -> str:
    """Escaped, with words between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _says(said: Schema, required: bool) -> str:
    text = str(said.get("description", ""))
    shown = text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
    default = f"Default: {json.dumps(said['default'], default=list)}." if said.get("default") not in (None, "") else ""
    parts = ("<b>Required.</b>" if required else "", _prose(shown), escape(default))
    return " ".join(filter(None, parts))


def _table(title: str, names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table under its title; nothing without rows. Cells are HTML that is safe already."""
    shown = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    if not shown:
        return ""
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<h3>{escape(title)}</h3><div class="rows wide"><table><tr>{head}</tr>{shown}</table></div>'
