"""Front matter and the names of files: what a page is called, when it was written, and where it is on the web."""

from pathlib import Path
from typing import Any

import pytest

from portico.sources.registry import BadRecord, Remark

BASE = "https://reef.example/blog"


def folder(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def by_place(entries: list[Any]) -> dict[str, Any]:
    return {entry.where: entry.data for entry in entries if hasattr(entry, "data")}


JEKYLL = {
    "_config.yml": "title: Reef\npermalink: pretty\n",
    "_layouts/default.html": "<html><body>{{ content }}</body></html>",
    "_includes/foot.html": "<footer>foot</footer>",
    "_site/index.html": "<h1>Built</h1>",
    "_posts/2020-01-02-low-tide.md": "---\nlayout: post\ntags: tide moon\ncategories: [sea]\nauthor: Ada Moss\n---\n"
    "{% include figure.html %}The {{ site.title }} falls dry.\n\n{% highlight ruby %}\nputs 1\n{% endhighlight %}\n",
    "_posts/2020-02-03-spring.md": "---\ntitle: Spring tide\ndate: 2020-02-03 18:17:31 +0100\npermalink: /spring/\n"
    "image: {path: /img/s.jpg}\nexcerpt: It is high.\n---\nWater.\n",
    "_posts/2020-03-04-secret.md": "---\ntitle: Secret\npublished: false\n---\nNot yet.\n",
    "_drafts/idea.md": "An idea.\n",
    "about.md": "---\nlayout: page\ntitle: About\npermalink: /about-us/\n---\nWe dive.\n",
    "index.html": "---\nlayout: home\n---\n<h1>Reef</h1><p>Welcome.</p>",
}


def test_a_jekyll_folder_leads_back_to_its_pages(read, tmp_path: Path):
    entries = read(folder(tmp_path, JEKYLL), base_url=BASE)

    items = by_place(entries)
    low = items["_posts/2020-01-02-low-tide.md"]
    assert [low["name"], low["datePublished"], low["author"]] == ["Low tide", "2020-01-02", "Ada Moss"]
    assert [low["keywords"], low["categories"]] == [["tide", "moon"], ["sea"]]
    assert low["text"] == "The falls dry.\n\nputs 1"
    assert low["url"] == f"{BASE}/sea/2020/01/02/low-tide/"
    assert "layout" not in low
    spring = items["_posts/2020-02-03-spring.md"]
    assert [spring["name"], spring["url"]] == ["Spring tide", f"{BASE}/spring/"]
    assert spring["datePublished"] == "2020-02-03T18:17:31+01:00"
    assert [spring["image"], spring["description"]] == ["https://reef.example/img/s.jpg", "It is high."]
    assert items["about.md"]["url"] == f"{BASE}/about-us/"
    assert [items["index.html"]["name"], items["index.html"]["url"]] == ["Reef", f"{BASE}/"]
    assert len(items) == 4


def test_drafts_and_templates_are_left_out_with_a_remark(read, tmp_path: Path):
    remarks = [entry for entry in read(folder(tmp_path, JEKYLL)) if isinstance(entry, Remark)]

    assert Remark("_posts/2020-03-04-secret.md", "is a draft and was left out") in remarks
    assert Remark("_drafts/idea.md", "is a draft and was left out") in remarks
    assert Remark(str(tmp_path), "3 templates and built files of the Jekyll site not read") in remarks


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("guide/install.md", f"{BASE}/guide/install"),
        ("guide/index.md", f"{BASE}/guide/"),
        ("README.md", f"{BASE}/"),
        ("a b.html", f"{BASE}/a%20b.html"),
        ("notes.txt", f"{BASE}/notes.txt"),
        ("_posts/2021-05-06-tide.md", f"{BASE}/2021/05/06/tide.html"),
    ],
)
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_file_leads_back_to_its_place_below_the_base(read, tmp_path: Path, name, url, slash):
    root = folder(tmp_path, {name: "One line.\n\nAnother line."})

    [entry] = read(root, base_url=BASE + slash)

    assert entry.data["url"] == url
    assert entry.id == f"{name}#1"  # as without a base, so that a reload finds its items again


def test_a_single_file_leads_back_to_its_name(read, tmp_path: Path):
    folder(tmp_path, {"deep/down/visit.html": "<p>Come in."})

    [entry] = read(tmp_path / "deep/down/visit.html", base_url=BASE)

    assert entry.data["url"] == f"{BASE}/visit.html"


def test_links_of_a_page_with_a_base_are_absolute_and_its_id_stays(read, tmp_path: Path):
    script = '{"@type": "Product", "@id": "#k", "name": "Kettle", "image": "k.jpg", "url": "/k"}'
    folder(tmp_path, {"shop/k.html": f'<script type="application/ld+json">{script}</script><p>Boils.'})

    [entry] = read(tmp_path, base_url=BASE)

    assert [entry.data["image"], entry.data["url"]] == [f"{BASE}/shop/k.jpg", "https://reef.example/k"]
    assert entry.id == "shop/k.html#k"


