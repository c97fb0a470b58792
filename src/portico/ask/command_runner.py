"""Runs the operation that a question commands. Fills its parameters from the words, the answers and the items."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from portico.ask.clarification import MAX_OPTIONS, labels, match_answer, match_hint, match_names
from portico.ask.commands import (
    CONFIRM,
    Command,
    ItemChoice,
    accepts_item,
    find_operation,
    item_hint,
    needs_confirmation,
    parameter_for,
    questions_for,
    read_command,
    render_param,
    shape_of,
)
from portico.ask.events import (
    ClarificationEvent,
    Constraint,
    EndEvent,
    Event,
    InterpretationEvent,
    OperationEvent,
    TaskEvent,
)
from portico.ask.item_finder import ItemFinder
from portico.ask.languages.localization import Phrases
from portico.ask.outcomes import ids_in
from portico.ask.understanding.fields import words_of
from portico.ask.understanding.request_attributes import is_no, is_yes
from portico.catalog import Catalog, Operation
from portico.errors import TaskCancelled
from portico.items import Item, title_of
from portico.query import Query
from portico.requests import Ask, Call, Outcome, Task
from portico.search.finder import SearchTarget

NAME_SEARCH_DEPTH = 20  # hits that may be the item that a command names
MAX_OFFERED = 24  # items; if a command may be about more of them, none are offered
SCAN_LIMIT = 100  # items that are looked through for those
MAX_ANSWER = 2000  # characters

RunOperation: TypeAlias = Callable[[Call], Awaitable[Outcome | Task]]
MayRun: TypeAlias = Callable[[Operation], bool]


@dataclass(frozen=True, slots=True)
class AskContext:
    """What the pipeline may read and do on behalf of a caller."""

    collections: tuple[str, ...]
    may: MayRun
    act: RunOperation
    later: Callable[[], Awaitable[Task]] | None  # answers the same question as a task
    may_use_model: Callable[[], Awaitable[bool]]  # whether one more call of a model is in the allowance
    revision: int


class CommandRunner:
    """Turns a question that is a command into a call of its operation."""

    def __init__(self, items: ItemFinder, catalog: Callable[[], Catalog]) -> None:
        self._items = items
        self._catalog = catalog

    async def run(self, ask: Ask, context: AskContext, phrases: Phrases) -> AsyncGenerator[Event]:
        """Run the operation that a question commands, or ask for what it needs.

        Yields no event if the question is not a command.
        """
        operations = self._catalog().operations.values() if ask.may_act else ()
        operation = find_operation(ask.text, operations, context.may)
        if operation is None:
            return
        answers = {**ask.filters, **ask.answers}
        command = read_command(operation, ask.text, answers, datetime.now(UTC).date(), phrases.language)
        command = await self._with_items(command, ask.text, context, phrases)
        confirmed = ask.answers.get(CONFIRM)
        unsure = needs_confirmation(operation) and not is_yes(confirmed)
        is_open = (bool(command.missing) or unsure) and not is_no(confirmed)
        if is_open and not ask.may_clarify:
            return
        constraints = tuple(
            Constraint(name, f"{words_of(name)}: {render_param(value, phrases)}", "")
            for name, value in command.display_params.items()
        )
        ignored = tuple(f"query.{name[:100]}" for name in ask.filters if name not in command.params)
        yield InterpretationEvent(ask.text, (), constraints, ignored, phrases.language)
        if is_open:
            # Missing parameters first: a confirmation shows all of them.
            why = phrases.needs if command.missing else phrases.before_doing
            yield ClarificationEvent(why, questions_for(command, phrases, confirm=not command.missing))
            return
        if is_no(confirmed):
            raise TaskCancelled(phrases.cancelled)
        outcome = await context.act(Call(operation.name, command.params, key=ask.key))
        if isinstance(outcome, Task):
            yield TaskEvent(outcome)
        else:
            yield OperationEvent(
                outcome.operation, outcome.result, await self.find_items(outcome.result, context.collections)
            )
            yield EndEvent(1)

    async def find_items(self, result: Any, readable: Sequence[str]) -> tuple[Item, ...]:
        """Return the items that a result names by their ids, out of the collections that the caller may read."""
        collections = self._catalog().collections
        ids_by_collection = ids_in(result, [collections[name] for name in readable])
        batches = [await self._items.get_many(name, ids) for name, ids in ids_by_collection.items()]
        return tuple(item for items in batches for item in items)

    async def _with_items(self, command: Command, text: str, context: AskContext, phrases: Phrases) -> Command:
        """Replace names of items by their ids in the parameters that are named after a kind of item."""
        properties, _ = shape_of(command.operation)
        for collection in (self._catalog().collections[name] for name in context.collections):
            name = parameter_for(properties, collection.one)
            if name and isinstance(value := command.params.get(name), str) and value:
                command = await self._with_answer(command, name, collection.name, context.revision, phrases)
            elif name in command.missing:
                command = await self._with_item(command, name, collection.name, text, context.revision, phrases)
        return command

    async def _with_answer(
        self, command: Command, name: str, collection: str, revision: int, phrases: Phrases
    ) -> Command:
        """Fill a parameter with the item that an answer names by its ID or title."""
        answer = str(command.params[name])[:MAX_ANSWER]
        item = await self._items.get(collection, answer) if answer.isprintable() else None
        near = [] if item else await self._search_by_name(collection, answer, revision)
        matches = [item] if item else match_answer(answer, near)
        why = "" if matches else phrases.nothing_for(answer[:200])
        return await self._fill_or_ask(command, name, collection, matches, near, why, phrases)

    async def _with_item(
        self, command: Command, name: str, collection: str, text: str, revision: int, phrases: Phrases
    ) -> Command:
        """Fill a parameter with the item whose whole title stands in the command, or offer those that it hints at."""
        matches = match_names(text, await self._search_by_name(collection, text, revision))
        hint = "" if matches else item_hint(text, command.operation, datetime.now(UTC).date(), phrases.language)
        near = match_hint(hint, await self._search_by_name(collection, hint, revision)) if hint else []
        return await self._fill_or_ask(command, name, collection, matches, near, "", phrases)

    async def _fill_or_ask(
        self,
        command: Command,
        name: str,
        collection: str,
        matches: Sequence[Item],
        near: Sequence[Item],
        why: str,
        phrases: Phrases,
    ) -> Command:
        """Fill a parameter if exactly one acceptable item matches; else ask, with the best to choose from."""
        operation = command.operation
        accepted = [item for item in matches if accepts_item(operation, item)]
        if len(accepted) == 1:
            return command.with_item(name, accepted[0])
        if matches and not accepted:
            why = phrases.unbookable(title_of(matches[0].data) or matches[0].id)
        choices = accepted or [item for item in near if accepts_item(operation, item)]
        if not choices:
            page = await self._items.find(Query(collection, limit=SCAN_LIMIT))
            choices = [item for item in page.items if accepts_item(operation, item)]
            is_few = not page.cursor and len(choices) <= MAX_OFFERED
            return command.without_param(name, ItemChoice(labels(choices) if is_few else (), why))
        return command.without_param(name, ItemChoice(labels(choices)[:MAX_OPTIONS], why))

    async def _search_by_name(self, collection: str, text: str, revision: int) -> list[Item]:
        hits, _ = await self._items.find_across([SearchTarget(collection)], text, NAME_SEARCH_DEPTH, revision)
        return [hit.item for hit in hits]
