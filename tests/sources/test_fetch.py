"""The guarded way out: which addresses are refused, what a connection is pinned to, and what is bounded."""

import datetime
import gzip
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from portico.errors import BlockedAddress, SourceError
from portico.sources.fetch import USER_AGENT, Fetcher, is_public

PRIVATE = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "169.254.169.254", "100.64.0.1", "100.127.255.254", "192.0.0.8", "192.0.2.1", "198.18.0.1",
    "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1",
    "100::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8", "::7f00:1", "::10.0.0.1",
    "2002:7f00:1::", "2002:a00:1::1", "2002:c0a8:101::", "64:ff9b::7f00:1", "64:ff9b::10.0.0.1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "3fff::1", "2001:0:a00:1::1", "::ffff:0:127.0.0.1", "4000::1",
    "5f00::1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700::1111", "2002:808:808::1", "64:ff9b::8.8.8.8"]
SPELLINGS = [
    "127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "127.1", "127.0.1", "0",
    "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[0:0:0:0:0:0:0:1]", "[64:ff9b::127.0.0.1]",
    "localhost", "LOCALHOST", "localhost.", "169.254.169.254", "0xa9fea9fe", "2852039166", "[fe80::1]",
    "127.0.0.1.", "１２７.0.0.1", "127。0。0。1",
]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_known_as_such(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_known_as_such(address):
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("host", SPELLINGS)
def test_a_private_host_is_refused_however_it_is_spelled(web, host):
    port = web.url.rpartition(":")[2]

    with pytest.raises(SourceError) as refusal:
        Fetcher(timeout=2).get(f"http://{host}:{port}/")

    assert isinstance(refusal.value, BlockedAddress) or "not a URL" in refusal.value.message
    assert web.requests == []


def test_a_refusal_names_the_setting_that_would_allow_it(web):
    with pytest.raises(BlockedAddress, match="allow_hosts"):
        Fetcher().get(web.url)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_is_refused_when_one_of_its_addresses_is_private(address):
    fetcher = Fetcher(resolve=lambda host, port: ["93.184.216.34", address])

    with pytest.raises(BlockedAddress):
        fetcher.get("http://rebind.example/")


def test_a_host_may_be_allowed_with_or_without_its_port(web):
    url = web.serve("/a", "hello")
    port = url.split(":")[2].partition("/")[0]

    assert Fetcher(allow_hosts=["127.0.0.1"]).get(url) == b"hello"
    assert Fetcher(allow_hosts=[f"127.0.0.1:{port}"]).get(url) == b"hello"
    with pytest.raises(BlockedAddress):
        Fetcher(allow_hosts=["127.0.0.1:1"]).get(url)


def test_the_connection_goes_to_the_address_that_was_checked(web):
    web.serve("/a", "hello")
    port = web.url.rpartition(":")[2]
    asked: list[str] = []

    def resolve(host: str, _: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    fetcher = Fetcher(allow_hosts=["shop.test"], resolve=resolve)

    assert fetcher.get(f"http://shop.test:{port}/a") == b"hello"
    assert asked == ["shop.test"]
    assert web.headers[0]["Host"] == f"shop.test:{port}"
    assert web.headers[0]["User-Agent"] == USER_AGENT


@pytest.mark.parametrize(
    "url",
    ["ftp://x.example/", "file:///etc/passwd", "gopher://x", "http://", "http:///a", "http://user:pw@x.example/",
     "http://x.example:99999/", "//x.example/", "http://[::1", "javascript:alert(1)", ""],
)  # fmt: skip
def test_what_is_not_a_plain_web_address_is_refused(url):
    with pytest.raises(SourceError):
        Fetcher().get(url)


@pytest.mark.parametrize(
    "target", ["http://10.0.0.1/", "http://0x7f000002/", "http://[::1]/", "//169.254.169.254/latest"]
)
def test_a_redirect_to_a_private_address_is_refused(web, target):
    url = web.redirect("/a", target)

    with pytest.raises(BlockedAddress):
        Fetcher(allow_hosts=["127.0.0.1"]).get(url)


def test_a_redirect_to_another_scheme_is_refused(web):
    url = web.redirect("/a", "file:///etc/passwd")

    with pytest.raises(SourceError, match="neither http nor https"):
        Fetcher(allow_hosts=["127.0.0.1"]).get(url)


def test_redirects_are_followed_but_not_for_ever(web):
    fetcher = Fetcher(allow_hosts=["127.0.0.1"])
    web.serve("/5", "here")
    for step in range(5):
        web.redirect(f"/{step}", f"/{step + 1}")
    loop = web.redirect("/loop", "/loop")

    assert fetcher.get(f"{web.url}/0") == b"here"
    with pytest.raises(SourceError, match="redirects more than 5 times"):
        fetcher.get(loop)
    assert web.requests.count("/loop") == 6


def test_too_many_bytes_are_refused_packed_or_not(web):
    fetcher = Fetcher(allow_hosts=["127.0.0.1"], max_bytes=1000)
    bomb = gzip.compress(b"x" * 50_000_000)

    with pytest.raises(SourceError, match="larger than 1000 bytes"):
        fetcher.get(web.serve("/a", "x" * 1001))
    with pytest.raises(SourceError, match="larger than 1000 bytes"):
        fetcher.get(web.serve("/b", bomb, Content_Encoding="gzip"))
    assert fetcher.get(web.serve("/c", gzip.compress(b"fine"), Content_Encoding="gzip")) == b"fine"


def test_an_encoding_that_was_not_asked_for_is_refused(web):
    fetcher = Fetcher(allow_hosts=["127.0.0.1"])

    with pytest.raises(SourceError, match="encoded as 'br'"):
        fetcher.get(web.serve("/a", b"?", Content_Encoding="br"))
    with pytest.raises(SourceError, match="not valid gzip"):
        fetcher.get(web.serve("/b", b"?", Content_Encoding="gzip"))


def test_an_error_status_is_an_error(web):
    with pytest.raises(SourceError, match="returned status 404"):
        Fetcher(allow_hosts=["127.0.0.1"]).get(f"{web.url}/nothing")


def test_a_proxy_in_the_environment_is_not_used(web, monkeypatch: pytest.MonkeyPatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    assert Fetcher(allow_hosts=["127.0.0.1"]).get(web.serve("/a", "direct")) == b"direct"


def test_a_name_that_cannot_be_resolved_is_a_source_error():
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror("unknown")

    with pytest.raises(SourceError, match="cannot be resolved"):
        Fetcher(resolve=resolve).get("http://nowhere.example/")


def test_a_server_that_feeds_its_headers_byte_by_byte_is_left_at_the_deadline():
    with serving(drip) as port:
        begun = time.monotonic()
        with pytest.raises(SourceError, match="cannot be read"):
            Fetcher(allow_hosts=["127.0.0.1"], timeout=5, deadline=0.4).get(f"http://127.0.0.1:{port}/")
        assert time.monotonic() - begun < 60  # long before the last of its headers


def test_tls_verifies_the_name_although_the_connection_goes_to_an_address(tmp_path: Path):
    server, client = certificates(tmp_path, "shop.test")

    def answer(connection: socket.socket) -> None:
        with server.wrap_socket(connection, server_side=True) as secured:
            secured.recv(4096)
            secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    allowed = ["shop.test", "other.test", "127.0.0.1"]
    fetcher = Fetcher(allow_hosts=allowed, resolve=lambda host, port: ["127.0.0.1"], tls=client, timeout=5)
    with serving(answer) as port:
        assert fetcher.get(f"https://shop.test:{port}/") == b"ok"
        for host in ("other.test", "127.0.0.1"):
            with pytest.raises(SourceError, match="certificate"):
                fetcher.get(f"https://{host}:{port}/")
        with pytest.raises(SourceError, match="certificate"):
            Fetcher(allow_hosts=allowed, resolve=lambda host, port: ["127.0.0.1"]).get(f"https://shop.test:{port}/")


def drip(connection: socket.socket) -> None:
    connection.recv(4096)
    for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 5000:
        connection.sendall(bytes([byte]))
        time.sleep(0.02)


@contextmanager
def serving(answer) -> Iterator[int]:
    """A server that treats each connection as it is told, until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                answer(connection)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def certificates(folder: Path, host: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + pem)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem")
    return server, ssl.create_default_context(cadata=pem.decode())
