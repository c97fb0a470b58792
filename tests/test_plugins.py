"""What installed packages add, and what is said when one of them is broken."""

import sys
from pathlib import Path

import pytest

from portico.errors import ConfigError
from portico.plugins import Registry
from portico.protocols import Protocol

GROUP = "portico.test_things"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, points: str, module: str = "") -> None:
    """Put a package where Python finds it, as an installer does."""
    info = folder / f"{name.replace('-', '_')}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{points}\n")
    if module:
        (folder / f"{name.replace('-', '_')}.py").write_text(module)
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(folder)


def test_what_is_built_in_comes_first_and_is_imported_when_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "acme-things", "thing = acme_things:THING", "THING = 7\n")

    registry = Registry(GROUP, {"own": "portico.errors:ConfigError"}, int)

    assert list(registry) == ["own", "thing"]
    assert "acme_things" not in sys.modules
    assert registry.get("thing") == 7
    assert registry.adds("thing")
    assert not registry.adds("own")


@pytest.mark.parametrize(
    ("module", "problem"),
    [
        ("import nothing_of_this_name\n", "cannot be loaded: ModuleNotFoundError"),
        ("OTHER = 1\n", "cannot be loaded: AttributeError"),
        ("raise RuntimeError('no')\n", "cannot be loaded: RuntimeError('no')"),
        ("THING = 7\n", "must be a Protocol, not a int"),
    ],
)
def test_a_broken_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, problem: str) -> None:
    monkeypatch.delitem(sys.modules, "broken_things", raising=False)
    install(tmp_path, monkeypatch, "broken-things", "thing = broken_things:THING", module)

    with pytest.raises(ConfigError) as refusal:
        Registry(GROUP, {}, Protocol).get("thing")

    assert "The entry point 'thing' in portico.test_things of the package broken-things 1.5" in refusal.value.message
    assert problem in refusal.value.message


def test_two_packages_cannot_add_the_same_name_and_none_can_replace_what_is_built_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "first-things", "thing = first_things:THING")
    install(tmp_path, monkeypatch, "other-things", "thing = other_things:THING")

    with pytest.raises(ConfigError, match=r"adds 'thing' .* which Portico itself provides"):
        list(Registry(GROUP, {"thing": "portico.errors:ConfigError"}, int))
    with pytest.raises(ConfigError, match=r"-things 1\.5 adds 'thing' .* which \w+-things 1\.5 provides"):
        list(Registry(GROUP, {}, int))
