"""Loads files and folders again when they change, until Ctrl-C: `portico load --watch`."""

import asyncio
import glob
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portico.cli.terminal import err, json_text, out, plain
from portico.errors import ConfigError, SiteError
from portico.redaction import redact_url

if TYPE_CHECKING:
    from portico.sources.records import SourceOptions
    from portico.sources.reports import LoadReport

POLL_SECONDS = 1.0  # a change is loaded once the files stay the same for so long
COUNTS: tuple[str, ...] = ("added", "changed", "unchanged", "removed", "failed")


@dataclass(frozen=True, slots=True)
class WatchedSource:
    """A source in files, and how it is loaded."""

    url: str  # without passwords
    place: str  # a path or a glob
    load: Callable[[], "Coroutine[Any, Any, Sequence[LoadReport]]"]

    def state(self) -> str:
        """Return a digest of the names, times and sizes of its files."""
        from portico.sources.revisions import files_digest

        return files_digest(self._files())

    def _files(self) -> Iterable[Path]:
        from portico.sources.registry import list_files

        path = Path(self.place)
        if path.is_dir():
            return list_files(path)
        return [path] if path.exists() else sorted(map(Path, glob.glob(self.place, recursive=True)))


def watched_place(url: str, options: "SourceOptions") -> str:
    """Return the path of a source that can be watched; raise ConfigError for any other."""
    from portico.sources.registry import source_place

    place = source_place(url, options)
    if "://" in place:
        raise ConfigError(
            f"--watch watches files and folders, not {redact_url(url)}",
            hint="A server loads other sources again with the setting `every`.",
        )
    return place


def watch(sources: Sequence[WatchedSource], states: Sequence[str], *, as_json: bool) -> None:
    """Load each source whose files differ from these states, whenever they do. Return on Ctrl-C."""
    loaded = list(states)
    seen = list(states)
    err.print(f"[dim]Watching {len(sources)} source{'s' * (len(sources) != 1)}. Stop with Ctrl-C.[/]", highlight=False)
    try:
        while True:
            time.sleep(POLL_SECONDS)
            for position, source in enumerate(sources):
                before, seen[position] = seen[position], source.state()
                if seen[position] != loaded[position] and seen[position] == before:
                    loaded[position] = before  # what changes during the load is loaded after it
                    _reload(source, as_json=as_json)
    except KeyboardInterrupt:
        err.print("[dim]Stopped.[/]")


def _reload(source: WatchedSource, *, as_json: bool) -> None:
    """Load a source and print one line."""
    try:
        reports = asyncio.run(source.load())
        counts: dict[str, int] = {name: sum(getattr(report, name) for report in reports) for name in COUNTS}
        error = "; ".join(report.error for report in reports if report.error)
        seconds = sum(report.seconds for report in reports)
    except SiteError as problem:
        counts, error, seconds = dict.fromkeys(COUNTS, 0), problem.message, 0.0
    if as_json:
        line: dict[str, Any] = {"source": source.url, **counts, "error": error}
        print(json_text(line), flush=True)
        return
    says = error or f"{', '.join(f'{count:,} {name}' for name, count in counts.items())} in {seconds:.1f} s"
    out.print(f"{datetime.now():%H:%M:%S} {plain(source.url)}: {plain(says)}", highlight=False, soft_wrap=True)