def test_passages_lead_to_their_headings(read, tmp_path: Path):
    text = "Eight words of text stand in this sentence. " * 20
    folder(
        tmp_path,
        {
            "a.md": f"# Guide\n\n{text}\n\n## Installing\n\n{text}\n\n## Using it, daily {{#use}}\n\n{text}\n\n{text}",
            "b.html": f"<title>Guide</title><h1>Guide</h1><p>{text}<section id=s><h2>One<a href='#s'>¶</a></h2>"
            f"<p>{text}</section><h2 id=own>Two</h2><p>{text}<h2>Three C#</h2><p>{text}",
        },
    )

    entries = read(tmp_path, base_url=BASE)

    assert [(entry.data["name"], entry.data["url"].removeprefix(BASE)) for entry in entries] == [
        ("Guide", "/a"),
        ("Guide – Installing", "/a#installing"),
        ("Guide – Using it, daily", "/a#use"),
        ("Guide – Using it, daily (2)", "/a#use"),
        ("Guide", "/b.html"),
        ("Guide – One", "/b.html#s"),
        ("Guide – Two", "/b.html#own"),
        ("Guide – Three C#", "/b.html"),
    ]
    assert {entry.data["isPartOf"]["@id"] for entry in entries} == {"a.md", "b.html"}
    assert entries[1].data["headline"] == "Installing"


def test_passages_of_equal_headings_name_the_heading_above(read, tmp_path: Path):
    text = "Eight words of text stand in this sentence. " * 20
    parts = "".join(f"<h2>{name}</h2><p>{text}<h3>Examples</h3><p>{text}" for name in ("Read", "Write"))
    folder(tmp_path, {"a.html": f"<title>Guide</title>{parts}"})

    assert [entry.data["name"] for entry in read(tmp_path)] == [
        "Guide – Read",
        "Guide – Examples",
        "Guide – Write",
        "Guide – Write – Examples",
    ]


def test_the_head_of_a_page_tells_its_author_its_dates_and_its_picture(read, tmp_path: Path):
    head = """<title>Low tide | Reef</title><meta name="description" content="About tides.">
        <meta property="article:published_time" content="2026-03-01T08:00:00+00:00">
        <meta property="article:modified_time" content="2026-03-02"><meta name="author" content="Ada Moss">
        <meta property="og:image" content="/tide.jpg"><meta property="article:tag" content="sea">
        <meta property="article:tag" content="moon"><link rel="canonical" href="https://reef.example/tide/">"""
    folder(tmp_path, {"a.html": f"<html lang=en>{head}<main><h1>Low tide</h1><p>The water goes.</main>"})

    [entry] = read(tmp_path)

    assert entry.data == {
        "@type": "WebPage",
        "name": "Low tide",
        "description": "About tides.",
        "author": "Ada Moss",
        "datePublished": "2026-03-01T08:00:00+00:00",
        "dateModified": "2026-03-02",
        "keywords": ["sea", "moon"],
        "image": "https://reef.example/tide.jpg",
        "inLanguage": "en",
        "headline": "Low tide",
        "text": "The water goes.",
        "url": "https://reef.example/tide/",
        "position": 1,
        "isPartOf": {"@id": "a.html"},
    }


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("<title>Kettles – The Canal Shop</title><h1>Kettles</h1>", "Kettles"),
        ("<title>The Canal Shop: Kettles</title><h1>Kettles</h1>", "Kettles"),
        ("<title>Kettles - Shop</title><meta property=og:site_name content=Shop>", "Kettles"),
        ("<title>Man-made kettles</title><h1>made kettles</h1>", "Man-made kettles"),
        ("<title></title><h1>Only a heading</h1>", "Only a heading"),
        ("", "Opening hours"),
        ("<title><script>alert(1)</script>Safe</title>", "<script>alert(1)</script>Safe"),
    ],
)
def test_the_title_of_a_page_is_without_the_name_of_its_site(read, tmp_path: Path, head, title):
    folder(tmp_path, {"opening-hours.html": f"<html>{head}<p>The text.</html>"})

    assert read(tmp_path)[0].data["name"] == title


def test_settings_of_a_site_that_cannot_be_read_do_no_harm(read, tmp_path: Path):
    files = {
        "_config.yml": "a: [\n\x00",
        "_posts/2020-01-02-x.md": "---\npermalink: {a: 1}\ncategories: {}\n---\nText.",
    }

    [entry] = [entry for entry in read(folder(tmp_path, files), base_url=BASE) if not isinstance(entry, Remark)]

    assert entry.data["url"] == f"{BASE}/2020/01/02/x.html"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["{%" * 500_000, "{{" * 500_000, "# " + "{#a" * 300_000, "---\n" + "{:" * 500_000])
def test_templates_without_end_end(read, tmp_path: Path, text):
    path = folder(tmp_path, {"_posts/2020-01-02-x.md": text})

    assert not [entry for entry in read(path) if isinstance(entry, BadRecord) and "tags" in entry.reason]
