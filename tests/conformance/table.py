"""Prints the tables of docs/conformance.md: python -m tests.conformance.table"""

import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping

from tests.conformance.requirements import Manifest, Requirement, manifests, namings

HEADING = "| requirement | section | level | what it says | shown by |"


def tables() -> str:
    """One table for each specification, as Markdown."""
    shown = shown_by()
    return "\n".join(line for manifest in manifests() for line in _tables_of(manifest, shown))


def shown_by() -> Mapping[str, list[str]]:
    """For each requirement the files with tests that show it."""
    files: defaultdict[str, set[str]] = defaultdict(set)
    for naming in namings():
        for each in naming.ids:
            files[each].add(naming.file)
    return {id: sorted(names) for id, names in files.items()}


def _tables_of(manifest: Manifest, shown: Mapping[str, list[str]]) -> Iterator[str]:
    yield f"## {manifest.title}\n"
    for key, title in manifest.specifications.items():
        entries = manifest.of(key)
        gaps = sum(bool(each.gap) for each in entries)
        yield f"### {title}\n"
        yield f"{len(entries)} requirements, {gaps} of them not met.\n"
        yield HEADING
        yield "|---|---|---|---|---|"
        yield from (_row(each, shown.get(each.id, [])) for each in entries)
        yield ""


def _row(each: Requirement, files: list[str]) -> str:
    shown = f"**gap:** {each.gap}" if each.gap else ", ".join(f"`{name}`" for name in files)
    cells = (f"`{each.id}`", each.section, each.level, each.sentence, shown)
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.stdout.write(tables())
