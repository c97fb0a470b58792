"""Markdown and HTML pages: linked data, microdata, passages, front matter, folders."""

import os
from pathlib import Path

import pytest

from portico.sources.registry import BadRecord, Doubt, Record, Remark


def test_a_folder_of_pages_gives_each_page_by_its_best_reading(read, examples):
    found = {entry.where: entry for entry in read(examples / "pages")}

    assert found["kettle.html"].id == "kettle.html#kettle"
    assert found["kettle.html"].data["offers"]["price"] == 39
    assert found["lamp.html"].data == {
        "@type": "Product",
        "@id": "https://shop.example/lamp",
        "name": "Desk lamp",
        "image": "https://shop.example/lamp.jpg",
        "url": "https://shop.example/lamp",
        "releaseDate": "2025-11-01",
        "offers": {"@type": "Offer", "price": "72.50", "priceCurrency": "EUR"},
        "text": "Look closer last autumn\n\n72,50 €",
    }
    assert found["kettle.html"].data["text"] == "Two litres."
    assert found["about.html"] == Record(
        {
            "@type": "WebPage",
            "name": "About us",
            "inLanguage": "en",
            "headline": "About us",
            "text": "We have made kettles, lamps and rugs by the canal since 1962.",
            "position": 1,
            "isPartOf": {"@id": "about.html"},
        },
        "about.html",
        "about.html#1",
    )
    assert found["visit.md"].data["datePublished"] == "2026-01-15"
    assert found["visit.md"].data["keywords"] == ["visit", "tours"]
    assert "Take the tram to Mill Street." in found["visit.md"].data["text"]
    assert "Saturday 4" in found["visit.md"].data["text"]
    assert found["rules.md"].data["audience"] == "guests"


def test_a_long_page_is_cut_into_passages_at_headings_and_paragraphs(read, tmp_path: Path):
    sentence = "A kettle of eight words boils here daily. "
    sections = "".join(f"<h2>Part {n}</h2>" + f"<p>{sentence * 10}</p>" * 4 for n in range(1, 4))
    wall = f"<h2>Wall</h2><p>{'word ' * 1000}</p>"
    (tmp_path / "a.html").write_text(f"<title>Guide</title><h1>Guide</h1>{sections}{wall}")

    entries = read(tmp_path / "a.html")

    sizes = [len(entry.data["text"].split()) for entry in entries]
    assert all(60 <= size <= 250 for size in sizes)
    assert sum(sizes) == 3 * 4 * 80 + 1000
    assert [entry.data["position"] for entry in entries] == list(range(1, len(entries) + 1))
    assert len({entry.data["name"] for entry in entries}) == len(entries)
    assert list(dict.fromkeys(entry.data["headline"] for entry in entries)) == [
        "Part 1",
        "Part 2",
        "Part 3",
        "Wall",
    ]


def test_what_is_not_the_text_of_a_page_is_left_out(read, tmp_path: Path):
    (tmp_path / "a.html").write_text(
        "<title>T</title><nav>menu</nav><div>before<p>one &lt;b&gt;</p>after</div><style>x{}</style>"
        "<p hidden>secret</p><script>evil()</script><template>t</template><svg><text>s</text></svg>"
        "<pre>a  b\n  c</pre><footer>legal</footer>"
    )

    [entry] = read(tmp_path / "a.html")

    assert entry.data["text"] == "before\n\none <b>\n\nafter\n\na  b\n  c"


def test_linked_data_wins_and_a_broken_block_is_reported(read, tmp_path: Path):
    (tmp_path / "a.html").write_text(
        '<script type="application/ld+json">{"@graph": [{"@id": "#a"}, {"@id": "#b", "knows": {"@id": "#a"}}'
        "]}</script>"
        '<script type="application/ld+json">{oops</script><p>Text that nobody needs</p>'
    )

    broken, first, second = read(tmp_path / "a.html")

    assert isinstance(broken, BadRecord)
    assert broken.where.endswith("(JSON-LD 2)")
    assert first.id == f"{tmp_path / 'a.html'}#a"
    assert second.data["knows"] == {"@id": "#a"}


