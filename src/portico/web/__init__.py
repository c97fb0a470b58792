"""The pages people see. Everything shown is escaped; nothing here decides anything."""

from html import escape

from portico.catalog import Collection
from portico.site import Site

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2d3d; --sea: #2f6f8f; --sand: #f8f4ea; --line: #d9cfb8 }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e4d8; --sea: #8cc3dc; --sand: #16202b; --line: #33424f } }
body { margin: 0 auto; max-width: 52rem; padding: 3rem 1.5rem; background: var(--sand); color: var(--ink);
  font: 17px/1.55 system-ui, sans-serif }
h1 { font-size: 2.2rem; margin: 0 0 .3rem } h2 { margin-top: 2.4rem }
code { font: .9em ui-monospace, monospace; color: var(--sea) }
table { border-collapse: collapse; width: 100% }
td, th { text-align: left; padding: .45rem .8rem .45rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
"""


def home_page(site: Site, description: str, counts: dict[str, int]) -> str:
    """What this site has and can do, for a person who followed a link here."""
    rows = "".join(_collection_row(each, counts.get(each.name)) for each in site.catalog.public)
    operations = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(each.summary)}</td></tr>"
        for name, each in sorted(site.catalog.operations.items())
        if not each.collection
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escape(site.name)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(site.name)}</h1>
<p>{escape(description or "One entrance to everything here, for people and agents.")}</p>
<h2>Collections</h2><table><tr><th>Name</th><th>What</th><th>Items</th></tr>{rows}</table>
<h2>Operations</h2><table><tr><th>Name</th><th>What it does</th></tr>{operations}</table>
</body></html>"""


def _collection_row(collection: Collection, count: int | None) -> str:
    title = escape(collection.description or collection.title or collection.type)
    number = "" if count is None else f"{count:,}"
    return f'<tr><td><code>{escape(collection.name)}</code></td><td>{title}</td><td class="number">{number}</td></tr>'
