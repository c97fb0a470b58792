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
        ("https://host/feed?key=abcdefgh01234567&sig=d", "https://host/feed?key=***&sig=***"),
        ("https://host/feed?subscription-key=abcdefgh01234567", "https://host/feed?subscription-key=***"),
        ("https://host/feed?secret_key=abc&access_key=d", "https://host/feed?secret_key=***&access_key=***"),
        (
            "https://host/?passwd=a&pwd=b&auth=c&client_secret=d",
            "https://host/?passwd=***&pwd=***&auth=***&client_secret=***",
        ),
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
        "https://host/feed?key=recipes&sort_key=name&primary_key=id",
        "https://host/feed?key=summer-recipes-for-two&key=1234567890123456",
        "https://[::1]:8000/feed",
        "http://[",
        "://",
        "",
    ],
)
def test_what_holds_no_secret_stays_as_it_is(url: str) -> None:
    assert redact_url(url) == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http:/me:hush@host/x.csv", "http:/***@host/x.csv"),
        ("https://host/x.csv?pw=hush", "https://host/x.csv?pw=***"),
        ("https://host/x.csv?pass=hush", "https://host/x.csv?pass=***"),
    ],
)
def test_forgotten_slashes_and_short_names_hide_no_password(url: str, shown: str) -> None:
    assert redact_url(url) == shown
    assert redact_text(f"There is nothing at '{url}'.") == f"There is nothing at '{shown}'."


def test_every_url_in_a_text_is_redacted() -> None:
    text = 'cannot read "https://host/?token=abc": tried postgresql://me:pw@db/shop, and twice.'

    assert redact_text(text) == 'cannot read "https://host/?token=***": tried postgresql://me@db/shop, and twice.'


@pytest.mark.parametrize("password", ["p'w", 'p"w', "p w", "p<w", "p>w", "p`w", "p/w", "p:w", "5432x", "p'w/x y"])
def test_a_password_with_odd_characters_is_redacted_in_a_text(password: str) -> None:
    text = f"cannot connect to postgresql://me:{password}@db/shop, ask admin@example.com"

    assert redact_text(text) == "cannot connect to postgresql://me@db/shop, ask admin@example.com"


@pytest.mark.parametrize(
    "text",
    [
        "https://host:8080/x is down, ask admin@example.com",
        "https://host:8080 is down, ask admin@example.com",
        "postgresql://host:5432/shop is down, ask admin@example.com",
        "https://host/x: not found, ask admin@example.com",
        'see "https://host:8080", then "https://other" or admin@example.com',
    ],
)
def test_a_text_with_an_address_of_a_person_stays_as_it_is(text: str) -> None:
    assert redact_text(text) == text


def test_what_was_read_from_a_url_loses_the_secrets_of_that_url_alone() -> None:
    redactor = Redactor("https://host/feed?token=abcd%2Fefgh&page=1")

    assert redactor
    links = ["https://host/feed?page=2&token=abcd%2Fefgh", "token=abcd/efgh", "<a href='?token=abcd%2Fefgh&amp;p=2'>"]
    assert redactor.redact_data({"next": links, "n": 1}) == {
        "next": ["https://host/feed?page=2&token=***", "token=***", "<a href='?token=***&amp;p=2'>"],
        "n": 1,
    }
    assert redactor.redact("https://other/?token=c") == "https://other/?token=c"
    assert not Redactor("https://host/feed?page=1")


@pytest.mark.parametrize(
    ("url", "data"),
    [
        ("https://host/feed?token=a", ["token=a", "token=apple", "https://host/feed?token=apple"]),
        ("https://host/feed?token=abcdefgh", ["token=abcdefghi", "mytoken=abcdefgh", "token=abcdefgh.5"]),
        ("https://host/feed?key=recipes", ["https://host/feed?key=recipes"]),
        ("https://me:pw@host/feed", ["write to me:pw@ home"]),
    ],
)
def test_items_keep_what_only_resembles_a_secret(url: str, data: list[str]) -> None:
    assert Redactor(url).redact_data(data) == data


def test_a_link_to_the_source_itself_loses_a_secret_of_any_length() -> None:
    redact = Redactor("https://me:pw@host/feed?token=a").redact_data

    assert redact("see https://me:pw@host/feed?token=a.") == "see https://***@host/feed?token=***."
    assert redact("https://me:pw@host/other") == "https://***@host/other"
    assert Redactor("feed+https://host/?token=a").redact_data("https://host/?token=a") == "https://host/?token=***"
