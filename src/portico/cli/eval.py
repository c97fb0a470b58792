"""The command `portico eval`: asks questions whose right items are known, and shows how well they were answered."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from portico.cli.options import JsonOption, KeyOption, SiteOption, StoreOption, caller_of, config_of, filled
from portico.cli.terminal import Bar, err, out, plain, print_json, show_table
from portico.config import Config
from portico.errors import ConfigError

if TYPE_CHECKING:
    from portico.cli.evaluation import Judged, Result, Scores
    from portico.requests import Retrieval

Way: TypeAlias = Literal["hybrid", "text", "vectors", "all"]
SHOWN = 3  # items of an answer


def evaluate(
    context: typer.Context,
    questions: Annotated[
        Path, typer.Argument(metavar="QUESTIONS", help="A file, or a folder with queries.jsonl and qrels.tsv.")
    ],
    by: Annotated[
        Way, typer.Option(help="What finds items: words and meaning, one of them, or each in turn.")
    ] = "hybrid",
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many items of an answer count.")] = 10,
    collection: Annotated[
        list[str] | None, typer.Option("--collection", "-c", help="Only here.", show_default=False)
    ] = None,
    worst: Annotated[int, typer.Option(min=0, help="Show so many of the questions that went worst.")] = 3,
    least: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Exit with 1 if nDCG is less.", show_default=False)
    ] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how well the site answers questions whose right items are known.

    A line of the file is {"question": "a warm soup", "items": ["recipes/lemon-barley-soup"]}. nDCG is 1 if the right
    items come first; recall is the share of them that is there; first is 1 if the first item is a right one.

        portico eval questions.jsonl --by all --worst 5

        portico eval questions.jsonl --least 0.8
    """
    # Imported here: help and other commands need no site.
    from portico.cli.evaluation import read_questions  # noqa: PLC0415

    asked = read_questions(questions)
    config = filled(config_of(context, site, store))
    ways: tuple[Retrieval, ...] = ("hybrid", "text", "vectors") if by == "all" else (by,)
    scores = asyncio.run(_evaluated(config, asked, ways, limit, collection or (), api_key, quiet=as_json))
    if as_json:
        print_json([{**_means(each), "results": [_shown(result) for result in each.results]} for each in scores])
    else:
        names = {"ndcg": f"nDCG@{limit}", "recall": f"recall@{limit}"}
        rows = [{names.get(name, name): value for name, value in _means(each).items()} for each in scores]
        show_table(rows, rows[0])
        for each in scores[0].worst(worst):
            _show(each)
    if least is not None and scores[0].gain < least:
        err.print(f"nDCG is {scores[0].gain:.3f} by {scores[0].by}; {least:g} is the least", highlight=False)
        raise typer.Exit(1)


async def _evaluated(
    config: Config,
    asked: "Sequence[Judged]",
    ways: "Sequence[Retrieval]",
    depth: int,
    collections: Sequence[str],
    api_key: str | None,
    *,
    quiet: bool,
) -> "list[Scores]":
    from portico.cli.evaluation import evaluate, unknown_items  # noqa: PLC0415
    from portico.server.assembly import opened_site  # noqa: PLC0415

    async with opened_site(config, background=False, serves=False) as parts:
        caller = await caller_of(parts, api_key)
        for name in collections:
            parts.site.catalog.collection(name)  # raises if there is none
        ways = _possible(ways, parts.site.finds_by_meaning)
        _warn(await unknown_items(parts.site, caller, asked))
        scores: list[Scores] = []
        for way in ways:
            with Bar(way, quiet) as bar:
                told = _progress(bar, len(asked))
                scores.append(
                    await evaluate(parts.site, caller, asked, by=way, depth=depth, collections=collections, told=told)
                )
        return scores


def _possible(ways: "Sequence[Retrieval]", by_meaning: bool) -> "Sequence[Retrieval]":
    """A site without an embedder finds by words alone, whatever it is asked for: that is no comparison."""
    if by_meaning or "vectors" not in ways:
        return ways
    if len(ways) == 1:
        raise ConfigError("This site finds nothing by meaning", hint="Name an embedder in [search], or use --by text.")
    return ("text",)


def _progress(bar: Bar, total: int) -> Callable[[int], None]:
    started = time.monotonic()
    return lambda done: bar.share(done, total, done / max(time.monotonic() - started, 1e-3))


def _warn(missing: Sequence[str]) -> None:
    if missing:
        says = f"Not on the site, though they should be found: {_some(missing)} ({len(missing)} in all)"
        err.print(f"[yellow]{plain(says)}[/]", highlight=False, soft_wrap=True)


def _means(scores: "Scores") -> dict[str, Any]:
    return {
        "by": scores.by,
        "ndcg": round(scores.gain, 3),
        "recall": round(scores.recall, 3),
        "first": round(scores.first, 3),
        "ms": round(scores.seconds * 1000, 1),
        "questions": len(scores.results),
    }


def _shown(result: "Result") -> dict[str, Any]:
    means = {"ndcg": round(result.gain, 3), "recall": round(result.recall, 3), "first": round(result.first, 3)}
    return {"question": result.judged.text, **means, "found": result.found, "items": result.judged.grades}


def _show(result: "Result") -> None:
    """A question that was not answered well: what came first, and what should have."""
    out.print(f"\n{plain(result.judged.text)}  [dim]{result.gain:.2f}[/]", highlight=False, soft_wrap=True)
    for title, refs in (("found", result.found), ("right", result.judged.right)):
        out.print(f"  [dim]{title}[/]  {plain(_some(refs) or 'nothing')}", highlight=False, soft_wrap=True)


def _some(refs: Sequence[str]) -> str:
    return ", ".join(refs[:SHOWN]) + (", …" if len(refs) > SHOWN else "")
