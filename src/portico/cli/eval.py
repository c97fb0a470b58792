"""The command `portico eval`: measures how well a site answers questions whose relevant items are known."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from portico.cli.options import JsonOption, KeyOption, SiteOption, StoreOption
from portico.cli.sites import caller_of, load_config, require_store
from portico.cli.terminal import ProgressBar, err, out, plain, print_json, show_table
from portico.config import Config
from portico.errors import ConfigError

if TYPE_CHECKING:
    from portico.cli.evaluation import JudgedQuestion, QuestionResult, Scores
    from portico.requests import Retrieval

Way: TypeAlias = Literal["hybrid", "text", "vectors", "all"]
MAX_REFS = 3  # refs of a question that are printed


def evaluate(
    questions: Annotated[
        Path,
        typer.Argument(metavar="QUESTIONS", help="A JSON Lines file, or a folder with queries.jsonl and qrels.tsv."),
    ],
    by: Annotated[Way, typer.Option(help="Retrieval method to evaluate.")] = "hybrid",
    limit: Annotated[int, typer.Option(min=1, max=100, help="Number of items of an answer that count.")] = 10,
    collection: Annotated[
        list[str] | None, typer.Option("--collection", "-c", help="Search only this collection.", show_default=False)
    ] = None,
    worst: Annotated[int, typer.Option(min=0, help="Number of the worst answered questions to print.")] = 3,
    least: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Exit with 1 if nDCG is below this.", show_default=False)
    ] = None,
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how well the site answers questions whose relevant items are known.

    A line of the file is {"question": "a warm soup", "items": ["recipes/lemon-barley-soup"]}. nDCG is 1 if the
    relevant items come first; recall is the share of them that was found; first is 1 if the first item is relevant.

        portico eval questions.jsonl --by all --worst 5

        portico eval questions.jsonl --least 0.8
    """
    # Imported here: help and other commands need no site.
    from portico.cli.evaluation import read_questions

    cases = read_questions(questions)
    config = require_store(load_config(site, store))
    ways: tuple[Retrieval, ...] = ("hybrid", "text", "vectors") if by == "all" else (by,)
    scores = asyncio.run(_evaluate_all(config, cases, ways, limit, collection or (), api_key, quiet=as_json))
    if as_json:
        print_json(
            [{**_means(score), "results": [_result_row(result) for result in score.results]} for score in scores]
        )
    else:
        names = {"ndcg": f"nDCG@{limit}", "recall": f"recall@{limit}"}
        rows = [{names.get(name, name): value for name, value in _means(score).items()} for score in scores]
        show_table(rows, rows[0])
        for result in scores[0].worst(worst):
            _print_result(result)
    if least is not None and scores[0].ndcg < least:
        err.print(f"nDCG is {scores[0].ndcg:.3f} by {scores[0].by}, below the minimum of {least:g}", highlight=False)
        raise typer.Exit(1)


async def _evaluate_all(
    config: Config,
    cases: "Sequence[JudgedQuestion]",
    ways: "Sequence[Retrieval]",
    depth: int,
    collections: Sequence[str],
    api_key: str | None,
    *,
    quiet: bool,
) -> "list[Scores]":
    from portico.cli.evaluation import evaluate, unknown_items
    from portico.server.assembly import open_site

    async with open_site(config, background=False, serves=False) as parts:
        caller = await caller_of(parts, api_key)
        for name in collections:
            parts.site.catalog.collection(name)  # raises if it does not exist
        ways = _possible(ways, parts.site.finds_by_meaning)
        if missing := await unknown_items(parts.site, caller, cases):
            says = f"Relevant items that do not exist: {_some(missing)} ({len(missing)} in all)"
            err.print(f"[yellow]{plain(says)}[/]", highlight=False, soft_wrap=True)
        scores: list[Scores] = []
        for way in ways:
            with ProgressBar(way, quiet) as bar:
                on_progress = _progress(bar, len(cases))
                scores.append(
                    await evaluate(
                        parts.site, caller, cases, by=way, depth=depth, collections=collections, on_progress=on_progress
                    )
                )
        return scores


def _possible(ways: "Sequence[Retrieval]", by_meaning: bool) -> "Sequence[Retrieval]":
    """Return the methods that can be compared: without an embedder, all of them search by words alone."""
    if by_meaning or "vectors" not in ways:
        return ways
    if len(ways) == 1:
        raise ConfigError("This site has no embedder", hint="Configure one in [search], or use --by text.")
    return ("text",)


def _progress(bar: ProgressBar, total: int) -> Callable[[int], None]:
    started = time.monotonic()
    return lambda done: bar.update(done, total, done / max(time.monotonic() - started, 1e-3))


def _means(scores: "Scores") -> dict[str, Any]:
    return {
        "by": scores.by,
        "ndcg": round(scores.ndcg, 3),
        "recall": round(scores.recall, 3),
        "first": round(scores.first, 3),
        "ms": round(scores.seconds * 1000, 1),
        "questions": len(scores.results),
    }


def _result_row(result: "QuestionResult") -> dict[str, Any]:
    means = {"ndcg": round(result.ndcg, 3), "recall": round(result.recall, 3), "first": round(result.first, 3)}
    return {"question": result.question.text, **means, "found": result.refs, "items": result.question.grades}


def _print_result(result: "QuestionResult") -> None:
    """Print a question, the items found and the relevant ones."""
    out.print(f"\n{plain(result.question.text)}  [dim]{result.ndcg:.2f}[/]", highlight=False, soft_wrap=True)
    for title, refs in (("found", result.refs), ("relevant", result.question.relevant)):
        out.print(f"  [dim]{title}[/]  {plain(_some(refs) or 'nothing')}", highlight=False, soft_wrap=True)


def _some(refs: Sequence[str]) -> str:
    return ", ".join(refs[:MAX_REFS]) + (", …" if len(refs) > MAX_REFS else "")
