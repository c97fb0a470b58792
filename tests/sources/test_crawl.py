"""Crawling a site and following a sitemap: manners, bounds, hostile servers."""

import gzip

import pytest

from portico.errors import SourceError
from portico.sources.crawl import canonical, read_site
from portico.sources.fetch import Fetcher
from portico.sources.registry import BadRecord, SourceOptions


def page(title: str, *links: str, head: str = "") -> str:
    anchors = "".join(f'<a href="{link}">go</a>' for link in links)
    return f"<title>{title}</title>{head}<main><p>Text of {title}.</p>{anchors}</main>"


def urlset(*urls: str) -> str:
    inner = "".join(f"<url><loc> {url} </loc><image><loc>x</loc></image></url>" for url in urls)
    return f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{inner}</urlset>'


def test_a_site_is_crawled_breadth_first_and_each_page_once(read, web):
    web.serve("/", page("Home", "/a", "b#part", "/a?utm_source=x", "mailto:a@b", "//other.example/", "/p.jpg"))
    web.serve("/a", page("A", "/", "/c"))
    web.serve("/b", page("B", "/c"))
    web.serve("/c", page("C"))

    entries = read(f"site+{web.url}")

    assert [entry.data["name"] for entry in entries] == ["Home", "A", "B", "C"]
    assert [entry.id for entry in entries] == [f"{web.url}{path}#1" for path in ("/", "/a", "/b", "/c")]
    assert web.requests == ["/robots.txt", "/", "/a", "/b", "/c"]


def test_a_plain_web_address_of_a_page_means_its_site(read, web):
    web.serve("/", page("Home", "/a"))
    web.serve("/a", page("A"))

    assert [entry.data["name"] for entry in read(f"{web.url}/")] == ["Home", "A"]


def test_robots_txt_closes_pages_to_us(read, web):
    rules = "User-agent: other\nDisallow: /\n\nUser-agent: portico\nDisallow: /private\n"
    web.serve("/robots.txt", rules, "text/plain")
    web.serve("/", page("Home", "/private/a", "/b"))
    web.serve("/private/a", page("Secret"))
    web.serve("/b", page("B"))

    entries = read(f"site+{web.url}/")

    assert [entry.where for entry in entries] == [f"{web.url}/", f"{web.url}/private/a", f"{web.url}/b"]
    assert entries[1] == BadRecord(f"{web.url}/private/a", "is disallowed by robots.txt")
    assert "/private/a" not in web.requests


def test_a_site_that_is_closed_altogether_is_an_error(read, web):
    web.serve("/robots.txt", "User-agent: *\nDisallow: /", "text/plain")
    web.serve("/", page("Home"))

    with pytest.raises(SourceError, match="disallowed"):
        read(f"site+{web.url}/")
    assert web.requests == ["/robots.txt"]


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_in_trouble_is_left_alone(read, web, status):
    web.serve("/robots.txt", "", "text/plain", status)
    web.serve("/", page("Home"))

    with pytest.raises(SourceError, match=str(status)):
        read(f"site+{web.url}/")
    assert web.requests == ["/robots.txt"]


def test_a_crawl_waits_between_requests_as_long_as_either_side_wants(web):
    web.serve("/robots.txt", "User-agent: *\nCrawl-delay: 7", "text/plain")
    web.serve("/", page("Home", "/a", "/b"))
    web.serve("/a", page("A"))
    web.serve("/b", page("B"))
    fetcher = Fetcher(allow_hosts=["127.0.0.1"])
    for delay, waited in ((1.0, [7.0, 7.0]), (9.0, [9.0, 9.0])):
        pauses: list[float] = []
        list(read_site(f"{web.url}/", fetcher, SourceOptions(delay=delay), pauses.append))
        assert pauses == waited


def test_a_crawl_delay_that_nobody_could_wait_for_is_an_error(read, web):
    web.serve("/robots.txt", "User-agent: *\nCrawl-delay: 100000", "text/plain")
    web.serve("/", page("Home"))

    with pytest.raises(SourceError, match="100000 seconds"):
        read(f"site+{web.url}/")


def test_noindex_and_nofollow_are_honoured_wherever_they_stand(read, web):
    web.serve("/", page("Home", "/no", "/nofollow", "/header") + '<a rel="x nofollow" href="/never1">x</a>')
    web.serve("/no", page("Noindex", "/linked", head='<meta name="ROBOTS" content="noindex">'))
    web.serve("/nofollow", page("Nofollow", "/never2", head='<meta name="robots" content="index, NOFOLLOW">'))
    web.serve("/header", page("Header", "/never3"), X_Robots_Tag="none")
    web.serve("/linked", page("Linked"))

    entries = read(f"site+{web.url}/")

    assert [entry.data["name"] for entry in entries] == ["Home", "Nofollow", "Linked"]
    assert not [path for path in web.requests if path.startswith("/never")]


def test_two_addresses_of_one_page_give_it_once_under_its_canonical_address(read, web):
    head = '<link rel="canonical" href="/real">'
    web.serve("/", page("Home", "/one", "/two"))
    web.serve("/one", page("Same", head=head))
    web.serve("/two", page("Same", head=head))

    assert [entry.id for entry in read(f"site+{web.url}/")] == [f"{web.url}/#1", f"{web.url}/real#1"]


