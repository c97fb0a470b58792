"""Visits a site with the previous major of the MCP SDK, and prints what it saw as JSON.

Runs in an environment of its own: `older_client.py PLAN`, with the plan of a visit as JSON (see test_mcp_clients.py).
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


@asynccontextmanager
async def connected(plan: dict[str, Any], forms: list[Any]) -> AsyncIterator[ClientSession]:
    async def fill_in(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        forms.append(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        return types.ElicitResult(action="accept", content=plan["form"])

    command = plan["command"]
    transport = (
        stdio_client(StdioServerParameters(command=command[0], args=command[1:]))
        if command
        else streamable_http_client(plan["url"])
    )
    async with transport as streams, ClientSession(streams[0], streams[1], elicitation_callback=fill_in) as session:
        yield session


async def visit(plan: dict[str, Any]) -> dict[str, Any]:
    forms: list[Any] = []
    async with connected(plan, forms) as session:
        initialized = await session.initialize()

        async def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
            told: list[str | None] = []

            async def hear(_: float, __: float | None, message: str | None) -> None:
                told.append(message)

            result = await session.call_tool(name, arguments, progress_callback=hear)
            return {**plain(result), "progress": told}

        template = types.ResourceTemplateReference(type="ref/resource", uri=plan["template"])
        promise = await call("ask", plan["promising"])
        token = promise["structuredContent"]["promise"]["token"]
        checked_in = await call("await", {"promise_token": token, "action": "checkin"})
        cancelled = await call("await", {"promise_token": token, "action": "cancel"})
        return {
            "revision": initialized.protocolVersion,
            "tools": plain(await session.list_tools())["tools"],
            "answers": [await call("ask", each) for each in plan["asks"]],
            "asked_back": await call("ask", plan["vague"]),
            "forms": forms,
            "promise": promise,
            "checked_in": checked_in,
            "cancelled": cancelled,
            "resources": plain(await session.list_resources())["resources"],
            "templates": plain(await session.list_resource_templates())["resourceTemplates"],
            "read": plain(await session.read_resource(plan["resource"]))["contents"],
            "prompts": plain(await session.list_prompts())["prompts"],
            "prompt": plain(await session.get_prompt(*plan["prompt"]))["messages"],
            "completed": plain(await session.complete(template, plan["begun"]))["completion"],
        }


def plain(result: Any) -> dict[str, Any]:
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(visit(json.loads(sys.argv[1])))))
