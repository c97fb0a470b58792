"""Parses internet addresses, groups them by network, and tests whether they belong to trusted networks. Joins URLs.

Knows no protocol and opens no connection.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any, TypeAlias
from urllib.parse import urljoin, urlsplit

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

HOST = re.compile(r"(?:[\w.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?", re.ASCII)  # a name or address, and a port
MAPPED_PREFIX = 96  # bits of an IPv6 address before the IPv4 address that is mapped into it


def parse_address(text: str) -> Address | None:
    """Return the address, or None if the text is none. ::ffff:192.0.2.1 is 192.0.2.1; a zone is ignored."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def parse_network(text: str) -> Network:
    """Return an address or a network such as 10.0.0.0/8 as a network; raise ValueError if the text is neither."""
    network = ip_network(text)
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    if mapped and network.prefixlen >= MAPPED_PREFIX:
        return IPv4Network((mapped, network.prefixlen - MAPPED_PREFIX))
    return network


def network_of(address: str) -> str:
    """Return what counts as one address: an IPv4 address, or the /64 network of IPv6 that one subscriber has."""
    if ":" not in address:
        return address
    parsed = parse_address(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, 64), strict=False))
    return str(parsed or address)


class TrustedNetworks:
    """A set of networks that the site trusts."""

    def __init__(self, networks: Iterable[str]) -> None:
        self._networks = tuple(map(parse_network, networks))

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        if not self._networks:
            return False
        parsed = parse_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)


def join_url(base: str, reference: str) -> str:
    """Return a reference joined to a base, or as it is where they make no URL: people write `http://[your site]`."""
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def url_path(url: str) -> str:
    """Return the path of a URL, or all of a text that is no URL."""
    try:
        return urlsplit(url).path
    except ValueError:
        return url


def absolute(url: Any, base: str) -> str | None:
    """Return the absolute URL for a link, or None for anything but http and https."""
    if not isinstance(url, str) or not url.strip():
        return None
    try:
        joined = urljoin(f"{base}/", url.strip())
        parts = urlsplit(joined)
    except ValueError:
        return None
    return joined if parts.scheme in {"http", "https"} and parts.hostname else None
