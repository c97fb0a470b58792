"""The command `portico call`: runs an operation of a site, or lists them."""

import asyncio
import json
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from portico.cli.options import JsonOption, KeyOption, LogLevelOption, SiteOption, StoreOption, parse_json
from portico.cli.sites import caller_of, load_config
from portico.cli.terminal import ProgressBar, err, plain, print_json, show_table
from portico.config import Config
from portico.errors import InvalidQuery, OperationFailed
from portico.redaction import redact_text

if TYPE_CHECKING:
    from portico.catalog import Operation
    from portico.requests import Call, Outcome, Task
    from portico.telemetry import LogLevel, Recorder


def call(
    operation: Annotated[
        str | None,
        typer.Argument(help="Name of the operation. Without one, all operations are listed.", show_default=False),
    ] = None,
    params: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", help="Parameters, or a single JSON object.", show_default=False),
    ] = None,
    later: Annotated[bool, typer.Option(help="Start a task and return; a running server does the work.")] = False,
    key: Annotated[
        str,
        typer.Option(
            help="Idempotency key: repeating the call within a day has no further effect.", show_default=False
        ),
    ] = "",
    site: SiteOption = None,
    store: StoreOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Run an operation of the site.

    portico call get_recipe id=recipes/lemon-barley-soup

    portico call book_table '{"restaurant": "restaurants/kelp", "people": 2, "time": "2026-12-05T19:00"}'
    """
    from portico.operations import LOG_HINT
    from portico.requests import Call

    config = load_config(site, store)
    if operation is None:
        asyncio.run(_list_operations(config, as_json))
        return
    request = Call(operation, run="later" if later else "auto", key=key)
    level = log_level or config.server.log_level
    try:
        outcome: Outcome | Task = asyncio.run(
            _call(config, request, params or [], api_key, _failure_printer(level), quiet=as_json)
        )
    except OperationFailed as error:
        if error.hint == LOG_HINT:  # a command writes no log
            error.hint = None if level == "debug" else "Add --log-level debug to see the traceback."
        raise
    _show_outcome(outcome)


async def _list_operations(config: Config, as_json: bool) -> None:
    from portico.operations import schema_of
    from portico.server.assembly import open_site_without_index

    async with open_site_without_index(config) as parts:
        operations = sorted(parts.site.catalog.operations.values(), key=lambda operation: operation.name)
        rows = [
            {"operation": o.name, "kind": o.kind.value, "danger": o.danger.name.lower(), "does": o.summary}
            for o in operations
        ]
        if as_json:
            print_json([{**row, "params": schema_of(o.params)} for row, o in zip(rows, operations, strict=True)])
        else:
            show_table(rows, ["operation", "kind", "danger", "does"])


def _params(raw: list[str], operation: "Operation") -> dict[str, Any]:
    if len(raw) == 1 and raw[0].lstrip().startswith("{"):
        return cast("dict[str, Any]", parse_json(raw[0], "The parameter object"))
    params: dict[str, Any] = {}
    for argument in raw:
        name, equals, value = argument.partition("=")
        if not equals:
            raise InvalidQuery(f"{argument!r} is not a parameter", hint="Write name=value, or a single JSON object.")
        params[name] = _value(value, name, operation)
    return params


def _value(raw: str, name: str, operation: "Operation") -> Any:
    """Return the value as text if the schema asks for a string; else parsed, if it is JSON."""
    from portico.operations import schema_of

    schema = schema_of(operation.params)
    target = schema.get("$defs", {}).get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    if target.get("properties", {}).get(name, {}).get("type") == "string":
        return raw
    try:
        return json.loads(raw)
    except ValueError:
        return raw


def _failure_printer(level: "LogLevel") -> "Recorder":
    """Return a recorder that prints unexpected failures, which a command would otherwise hide."""
    from portico.telemetry import TelemetryEvent, UnexpectedError

    def show(event: TelemetryEvent) -> None:
        if not isinstance(event, UnexpectedError):
            return
        err.print(f"[bold red]{plain(event.where)}:[/] {plain(redact_text(event.error))}", highlight=False)
        if event.cause and level == "debug":
            trace = redact_text("".join(traceback.format_exception(event.cause)))
            err.print(plain(trace), highlight=False, soft_wrap=True)

    return show


async def _call(
    config: Config, request: "Call", params: list[str], api_key: str | None, record: "Recorder", *, quiet: bool
) -> Any:
    from portico.requests import Task
    from portico.server.assembly import open_site

    wait = request.run != "later"
    async with open_site(config, record=record, background=wait, serves=False) as parts:
        caller = await caller_of(parts, api_key)
        values = _params(params, parts.site.catalog.operation(request.operation))
        outcome = await parts.site.call(replace(request, params=values), caller)
        if not wait or not isinstance(outcome, Task):
            return outcome
        with ProgressBar(request.operation, quiet) as bar:
            while not outcome.state.is_final:
                outcome = await parts.site.tasks.wait(outcome.id, caller, 0.3)
                bar.update(round(outcome.progress * 100), 100, 0.0)
        return outcome


def _show_outcome(outcome: "Outcome | Task") -> None:
    from portico.operations.builtin import render_task
    from portico.requests import Task, TaskState

    if not isinstance(outcome, Task):
        print_json(outcome.result)
        return
    if outcome.state == TaskState.COMPLETED:
        print_json(outcome.result)
        return
    print_json(render_task(outcome))
    if outcome.state.is_final:
        raise typer.Exit(1)
