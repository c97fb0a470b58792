"""Pictures of items: where they are, and from which hosts a page may load them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from portico.web.addresses import absolute, is_own

ANY_HOST: Final = "https:"
MAX_ELEMENTS = 50  # of a list of pictures
_DEPTH = 3

Members: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PictureHosts:
    """The hosts, beside the site itself, whose pictures its pages load: none by default."""

    names: tuple[str, ...] = ()  # of hosts, or `https:` for all

    def allow(self, url: str, base: str) -> bool:
        """Return whether a page loads the picture at an absolute URL."""
        if is_own(url, base):
            return True
        parts = urlsplit(url)
        is_plain = parts.scheme == "https" and parts.netloc.lower() == parts.hostname
        return parts.scheme == "https" and (ANY_HOST in self.names or (is_plain and parts.hostname in self.names))

    @property
    def policy(self) -> str:
        """Return the sources for `img-src` of a Content-Security-Policy, each after a space."""
        return "".join(f" {name if name == ANY_HOST else f'https://{name}'}" for name in self.names)


OWN_PICTURES: Final = PictureHosts()


def pictures(data: Members, base: str) -> Iterator[str]:
    """Yield the URLs of all pictures of an item, on this site and elsewhere."""
    for name in ("image", "thumbnailUrl", "logo"):
        yield from filter(None, (absolute(url, base) for url in _addresses(data.get(name), _DEPTH)))


def picture(data: Members, base: str, hosts: PictureHosts = OWN_PICTURES) -> str:
    """Return the first picture that a page may load; empty if there is none."""
    return next((url for url in pictures(data, base) if hosts.allow(url, base)), "")


def image_tag(src: str, style: str, base: str, alt: str = "") -> str:
    """Render a picture. Another host learns nothing of the page that shows it."""
    referrer = "" if is_own(src, base) else ' referrerpolicy="no-referrer"'
    return f'<img class="{style}" src="{escape(src)}" alt="{escape(alt)}" loading="lazy"{referrer}>'


def _addresses(value: Any, depth: int) -> Iterator[Any]:
    match value:
        case str():
            yield value
        case list() if depth:
            for item in cast("list[Any]", value)[:MAX_ELEMENTS]:
                yield from _addresses(item, depth - 1)
        case Mapping() if depth:
            inner = cast("Members", value)
            yield from _addresses(inner.get("url") or inner.get("contentUrl") or inner.get("@id"), depth - 1)
        case _:
            pass
