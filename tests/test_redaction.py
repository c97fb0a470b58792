"""What is shown, logged and stored of a URL that holds a password or a token."""

import pytest

from portico.redaction import Redactor, redact_text, redact_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:pw@host:5432/shop?schema=a", "postgresql://me@host:5432/shop?schema=a"),
        ("postgresql+psycopg://me:p%40ss@host/shop", "postgresql+psycopg://me@host/shop"),
        ("postgresql://me:p@ss@host/shop", "postgresql://me@host/shop"),
        ("postgresql://me:p/ss@host/shop", "postgresql://me@host/shop"),
        ("postgresql://me:p?ss@host/shop", "postgresql://me@host/shop"),
        ("postgresql://me:p#ss@host/shop", "postgresql://me@host/shop"),
        ("postgresql://:pw@host/shop", "postgresql://@host/shop"),
        ("mysql://me@host/shop?password=pw&ssl_ca=x", "mysql://me@host/shop?password=***&ssl_ca=x"),
        ("mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BPWD%3Dpw", "mssql+pyodbc:///?odbc_connect=***"),
        ("https://me:pw@host/feed", "https://***@host/feed"),
        ("https://ghp_0123456789@host/feed", "https://***@host/feed"),
        ("feed+https://me:pw@host/feed", "feed+https://***@host/feed"),
        ("https://host/feed?token=abc&page=2#top", "https://host/feed?token=***&page=2#top"),
        ("https://host/feed?a=1&api_key=abc", "https://host/feed?a=1&api_key=***"),
        ("https://host/feed?apiKey=abc&X-Amz-Signature=def", "https://host/feed?apiKey=***&X-Amz-Signature=***"),
        ("https://host/feed?access%5Ftoken=abc", "https://host/feed?access%5Ftoken=***"),
        ("https://host/feed?key=abc&sig=d", "https://host/feed?key=***&sig=***"),
        ("https://host/#access_token=abc", "https://host/#access_token=***"),
        ("https://host/go?to=ftp%3A%2F%2Fme%3Apw%40other", "https://host/go?to=***"),
    ],
)
def test_secrets_are_taken_out_of_urls(url: str, shown: str) -> None:
    assert redact_url(url) == shown
    assert redact_url(shown) == shown


@pytest.mark.parametrize(
    "url",
    [
        "products.csv",
        "/srv/a@b/x.csv?token=abc",
        "sqlite:///a:b@c/site.db",
        "postgresql://me@host/shop?schema=a@b",
        "https://host/@me/feed",
        "http://host:8080/@me?author=smith&keyword=tea&design=a&q=a%40b",
        "https://host/feed?token=",
        "https://[::1]:8000/feed",
        "http://[",
        "://",
        "",
    ],
)
def test_what_holds_no_secret_stays_as_it_is(url: str) -> None:
    assert redact_url(url) == url


def test_every_url_in_a_text_is_redacted() -> None:
    text = 'cannot read "https://host/?token=abc": tried postgresql://me:pw@db/shop, and twice.'

    assert redact_text(text) == 'cannot read "https://host/?token=***": tried postgresql://me@db/shop, and twice.'


def test_what_was_read_from_a_url_loses_the_secrets_of_that_url_alone() -> None:
    redactor = Redactor("https://host/feed?token=a%2Fb&page=1")

    assert redactor
    assert redactor.redact_data({"next": ["https://host/feed?page=2&token=a%2Fb", "token=a/b"], "n": 1}) == {
        "next": ["https://host/feed?page=2&token=***", "token=***"],
        "n": 1,
    }
    assert redactor.redact("https://other/?token=c") == "https://other/?token=c"
    assert not Redactor("https://host/feed?page=1")