def test_only_html_is_read_and_a_missing_page_is_reported(read, web):
    web.serve("/", page("Home", "/data", "/gone"))
    web.serve("/data", "x" * 1000, "text/plain")

    home, gone = read(f"site+{web.url}/")

    assert home.data["name"] == "Home"
    assert gone == BadRecord(f"{web.url}/gone", "returned status 404")


def test_a_crawl_stops_at_max_pages_even_on_a_site_without_end(read, web):
    web.serve("/", page("0", "/1"))
    for number in range(1, 50):
        web.serve(f"/{number}", page(str(number), f"/{number + 1}"))

    assert len(read(f"site+{web.url}/", max_pages=7)) == 7


def test_redirects_stay_on_the_site(read, web):
    web.serve("/", page("Home", "/moved", "/away", "/loop", "/private"))
    web.redirect("/moved", "/new")
    web.redirect("/away", "http://other.example/")
    web.redirect("/loop", "/loop")
    web.redirect("/private", "http://127.0.0.1:1/")
    web.serve("/new", page("New"))

    entries = read(f"site+{web.url}/")

    assert [entry.data["name"] for entry in entries] == ["Home", "New"]


def test_a_start_page_that_leads_to_another_host_says_where(read, web):
    web.redirect("/", "https://www.other.example/")

    with pytest.raises(SourceError, match=r"redirects to https://www\.other\.example/"):
        read(f"site+{web.url}/")


def test_linked_data_on_a_crawled_page_keeps_its_address(read, web):
    block = '<script type="application/ld+json">{"@type": "Book", "@id": "#b", "name": "Tidewater"}</script>'
    web.serve("/", page("Home", head=block))

    [entry] = read(f"site+{web.url}/")

    assert entry.id == f"{web.url}/#b"
    assert entry.data == {
        "@type": "Book",
        "@id": "#b",
        "name": "Tidewater",
        "url": f"{web.url}/",
        "text": "Text of Home.",
    }


def test_the_pages_of_a_sitemap_are_read_plain_packed_or_through_an_index(read, web):
    for name in ("a", "b", "c"):
        web.serve(f"/{name}", page(name))
    first = web.serve("/one.xml", urlset(f"{web.url}/a", f"{web.url}/b", "http://other.example/"), "text/xml")
    second = web.serve("/two.xml.gz", gzip.compress(urlset(f"{web.url}/c").encode()), "application/gzip")
    broken = web.serve("/three.xml", "<html></html>", "text/xml")
    index = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in (first, second, broken))
    web.serve("/sitemap.xml", f"<sitemapindex>{index}</sitemapindex>", "application/xml")

    entries = read(f"sitemap+{web.url}/sitemap.xml")

    assert [getattr(entry, "id", None) or entry.reason for entry in entries] == [
        f"{web.url}/a#1",
        f"{web.url}/b#1",
        "is not a page of this site",
        f"{web.url}/c#1",
        f"{broken} is not a sitemap but <html>.",
    ]


def test_a_sitemap_is_known_by_its_content(read, web, tmp_path):
    web.serve("/a", page("a"))
    url = web.serve("/sitemap.xml", urlset(f"{web.url}/a"), "application/xml")
    (tmp_path / "sitemap.xml").write_text(urlset(f"{web.url}/a"))

    for source in (url, tmp_path / "sitemap.xml"):
        assert [entry.id for entry in read(source)] == [f"{web.url}/a#1"]


def test_a_packed_bomb_is_refused(read, web):
    bomb = gzip.compress(b"<urlset>" + b" " * (200 << 20), compresslevel=9)
    assert len(bomb) < 1 << 20
    url = web.serve("/sitemap.xml.gz", bomb, "application/gzip")

    with pytest.raises(SourceError, match="more than 50 MB"):
        read(f"sitemap+{url}")


@pytest.mark.parametrize(
    "declaration",
    [
        '<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">',
        '<!ENTITY a SYSTEM "file:///etc/passwd">',
        '<!ENTITY % a SYSTEM "http://127.0.0.1/"> %a;',
    ],
)
def test_entities_in_a_sitemap_are_refused(read, web, declaration):
    text = f"<!DOCTYPE urlset [{declaration}]><urlset><url><loc>&a;</loc></url></urlset>"
    url = web.serve("/sitemap.xml", text, "application/xml")

    with pytest.raises(SourceError, match="entities"):
        read(f"sitemap+{url}")


def test_a_sitemap_that_breaks_off_is_an_error(read, web):
    url = web.serve("/sitemap.xml", "<urlset><url><loc>x</loc>", "application/xml")

    with pytest.raises(SourceError, match="not a sitemap"):
        read(f"sitemap+{url}")


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("HTTP://Shop.Example:80", "http://shop.example/"),
        ("https://shop.example:443/a#part", "https://shop.example/a"),
        ("https://shop.example:8443/a?b=1&utm_medium=x", "https://shop.example:8443/a?b=1"),
        ("http://[::1]:8080/", "http://[::1]:8080/"),
    ],
)
def test_one_page_has_one_address(url, same):
    assert canonical(url) == same
