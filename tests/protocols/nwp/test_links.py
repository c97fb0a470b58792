"""The graph of a site says which node the fields of a record lead to."""

from pathlib import Path

from tests.music_shop import make_sqlite, opened_shop
from tests.protocols.conftest import asking


async def test_the_graph_names_the_nodes_that_foreign_keys_lead_to(tmp_path: Path) -> None:
    store, private = f"sqlite:///{tmp_path / 'site.db'}", {"Genre": {"private": True}}
    music = str(make_sqlite(tmp_path / "music.db"))
    async with opened_shop(store, music, collections=private) as parts, asking(parts) as client:
        manifest = (await client.get("/nwp/site/.nwm")).json()

    refs = {ref["rel"]: ref for ref in manifest["graph"]["refs"]}
    assert refs["Album"]["links"] == {"ArtistId": refs["Artist"]["node"]}
    assert set(refs["Track"]["links"]) == {"AlbumId", "MediaTypeId"}
    assert "links" not in refs["Artist"]
