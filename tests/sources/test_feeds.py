"""RSS and Atom feeds, from files and from the web."""

import gzip
from pathlib import Path

import pytest

from portico.errors import SourceError
from portico.sources.registry import Doubt, Record, Remark


def test_an_rss_item_becomes_an_article_in_plain_text(read, examples):
    ferry, market = read(examples / "news.rss")

    assert ferry.id == "news-17"
    assert ferry.data == {
        "@type": "Article",
        "headline": "Ferry returns & stays",
        "name": "Ferry returns & stays",
        "description": "The night ferry runs again.",
        "url": "https://news.example/ferry",
        "datePublished": "2026-03-02T07:30:00Z",
        "author": {"@type": "Person", "name": "Jo Reed"},
        "keywords": ["ferry", "travel"],
        "image": "https://news.example/ferry.jpg",
    }
    assert market.id == "https://news.example/market"


def test_an_atom_entry_becomes_an_article_with_its_body(read, examples):
    [plane] = read(examples / "blog.atom")

    assert plane.id == "tag:blog.example,2026:plane"
    assert plane.data["articleBody"] == "Flat back first, then the bevel.\n\nStrop it last."
    assert plane.data["author"] == {"@type": "Person", "name": "Ada Moss"}
    assert (plane.data["datePublished"], plane.data["dateModified"]) == (
        "2026-02-10T09:00:00Z",
        "2026-02-11T10:00:00Z",
    )


def test_a_feed_on_the_web_is_read_by_scheme_by_type_and_by_content(read, web, examples):
    text = (examples / "news.rss").read_bytes()
    plain = web.serve("/feed", text, "application/rss+xml")
    vague = web.serve("/news", text, "text/plain")
    assert plain.startswith("http://")

    for url in (plain, vague, f"feed+{vague}"):
        assert [entry.id for entry in read(url)] == ["news-17", "https://news.example/market"]


def test_links_that_are_not_web_addresses_are_dropped(read, tmp_path: Path):
    (tmp_path / "a.rss").write_text(
        '<rss version="2.0"><channel><item><title>x</title><link>javascript:alert(1)</link></item></channel></rss>'
    )

    [entry] = read(tmp_path / "a.rss")

    assert "url" not in entry.data
    assert entry.id is None


def test_an_item_without_title_and_text_is_reported(read, bad, tmp_path: Path):
    (tmp_path / "a.rss").write_text(
        '<rss version="2.0"><channel><item><guid>1</guid></item><item><title>t</title></item></channel></rss>'
    )

    assert [entry.reason for entry in bad(read(tmp_path / "a.rss"))] == ["has neither a title nor a text"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_entities_are_refused_before_they_can_expand(read, tmp_path: Path, encoding):
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
    text = (
        f'<?xml version="1.0" encoding="{encoding}"?><!-- <rss> --><!DOCTYPE rss [<!ENTITY l0 "ha">{laughs}]>'
        '<rss version="2.0"><channel><item><title>&l9;</title></item></channel></rss>'
    )
    (tmp_path / "a.rss").write_bytes(text.encode(encoding))

    with pytest.raises(SourceError, match="entities"):
        read(tmp_path / "a.rss")


def test_a_file_is_never_opened_because_a_feed_names_it(read, tmp_path: Path):
    (tmp_path / "a.rss").write_text("/etc/passwd")

    with pytest.raises(SourceError, match="not an RSS or Atom feed"):
        read(tmp_path / "a.rss")


def rss(*items: str, channel: str = "") -> str:
    entries = "".join(f"<item>{item}</item>" for item in items)
    return f'<rss version="2.0"><channel><title>News</title>{channel}{entries}</channel></rss>'


RELATIVE = rss(
    '<title>Tide</title><guid isPermaLink="false">t</guid><link>/tide.html</link>'
    '<enclosure url="tide.jpg" type="image/jpeg" length="1"/>',
    channel="<link>https://reef.example/news/</link>",
)


def test_relative_links_of_a_feed_lead_to_the_site_of_the_feed(read, tmp_path: Path):
    (tmp_path / "a.rss").write_text(RELATIVE)

    [entry] = read(tmp_path / "a.rss")
    [moved] = read(tmp_path / "a.rss", base_url="https://other.example/blog")

    assert [entry.id, entry.data["url"]] == ["t", "https://reef.example/tide.html"]
    assert entry.data["image"] == "https://reef.example/tide.jpg"
    assert moved.data["url"] == "https://other.example/tide.html"


def test_the_base_of_an_atom_feed_counts(read, tmp_path: Path):
    (tmp_path / "a.atom").write_text(
        '<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://reef.example/blog/"><link href="/"/>'
        '<entry xml:base="2026/"><title>Tide</title><id>urn:t</id><link href="tide.html"/>'
        '<content type="html">&lt;p>Low &lt;img alt="" src="low.png">&lt;/p></content></entry></feed>'
    )

    [entry] = read(tmp_path / "a.atom")

    assert entry.data["url"] == "https://reef.example/blog/2026/tide.html"
    assert entry.data["image"] == "https://reef.example/blog/2026/low.png"


def test_a_feed_without_a_link_of_its_own_is_based_on_its_address(read, web):
    url = web.serve("/blog/feed", rss("<title>Tide</title><link>tide.html</link>"), "application/rss+xml")

    assert read(url)[0].data["url"] == f"{web.url}/blog/tide.html"


def test_a_packed_feed_is_read_from_files_and_from_the_web(read, web, tmp_path: Path):
    packed = gzip.compress(RELATIVE.encode())
    (tmp_path / "feed.xml.gz").write_bytes(packed)
    encoded = web.serve("/feed", packed, "application/rss+xml", Content_Encoding="gzip")
    file = web.serve("/feed.rss.gz", packed, "application/gzip")

    for place in (tmp_path / "feed.xml.gz", tmp_path, encoded, file):
        assert [entry.id for entry in read(place)] == ["t"]


def test_entries_of_one_id_are_one_item_in_its_latest_version(read, tmp_path: Path):
    entry = "<entry><id>urn:t</id><title>{}</title><updated>2026-01-0{}T00:00:00Z</updated>{}</entry>"
    entries = entry.format("New", 2, "") + entry.format("Old", 1, "<summary>Kept.</summary>")
    (tmp_path / "a.atom").write_text(f'<feed xmlns="http://www.w3.org/2005/Atom">{entries}</feed>')

    item, remark = read(tmp_path / "a.atom")

    assert isinstance(item, Record)
    assert [item.data["name"], item.data["description"]] == ["New", "Kept."]
    assert remark == Remark(str(tmp_path / "a.atom"), "entries that repeat the id of another were merged with it: 1")


def test_a_date_that_is_none_is_a_doubt_with_its_place(read, tmp_path: Path):
    (tmp_path / "a.rss").write_text(rss("<title>Tide</title><pubDate>when it suits</pubDate>"))

    doubt, entry = read(tmp_path / "a.rss")

    place = f"{tmp_path / 'a.rss'}#1"
    assert doubt == Doubt(place, "is not a date that is known here", "datePublished", "when it suits")
    assert "datePublished" not in entry.data


def test_a_script_in_the_title_of_an_entry_is_no_text(read, tmp_path: Path):
    (tmp_path / "a.rss").write_text(rss("<title>&lt;script>alert(1)&lt;/script>Tide</title><link>http://[</link>"))

    [entry] = read(tmp_path / "a.rss")

    assert [entry.data["name"], "url" in entry.data] == ["Tide", False]
