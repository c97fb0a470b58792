"""What specifications ask for, by id, and which tests show it. Reads tests as text; never runs them."""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TESTS = HERE.parent
LEVELS = ("MUST", "SHOULD", "MAY", "NOTE")
MARKER = "requirement"


def requirement(*ids: str) -> pytest.MarkDecorator:
    """Says of a test which requirements it shows. The ids are literals, since they are found without running."""
    return pytest.mark.requirement(*ids)


@dataclass(frozen=True, slots=True)
class Requirement:
    id: str
    section: str
    level: str
    sentence: str
    gap: str = ""  # why it is not met yet


@dataclass(frozen=True, slots=True)
class Manifest:
    """The requirements of one protocol. An id begins with the key of one of its specifications."""

    title: str
    specifications: Mapping[str, str]
    requirements: tuple[Requirement, ...]

    def of(self, specification: str) -> tuple[Requirement, ...]:
        return tuple(each for each in self.requirements if each.id.partition(":")[0] == specification)


def read_manifest(path: Path) -> Manifest:
    read = tomllib.loads(path.read_text("utf-8"))
    entries = tuple(Requirement(id, **entry) for id, entry in read["requirements"].items())
    return Manifest(read["title"], read["specifications"], entries)


def manifests() -> tuple[Manifest, ...]:
    return tuple(read_manifest(path) for path in sorted(HERE.glob("*.toml")))


@dataclass(frozen=True, slots=True)
class Naming:
    """A place in a file where requirements are named. Only the decorator of a test counts."""

    file: str
    line: int
    ids: tuple[str, ...]
    is_test: bool


def namings(paths: Iterable[Path] | None = None, root: Path = TESTS) -> Iterator[Naming]:
    """Every use of the marker in these files, or in all tests."""
    for path in sorted(paths or root.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"), str(path))
        tests = {id(call) for function in _tests(tree) for call in function.decorator_list}
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and _is_marker(call.func) and path != Path(__file__):
                yield Naming(path.relative_to(root).as_posix(), call.lineno, _ids(call), id(call) in tests)


def _tests(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def _is_marker(func: ast.expr) -> bool:
    match func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name == MARKER
        case _:
            return False


def _ids(call: ast.Call) -> tuple[str, ...]:
    return tuple(_literal(each) for each in call.args)


def _literal(node: ast.expr) -> str:
    value: Any = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, str) else f"<{ast.unparse(node)}>"  # which is no id, and is reported as such
