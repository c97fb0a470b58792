"""GET /hello?q=a+warm+soup: one line of text. Errors are problem details, as usual."""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from portico.ask.events import ItemEvent
from portico.errors import BadRequest
from portico.protocols import Description, LlmsLink, Mounted, OpenApi, Services
from portico.protocols.openapi import QUESTIONS, TEXT, content, operation, parameter, problems, response
from portico.protocols.problems import make_handler
from portico.requests import Ask, Caller
from portico_hello import PATH, HelloSettings


def mount(services: Services) -> Mounted:
    greeting = services.config.section(HelloSettings).greeting

    async def hello(request: Request, caller: Caller) -> Response:
        question = request.query_params.get("q", "")
        if not question:
            raise BadRequest("`q` is missing", hint="Ask with /hello?q=a+warm+soup.")
        events = services.site.ask(Ask(question), caller)
        names = [str(event.item.data.get("name")) async for event in events if isinstance(event, ItemEvent)]
        return PlainTextResponse(f"{greeting}! {', '.join(names) or 'Nothing found'}.\n")

    return Mounted(routes=[Route(PATH, make_handler(hello), methods=["GET"])])


def describe(_: Services) -> Description:
    return Description(openapi=_openapi, links=(LlmsLink("Ask", f"- [Hello]({{base}}{PATH}): one line of text."),))


def _openapi(question: str) -> OpenApi:
    query = {**parameter("q", "query", {**TEXT, "description": "The question"}, required=True), "example": question}
    answers = {200: response("One line", content(TEXT, "text/plain")), **problems(400, 401, 403, 429, 503)}
    return OpenApi(paths={PATH: {"get": operation("get_hello", QUESTIONS, "Say hello", answers, parameters=[query])}})
