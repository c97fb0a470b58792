"""The source behind hello://Ann,Bob: one item for each name."""

from collections.abc import Iterator

from portico.sources.records import Entry, Record, SourceOptions


def read(url: str, _: SourceOptions) -> Iterator[Entry]:
    for name in filter(None, url.partition("://")[2].split(",")):
        yield Record({"@type": "Person", "name": name, "description": f"Somebody called {name}"}, url, name.lower())
