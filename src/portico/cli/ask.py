"""The command `portico ask`: asks a site in plain words, here or on a server."""

from functools import partial
from typing import Annotated

import typer

from portico.cli.options import JsonOption, KeyOption, SiteOption, StoreOption
from portico.cli.sites import caller_of, load_config, require_store


def ask(
    question: Annotated[
        str | None,
        typer.Argument(help="Your question. Without one, an interactive conversation starts.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of items.")] = 10,
    collection: Annotated[
        list[str] | None, typer.Option("--collection", "-c", help="Search only this collection.", show_default=False)
    ] = None,
    summarize: Annotated[bool, typer.Option("--summarize", help="Add a summary of the results.")] = False,
    generate: Annotated[bool, typer.Option("--generate", help="Add an answer in prose, based on the results.")] = False,
    prev: Annotated[
        list[str] | None, typer.Option(help="An earlier question of the conversation.", show_default=False)
    ] = None,
    language: Annotated[
        str, typer.Option(help="Language of the answer, such as de or pt-BR.", show_default=False)
    ] = "",
    url: Annotated[str | None, typer.Option(help="Ask a running server.", show_default=False)] = None,
    over: Annotated[str, typer.Option(help="Protocol to ask over: http, mcp or a2a.")] = "http",
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a question in plain words, and print the items that answer it best.

    portico ask "vegetarian dinner under 30 minutes" --summarize

    portico ask "something quicker" --prev "vegetarian dinner" --url http://127.0.0.1:8000

    portico ask "a quiet pub" --url http://127.0.0.1:8000 --over mcp
    """
    from portico.cli.conversation import carrier_for, connect_to_server, converse, open_local_site
    from portico.client import Options

    flags = {"summarize": summarize, "generate": generate}
    options = Options(
        limit=limit,
        site=",".join(collection or ()),
        modes=("list", *(mode for mode, is_wanted in flags.items() if is_wanted)),
        previous=tuple(prev or ()),
        language=language,
    )
    carrier = carrier_for(over)
    if url:
        opening = connect_to_server(url, api_key, carrier)
    else:
        opening = open_local_site(
            require_store(load_config(site, store)), collection or (), partial(caller_of, api_key=api_key), carrier
        )
    converse(opening, question, options, as_json=as_json)
