"""What machines read to find out what the site is and how to talk to it."""

from starlette.requests import HTTPConnection

from portico.protocols.http import caller_of
from portico.protocols.rest.operations import Answer, Endpoint, Who, answering, metered
from portico.requests import Caller
from portico.site import Site


def published(endpoint: Endpoint, site: Site, who: Who = caller_of) -> Answer:
    """A document of the site. Whoever reads it pays for one request; errors are problem details."""
    return answering(metered(endpoint, site), site, who=who)


async def anybody(connection: HTTPConnection, site: Site) -> Caller:
    """A reader without a name, whatever it sends along: for what is told to all alike."""
    return site.identity.nobody(connection.client.host if connection.client else "")
