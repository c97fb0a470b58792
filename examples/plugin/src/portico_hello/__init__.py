"""A protocol of one path: it says hello, and names what it finds."""

from typing import Final

import msgspec

from portico.protocols import Example, Protocol

PATH: Final = "/hello"


class HelloSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """[hello]"""

    greeting: str = "Hello"  # what an answer begins with


PROTOCOL: Final = Protocol(
    name="hello",
    title="Hello",
    settings=HelloSettings,
    mount="portico_hello.routes:mount",
    describe="portico_hello.routes:describe",
    paths=lambda _: (PATH,),
    examples=lambda _: (Example("Hello", PATH, "curl '{base}/hello?q=a+warm+soup'"),),
)