def test_microdata_nests_repeats_and_refers(read, tmp_path: Path):
    (tmp_path / "a.html").write_text(
        """<div itemscope itemtype="http://schema.org/Recipe" itemref="more self">
        <b itemprop="recipeIngredient">flour</b><b itemprop="recipeIngredient">water</b>
        <data itemprop="cookTime" value="PT20M">twenty minutes</data>
        <meter itemprop="rating" value="4">good</meter>
        <div itemprop="author" itemscope itemtype="https://schema.org/Person">
        <i itemprop="name givenName">Ada</i></div>
        <video itemprop="video" src="https://x.example/v.mp4"></video>
        <object itemprop="object" data="/o"></object>
        </div><p id="more"><span itemprop="name">Bread</span></p>
        <div id="self" itemprop="part" itemscope itemref="self"><i itemprop="name">Dough</i></div>"""
    )

    [entry] = read(tmp_path / "a.html")

    assert entry.data == {
        "@type": "Recipe",
        "recipeIngredient": ["flour", "water"],
        "cookTime": "PT20M",
        "rating": "4",
        "author": {"@type": "Person", "name": "Ada", "givenName": "Ada"},
        "video": "https://x.example/v.mp4",
        "object": "/o",
        "name": "Bread",
        "part": {"name": "Dough"},
        "text": "flourwater twenty minutes good\n\nAda\n\nBread\n\nDough",
    }


@pytest.mark.timeout(20)
def test_microdata_that_refers_to_itself_over_and_over_is_reported_and_the_text_is_read(read, tmp_path: Path):
    names = [f"n{number}" for number in range(40)]
    everything = f'itemscope itemref="{" ".join(names)}"'
    inner = "".join(f'<p id="{name}" itemprop="a" {everything}>text</p>' for name in names)
    (tmp_path / "a.html").write_text(f"<div {everything}></div>{inner}")

    refused, text = read(tmp_path / "a.html")

    assert "properties in its microdata" in refused.reason
    assert text.data["text"].startswith("text")


@pytest.mark.parametrize(
    ("front", "reason"),
    [
        ("---\na: [\n---\n", "front matter"),
        ("---\n- a\n- b\n---\n", "not a table"),
        ("+++\na = \n+++\n", "front matter"),
        ("---\na: !!python/object/apply:os.system ['true']\n---\n", "front matter"),
        ("---\na: &a [x]\nb: [*a, *a]\n---\n", "aliases"),
        ("---\na: " + "[" * 100 + "]" * 100 + "\n---\n", "nested"),
    ],
)
def test_front_matter_that_cannot_be_trusted_is_reported(read, tmp_path: Path, front, reason):
    (tmp_path / "a.md").write_text(front + "text")

    [entry] = read(tmp_path / "a.md")

    assert isinstance(entry, BadRecord)
    assert reason in entry.reason


def test_markdown_without_front_matter_may_begin_with_a_rule(read, tmp_path: Path):
    (tmp_path / "a.md").write_text("---\n\nJust **text**, <script>evil()</script> no more.\n")

    assert read(tmp_path / "a.md")[0].data["text"] == "Just text, no more."


def test_a_folder_is_never_left_through_links_and_hidden_files_stay_hidden(read, tmp_path: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("secret")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "b.md").write_text("inside")
    (root / "alias.md").symlink_to(root / "sub" / "b.md")
    (root / "leak.md").symlink_to(outside / "secret.md")
    (root / "folder").symlink_to(outside)
    (root / "dangling.md").symlink_to(tmp_path / "nowhere.md")
    (root / ".hidden.md").write_text("hidden")
    (root / ".git").mkdir()
    (root / ".git" / "c.md").write_text("hidden")
    (root / "notes.txt").write_text("a text")
    os.mkfifo(root / "pipe.md")

    *pages, remark = read(root)
    assert [entry.where for entry in pages] == ["alias.md", "notes.txt", "sub/b.md"]
    assert remark.text == "3 links to folders or out of this one not followed: dangling.md, folder, leak.md"


def test_a_page_that_is_too_large_is_reported(read, tmp_path: Path):
    (tmp_path / "a.html").write_bytes(b"<p>" + b"x" * (17 << 20))

    assert read(tmp_path) == [BadRecord("a.html", "is larger than 16 MB")]


@pytest.mark.parametrize(("tags", "reason"), [("<div>" * 99_000, "open at once"), ("<b>" * 2_000_000, "tags")])
@pytest.mark.timeout(20)
def test_a_page_that_nests_without_end_is_refused_in_time(read, tmp_path: Path, tags, reason):
    (tmp_path / "a.html").write_text(tags + "deep text")

    [entry] = read(tmp_path / "a.html")

    assert reason in entry.reason


@pytest.mark.parametrize("tag", ["<script ", "<!-- ", "<!---->", "<a <", "<x/", "</b>", "<p>", "&lt;"])
@pytest.mark.timeout(30)
def test_a_page_of_one_tag_over_and_over_comes_to_an_end(read, tmp_path: Path, tag):
    (tmp_path / "a.html").write_text(tag * 99_000)

    read(tmp_path / "a.html")


