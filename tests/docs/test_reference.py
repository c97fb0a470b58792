"""The reference pages are complete and true: nothing that exists is left out, nothing that is gone is kept."""

import ast
import dataclasses
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import typer.main

import portico
from portico import errors
from portico.catalog import Operation
from portico.cli import EXIT_CODES, app, exit_code
from portico.cli.sites import demo_config
from portico.config import StoreSettings
from portico.errors import SiteError
from portico.models import service
from portico.protocols import settings
from portico.query import FUNCTIONS, OPERATORS
from portico.server.assembly import open_site_without_index
from portico.sources.registry import FORMATS
from portico.store import health
from portico.store.postgres import faults
from portico.telemetry import EVENT_NAMES, TelemetryEvent

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = Path(portico.__file__).parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

_CODE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^(`{3,}).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every row of every table, headings left out."""
    for line in text.splitlines():
        if line.startswith("| ") and line.endswith("|"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def named(text: str) -> Iterator[list[str]]:
    """The rows whose first cell is code."""
    return (row for row in rows(text) if row[0].startswith("`"))


def code(cell: str) -> list[str]:
    return _CODE.findall(cell)


def sections(text: str) -> dict[str, str]:
    """What stands below each heading of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def read(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


# Settings


def test_every_setting_is_documented_with_its_default() -> None:
    said = {code(row[0])[0]: row[2] for row in named(setting_tables()) if len(row) == 4}

    assert said == {name: shown_default(default, said.get(name, "")) for name, default in settings().items()}


def setting_tables() -> str:
    """The page of settings, and the sections of protocols that document theirs on their own page."""
    pages = (read(f"reference/{page.name}") for page in sorted((DOCS / "reference").glob("*.md")))
    own = [sections(page)["Settings"] for page in pages if "Settings" in sections(page)]
    return "\n".join([read("reference/settings.md"), *own])


def shown_default(default: Any, said: str) -> str:
    if default is None:
        return said if said in {"required", "none"} else "required or none"
    return f"`{json.dumps(msgspec.to_builtins(default))}`"


# Commands


def commands(group: Any, name: str = "portico") -> Iterator[tuple[str, Any]]:
    yield name, group
    for each, command in getattr(group, "commands", {}).items():
        yield from commands(command, f"{name} {each}")


COMMANDS = {name: each for name, each in commands(typer.main.get_command(app)) if each.params}


def test_every_command_is_documented() -> None:
    assert set(sections(read("reference/commands.md"))) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_and_argument_is_documented(name: str) -> None:
    section = sections(read("reference/commands.md")).get(name, "")
    said = {part for row in named(section) for part in code(row[0])}

    assert said == {part for param in COMMANDS[name].params for part in spelled(param)}


def spelled(param: Any) -> list[str]:
    if param.param_type_name == "argument":
        renamed = {"sources": "SOURCE", "origin": "FROM", "target": "TO"}
        return [renamed.get(param.name, param.name.upper())]
    return [*param.opts, *param.secondary_opts]


def test_the_formats_of_sources_are_documented() -> None:
    table = sections(read("how-to/load-data.md"))["Each kind of source"]

    assert {code(row[0])[0] for row in named(table)} == set(FORMATS)


# Errors

# Those of a protocol are documented on its page.
ERRORS = {
    name: kind
    for module in (errors, health, faults, service)
    for name, kind in inspect.getmembers(module, inspect.isclass)
    if issubclass(kind, SiteError)
}


def test_every_event_of_the_log_is_documented_with_its_fields() -> None:
    table = sections(read("how-to/operate.md"))["Log"]
    documented = {code(row[0])[0]: set(code(row[1])) for row in named(table)}

    assert documented == {name: set(_logged_fields(kind)) for kind, name in EVENT_NAMES.items()}
    assert set(EVENT_NAMES) == set(get_args(TelemetryEvent))


def _logged_fields(kind: type[Any]) -> list[str]:
    if not dataclasses.is_dataclass(kind):
        return [field.name for field in msgspec.structs.fields(kind)]
    names = {field.name: field.name for field in dataclasses.fields(kind)} | {"cause": "traceback"}
    return list(names.values())


def test_every_error_is_documented_with_its_exit_code() -> None:
    said = {code(row[0])[0]: row[3] for row in named(read("reference/errors.md"))}

    assert said == {name: str(exit_code(kind("…"))) for name, kind in ERRORS.items()}


def test_every_exit_code_is_documented() -> None:
    table = sections(read("reference/errors.md"))["Exit codes"]
    said = {int(row[0]) for row in rows(table) if row[0].isdigit()}

    assert said == {0, 130, *EXIT_CODES.values()}


# Operators


def test_every_operator_is_documented_as_it_is_said() -> None:
    table = {code(row[0])[0]: row[1] for row in named(read("reference/operators.md").split("## Form")[0])}
    joining = {name: table.pop(name, "") for name in ("$and", "$or", "$not")}

    assert table == {f"${name}": operator.label for name, operator in OPERATORS.items()}
    assert all(joining.values())


def test_every_aggregate_function_is_documented() -> None:
    table = sections(read("reference/operators.md"))["Aggregates"]

    assert [code(row[0])[0] for row in named(table)] == list(FUNCTIONS)


# Operations


async def test_every_operation_of_the_sample_site_is_documented(tmp_path: Path) -> None:
    published = await demo_operations(tmp_path)
    text = read("reference/operations.md")
    described = {code(row[0])[0]: row for row in named(text)}
    made = {name for row in rows(sections(text)["The sample site's collections"]) for name in code(" ".join(row))}

    assert described.keys() | made == published.keys()
    for name, row in described.items():
        fields = [each.name for each in msgspec.structs.fields(published[name].params)]
        assert row[1:4] == [
            published[name].kind.value,
            published[name].danger.name.lower(),
            ", ".join(f"`{field}`" for field in fields),
        ]


async def demo_operations(folder: Path) -> dict[str, Operation]:
    config = msgspec.structs.replace(demo_config(), store=StoreSettings(url=f"sqlite:///{folder / 'demo.db'}"))
    async with open_site_without_index(config) as parts:
        return dict(parts.site.catalog.operations)


# The architecture


def test_every_entry_of_the_package_is_on_the_map() -> None:
    entries = {
        path.name if path.is_file() else f"{path.name}/" for path in SOURCE.iterdir() if path.name[0] not in "_."
    }
    layout = sections(read("architecture.md"))["Layout"]

    assert {name for row in named(layout) for name in code(row[0])} == entries - {"py.typed"}


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in SOURCE.rglob("*.py") if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]

    assert silent == []


def test_the_architecture_can_be_read_in_five_minutes() -> None:
    assert len(read("architecture.md").split()) < 5 * 260


ADDITIONS = [row for row in rows(sections(read("architecture.md"))["Where would I add …"]) if "`" in row[1]]


@pytest.mark.parametrize("row", ADDITIONS, ids=lambda row: row[0])
def test_the_files_to_touch_are_those_that_know_the_example(row: list[str]) -> None:
    files, [example] = code(row[1]), code(row[2])
    listed = {name for name in files if name.endswith((".py", ".md", "/")) and "NAME" not in name}

    assert [name for name in listed if not ((SOURCE / name).exists() or (ROOT / name).exists())] == []
    if example.endswith((".py", "/")) and example != "demo/operations.py":
        folders = tuple(name for name in listed if name.endswith("/"))
        assert {name for name in importers(example) if not name.startswith(folders)} <= listed


def importers(example: str) -> set[str]:
    """The modules outside its own folder that import an example, or name it for a later import."""
    name = "portico." + example.removesuffix("/").removesuffix(".py").replace("/", ".")
    reference = re.compile(rf"\b{re.escape(name)}\b")
    return {
        path
        for module in SOURCE.rglob("*.py")
        if not (path := module.relative_to(SOURCE).as_posix()).startswith(example)
        and reference.search(module.read_text("utf-8"))
    }


def test_the_layers_are_drawn_as_they_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["name"] == "Dependencies point one way")
    [drawn] = _FENCE.finditer(sections(read("architecture.md"))["The layers"])

    assert drawn[0].splitlines()[1:-1] == [each.replace("portico.", "").replace(" :", ",") for each in layers]


# Dependencies


def test_every_dependency_has_its_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = {
        "Runtime": project["project"]["dependencies"],
        **{f"Extra `{name}`": lines for name, lines in project["project"]["optional-dependencies"].items()},
        "Development": project["dependency-groups"]["dev"],
    }
    said = {
        title: [code(row[0])[0] for row in named(section)]
        for title, section in sections(read("dependencies.md")).items()
    }

    assert said == {title: [re.split(r"[^\w.-]", each)[0] for each in lines] for title, lines in wanted.items()}


# Links


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_resolve(page: Path) -> None:
    links = _LINK.findall(_FENCE.sub("", page.read_text("utf-8")))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]

    assert [link for link in local if not resolves(link, page)] == []


def resolves(link: str, page: Path) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = _LINK.findall(_FENCE.sub("", page.read_text("utf-8")))
        waiting.extend((page.parent / link.partition("#")[0]).resolve() for link in links if "://" not in link)

    assert set(DOCS.rglob("*.md")) <= seen
