"""Protocols are values in a registry: nothing else knows them, and they do not know each other."""

import ast
from collections.abc import Iterator
from pathlib import Path

import portico
from portico.protocols import BUILT_IN, protocols

SOURCE = Path(portico.__file__).parent
FOLDER = SOURCE / "protocols"
# MCP and A2A carry messages of NLWeb, and chat names the addresses of tasks.
BINDINGS = {("mcp", "nlweb"), ("a2a", "nlweb"), ("chat", "rest")}


def imports_of_protocols(path: Path) -> Iterator[str]:
    """Yield the names of the protocols that a module imports from."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for module in modules:
            parts = module.split(".")
            if parts[:2] == ["portico", "protocols"] and len(parts) > 2 and parts[2] in BUILT_IN:
                yield parts[2]


def test_every_folder_is_a_registered_protocol() -> None:
    folders = {path.parent.name for path in FOLDER.glob("*/__init__.py")}

    assert folders == set(BUILT_IN)
    assert {protocol.name for protocol in protocols()} >= set(BUILT_IN)


def test_protocols_do_not_import_each_other() -> None:
    pairs = {
        (name, other)
        for name in BUILT_IN
        for path in (FOLDER / name).rglob("*.py")
        for other in imports_of_protocols(path)
        if other != name
    }

    assert pairs <= BINDINGS


def test_the_server_and_all_below_know_no_protocol() -> None:
    above = {"protocols", "cli", "client", "demo"}
    modules = [path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in above]

    assert {path.name: [*imports_of_protocols(path)] for path in modules if any(imports_of_protocols(path))} == {}


def test_what_protocols_share_knows_none_of_them() -> None:
    shared = [path for path in FOLDER.glob("*.py") if path.name != "__init__.py"]

    assert {path.name: [*imports_of_protocols(path)] for path in shared if any(imports_of_protocols(path))} == {}
