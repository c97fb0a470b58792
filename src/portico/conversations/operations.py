"""The operations with which callers have preferences remembered, listed and forgotten."""

from typing import Annotated

import msgspec
from msgspec import Meta

from portico.access.identity import for_user, names_user
from portico.ask.operation import User
from portico.catalog import Kind, Operation
from portico.conversations.memories import CHARACTERS, MOST, Memories, Memory
from portico.errors import InvalidParams, Unauthenticated
from portico.operations import Context, Counted

CREATE, LIST, FORGET = "create_memories", "list_memories", "forget_memories"


class ListMemoriesParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    user: User = ""


class CreateMemoriesParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    preferences: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=CHARACTERS)], ...],
        Meta(min_length=1, max_length=MOST, description="What counts in your later questions, as in vegetarian"),
    ]
    user: User = ""


class ForgetMemoriesParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str = ""
    user: User = ""
    all_users: Annotated[bool, Meta(description="Forget everything of all your users, but not what is yours")] = False


def memory_operations(memories: Memories) -> list[Operation]:
    async def create_memories(context: Context, params: CreateMemoriesParams) -> list[Memory]:
        if context.caller.is_anonymous:
            raise Unauthenticated("Memories are kept for callers with a key", hint="Send an API key.")
        caller = for_user(context.caller, params.user)
        await memories.keep(caller, "preference", params.preferences)
        return await memories.of(caller)

    async def list_memories(context: Context, params: ListMemoriesParams) -> list[Memory]:
        return await memories.of(for_user(context.caller, params.user))

    async def forget_memories(context: Context, params: ForgetMemoriesParams) -> Counted:
        if not params.all_users:
            return Counted(await memories.forget(for_user(context.caller, params.user), params.id))
        if params.id or names_user(params.user):
            raise InvalidParams(
                "forget_memories: `all_users` cannot be combined with `id` or `user`",
                operation=FORGET,
                param="all_users",
                hint="Leave out `all_users`, or `id` and `user`.",
            )
        return Counted(await memories.forget_users(context.caller))

    return [
        Operation(
            CREATE,
            Kind.CREATE,
            "Have preferences of yours remembered, for later questions.",
            CreateMemoriesParams,
            list[Memory],
            create_memories,
            open=True,
            idempotent=True,  # what is known already is not stored twice
        ),
        Operation(
            LIST,
            Kind.READ,
            "List what is remembered of you, or of one of your users, because you asked for it.",
            ListMemoriesParams,
            list[Memory],
            list_memories,
            open=True,
        ),
        Operation(
            FORGET,
            Kind.EXECUTE,
            "Forget one thing that is remembered of you or of a user of yours, all of it, or all of all your users.",
            ForgetMemoriesParams,
            Counted,
            forget_memories,
            open=True,
        ),
    ]