def test_a_long_page_that_does_not_nest_is_read(read, tmp_path: Path):
    drawing = "<svg><g>" + "<path d='M0 0'/>" * 5000 + "</g></svg>"
    script = "<script>'<div>'</SCRIPT><!-- <div> -->"
    (tmp_path / "a.html").write_text("<li>one<br>" * 9000 + drawing + script * 1000 + "<b>x</b><p>x<p>" * 5000)

    assert "one" in read(tmp_path / "a.html")[0].data["text"]


def test_a_page_of_five_hundred_levels_is_read(read, tmp_path: Path):
    (tmp_path / "a.html").write_text("<div>" * 500 + "deep text")

    assert read(tmp_path / "a.html")[0].data["text"] == "deep text"


def test_a_page_without_text_is_reported(read, tmp_path: Path):
    (tmp_path / "a.html").write_text("<title>Empty</title><nav>menu</nav>")

    assert read(tmp_path) == [BadRecord("a.html", "has no text")]


GREETING = "Schöne Grüße aus Köln, größer als früher."
PAGE = f"<title>Café</title><p>{GREETING}</p>"


@pytest.mark.parametrize(
    ("text", "encoding", "label"),
    [
        (PAGE, "utf-8", ""),
        (PAGE, "utf-8-sig", ""),
        (PAGE, "cp1252", "windows-1252"),
        (f"<meta charset=iso-8859-1>{PAGE}", "cp1252", "windows-1252"),
        (f"<meta http-equiv=content-type content='text/html; charset=windows-1250'>{PAGE}", "cp1250", "windows-1250"),
        (f"<meta charset=no-such-charset>{PAGE}", "cp1252", "windows-1252"),
        (f"<meta charset=iso-8859-1>{PAGE}", "utf-8", ""),
        (PAGE, "utf-16", "UTF-16"),
    ],
)
def test_a_page_is_read_in_its_encoding(read, good, tmp_path: Path, text, encoding, label):
    (tmp_path / "a.html").write_bytes(text.encode(encoding))

    entries = read(tmp_path)

    [entry] = good(entries)
    assert [entry.data["name"], entry.data["text"]] == ["Café", GREETING]
    remarks = [entry.text for entry in entries if isinstance(entry, Remark)]
    assert remarks == ([f"read as {label}"] if label else [])


def test_markdown_is_read_in_its_encoding(read, good, tmp_path: Path):
    (tmp_path / "a.md").write_bytes(f"---\ntitle: Café\n---\n{GREETING}".encode("cp1252"))

    [entry] = good(read(tmp_path))

    assert [entry.data["name"], entry.data["text"]] == ["Café", GREETING]


def test_letters_that_are_none_are_a_doubt_with_their_place(read, good, tmp_path: Path):
    (tmp_path / "a.html").write_bytes(b"<title>One\nTwo</title><p>" + "größer\n".encode() * 5 + b"x \xff\xfe y\x00")

    doubts = [entry for entry in read(tmp_path) if isinstance(entry, Doubt)]

    assert [(doubt.place, doubt.setting) for doubt in doubts] == [("a.html", "encoding")]


def test_a_crawled_page_is_read_in_its_encoding(read, good, web):
    web.serve("/", f"<meta charset=iso-8859-1>{PAGE}".encode("cp1252"))

    [entry] = good(read(f"site+{web.url}/"))

    assert entry.data["text"] == GREETING


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text",
    [
        "<div>" * 10_000 + "deep",
        "<div class=menu><a href=#>" * 9_000 + "deep",
        "<h1 id=a>" * 9_000 + "deep",
        '<meta name="author" content="x">' * 19_000 + "<p>deep",
        "<title>" + "a | " * 200_000 + "</title><h1>b</h1><p>deep",
        "<title>" + "x" * 5_000_000 + "</title><p>deep",
        '<script type="application/ld+json">' + '{"a":' * 10_000 + "1" + "}" * 10_000 + "</script><p>deep",
        '<script type="application/ld+json">' + "[" * 5_000_000 + "</script><p>deep",
        "<p>" + "deep " * 2_000_000,
        "<p>" + "deep" * 3_000_000,
        "<h2>same</h2><p>deep</p>" * 9_000,
    ],
    ids=range(11),
)
def test_a_hostile_page_ends_with_its_text_or_its_problem(read, tmp_path: Path, text):
    (tmp_path / "a.html").write_text(text)

    entries = read(tmp_path / "a.html")

    assert entries
    for entry in entries:
        if isinstance(entry, Record):
            assert "deep" in entry.data["text"]
            assert len(entry.data["name"]) <= 700
