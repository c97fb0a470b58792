"""The text of a page: what belongs to it, and what stands around it on pages of every kind of site."""

from pathlib import Path

import pytest

NAV = "<ul><li><a href=/>Home</a><li><a href=/s>All our products</a><li><a href=/a>About our company</a></ul>"
FOOT = "Copyright 2026 The Canal Company. All rights reserved."
TEXT = (
    "<p>The harbour pool opens at seven in the morning and closes an hour before the tide is high.</p>"
    "<p>Bring a towel and a warm jumper, for the water is cold in May, even on a sunny day.</p>"
)
PAGES = {
    "blog": f"""<div id=cookie-law-info-bar class=cookie-notice>We use cookies.</div><div class=site-header>{NAV}</div>
        <div class="post hentry"><h1>Pool</h1><div class=entry-content>{TEXT}
        <div class=sharedaddy><h3>Share this:</h3><a href=#>Share on a network</a></div>
        <div class="jp-relatedposts related-posts"><p><a href=/x>The ferry</a></p></div></div></div>
        <div id=comments class=comments-area>Your email address will not be published.</div>
        <div id=secondary class="widget-area sidebar"><h3>Archives</h3><a href=/m>March</a></div>
        <div id=colophon class=site-footer>{FOOT}</div>""",
    "shop": f"""<div class=announcement-bar>Free shipping</div><header>{NAV}</header><main><h1>Pool</h1>{TEXT}
        <section class=product-recommendations><a href=/a>Copper lamp</a> <a href=/b>Rug</a></section></main>
        <div class=cart-drawer>Your cart is empty</div><footer>{FOOT}</footer>""",
    "documentation": f"""<div class=wy-nav-side><div class=wy-menu>{NAV}</div></div><div role=main class=document>
        <div role=navigation>Docs » Pool</div><h1>Pool<a class=headerlink href=#p>¶</a></h1>{TEXT}</div>
        <footer>{FOOT}</footer>""",
    "news": f"""<header><nav>{NAV}</nav></header><main><article><h1>Pool</h1>{TEXT}
        <div class="ad-slot advertisement">Buy two kettles today</div></article>
        <section class=more-stories><article><a href=/2><h3>How the ferry got its name</h3></a></article>
        <article><a href=/3><h3>The mill</h3></a></article></section></main>""",
    "forum": f"""<div class=p-nav>{NAV}</div><h1>Pool</h1><div class=message>{TEXT}
        <div class=message-signature>Sent from my telephone</div></div><div class=p-footer>{FOOT}</div>""",
    "tables": f"""<table><tr><td class=leftmenu>{NAV}</td></tr><tr><td><h1>Pool</h1>{TEXT}</td></tr>
        <tr><td class=copyright>{FOOT}</td></tr></table>""",
    "builder": f"""<div id=SITE_HEADER>{NAV}</div><div id=PAGES_CONTAINER><h1>Pool</h1>{TEXT}</div>
        <div id=SITE_FOOTER><p>{FOOT}</p></div><div class="newsletter-popup modal">Ten percent off</div>""",
    "notice without a name": f"<div id=wrap><h1>Pool</h1>{TEXT}<div>© 2026 The Canal Company</div></div>",
    "landing": f"<body class='has-sidebar cookie-banner-open'><nav>{NAV}</nav><section><h1>Pool</h1>{TEXT}</section>",
}


@pytest.mark.parametrize("kind", PAGES)
def test_the_text_of_a_page_is_without_what_surrounds_it(read, tmp_path: Path, kind):
    (tmp_path / "a.html").write_text(f"<!doctype html><title>Pool</title>{PAGES[kind]}")

    [entry] = read(tmp_path)

    assert entry.data["text"].split("\n\n") == [
        "The harbour pool opens at seven in the morning and closes an hour before the tide is high.",
        "Bring a towel and a warm jumper, for the water is cold in May, even on a sunny day.",
    ]


@pytest.mark.parametrize(
    "body",
    [
        "<div class=menu><h2>Starters</h2><p>Kelp soup</p><p class=menu-item><a href=/c>Crab</a></p></div>",
        "<div class=sidebar><p>Kelp soup and Crab</p></div>",
        "<header><p>Kelp soup</p><p>Crab</p></header>",
        "<div class=footer><p>Kelp soup</p><p>Crab</p></div><p>Open.</p>",
        f"<div class=menu>{NAV}</div><div class=posts><a href=/1>Kelp soup</a><a href=/2>Crab</a></div>",
        "<ul class=recent><li><a href=/1>Kelp soup, which we cook each day</a><li><a href=/2>Crab, on toast</a></ul>",
    ],
)
def test_what_only_looks_like_boilerplate_is_kept(read, tmp_path: Path, body):
    (tmp_path / "a.html").write_text(f"<title>T</title>{body}")

    [entry] = read(tmp_path)

    assert "Kelp soup" in entry.data["text"]
    assert "Crab" in entry.data["text"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("tag", ["<div class=menu>", "<div class=menu>x</div>", "<a class=nav>x"])
def test_a_page_of_one_part_over_and_over_comes_to_an_end(read, tmp_path: Path, tag):
    (tmp_path / "a.html").write_text(tag * 19_000 + "text")

    read(tmp_path / "a.html")
