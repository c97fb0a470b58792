"""RSS and Atom feeds, from files and from the web."""

from pathlib import Path

import pytest

from portico.errors import SourceError


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
