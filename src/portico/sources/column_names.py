"""Words in the names of columns, for what their values alone do not show. Decides nothing by itself."""

from collections.abc import Mapping

# Words of a name, as `name_words` returns them.
NAMES: Mapping[str, frozenset[str]] = {
    meaning: frozenset(words.split())
    for meaning, words in {
        # Whole numbers may be times since 1970.
        "epoch": """at changed created date datetime datum edited epoch expires logged login modified posted published
        seen time timestamp ts updated zeit""",
        # 0 and 1 are false and true, in names that begin with the first or end with the second.
        "is": "are can does est has hat is ist kann should was",
        "boolean": """active aktiv approved archived available closed confirmed deleted disabled enabled featured flag
        hidden instock optional paid published required shipped sichtbar subscribed taxable vegan vegetarian verified
        visible""",
        # 1:30 is a duration.
        "duration": """cooktime dauer duracion duración durata duration durée duree elapsed laufzeit length pace
        playtime preptime runtime spieldauer totaltime zeitdauer""",
        # 1:30 is a time of the day.
        "time": """arrival at begin beginn begins clock close closed closes closing departure end ende ends from heure
        hora hour offnung open opened opening opens start starts to uhr uhrzeit until öffnung""",
        # Commas separate elements, or never do.
        "list": """allergens amenities categories colors colours cuisines farben features genre genres ingredients
        keyword keywords labels languages materials schlagworte sizes skills sprachen stichworte tag tags themen
        topics zutaten""",
        "no list": "address adresse author city date location name names ort place",
        "coordinates": "coord coordinate coordinates coords geo gps latlng latlon latlong location point position",
        "year": "annee ano anno année ano año baujahr jaar jahr rok year yr",
        # Digits in quotes are numbers.
        "number": """age amount anzahl betrag count gewicht height length menge pages points population quantity qty
        rating score seats stock total views votes weight width""",
        "key": "fk id ids key pk uid",
    }.items()
}
DURATION_PAIRS = frozenset(
    {"prep time", "cook time", "cooking time", "total time", "run time", "running time", "play time", "baking time"}
)
DEGREES = {
    "lat": "latitude", "latitude": "latitude", "lon": "longitude", "lng": "longitude", "long": "longitude",
    "longitude": "longitude",
}  # fmt: skip
# The formats of digits that are no quantities.
CODES_BY_NAME: Mapping[str, str] = {
    word: format
    for format, words in {
        "postcode": "cap plz postal postalcode postcode postleitzahl zip zipcode",
        "phone": "cell cellphone fax handy mobil mobile phone tel telefon telephone",
        "isbn": "isbn isbn10 isbn13",
        "gtin": "barcode ean ean13 gtin gtin12 gtin13 gtin14 gtin8 upc",
        "code": "artikelnummer asin bic chapter clause iban issn mpn release revision section siret sku vin version",
    }.items()
    for word in words.split()
}
CODE_PAIRS = {
    "zip code": "postcode", "post code": "postcode", "postal code": "postcode", "code postal": "postcode",
    "phone number": "phone", "ip address": "code",
}  # fmt: skip
