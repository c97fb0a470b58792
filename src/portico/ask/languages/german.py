"""German: the words that are read in questions and follow-ups, and the phrases that are said. Has no rules."""

from portico.ask.languages.contrast import Contrast
from portico.ask.languages.followup_words import speech
from portico.ask.languages.lexicon import (
    AGE,
    CALORIES,
    CHEAP,
    CLOSE,
    COMPARISONS_ANYWHERE,
    COSTLY,
    DAY,
    DISLIKED,
    DOLLAR,
    EURO,
    FRANC,
    GRAM,
    HOUR,
    INGREDIENTS,
    KILOGRAM,
    KILOMETRE,
    LIKED,
    LONG,
    MEASURED,
    METRE,
    MILE,
    MINUTE,
    MONTH,
    NEW,
    OLD,
    PAGES,
    PEOPLE,
    PERCENT,
    POUND,
    QUICK,
    REACHED,
    REVIEWS,
    SEATED,
    SECOND,
    SERVINGS,
    STARS,
    TIMED,
    UNITS_ANYWHERE,
    WEEK,
    YEAR,
    YEN,
    Comparison,
    Lexicon,
    Order,
)
from portico.ask.languages.phrasebook import Limits, Phrases, Script, capital, dated, tail, trailing
from portico.ask.languages.wordlists import DASHES, Sayings, any_of, folded, numbered
from portico.ask.understanding.dates import DateWords
from portico.search.index.text import STOPWORDS

_ENDINGS = ("e", "en", "er", "es", "em")


def _inflected(stems: dict[Order | None, str]) -> dict[Order | None, str]:
    """Superlatives are said in one word with five endings."""
    return {
        order: "|".join(stem + ending for stem in text.split() for ending in _ENDINGS) for order, text in stems.items()
    }


LEXICON = Lexicon(
    decimal=",",
    numbers=Sayings(
        {
            1.0: "ein|eine|einen|einem|einer|eins",
            2.0: "zwei",
            3.0: "drei",
            4.0: "vier",
            5.0: "fünf",
            6.0: "sechs",
            7.0: "sieben",
            8.0: "acht",
            9.0: "neun",
            10.0: "zehn",
            11.0: "elf",
            12.0: "zwölf",
            1.5: "anderthalb|eineinhalb",
            0.5: "eine halbe|einer halben|halbe|halben|ein halbes",
            2.5: "zweieinhalb",
        }
    ),
    and_=any_of("und"),
    of=any_of("von"),
    units=Sayings(
        UNITS_ANYWHERE,
        {
            DOLLAR: "dollar",
            EURO: "euro|euros",
            POUND: "pfund",
            YEN: "yen",
            FRANC: "franken",
            SECOND: "sekunde|sekunden",
            MINUTE: "minute|minuten",
            HOUR: "stunde|stunden|std",
            DAY: "tag|tage|tagen",
            WEEK: "woche|wochen",
            MONTH: "monat|monate|monaten",
            YEAR: "jahr|jahre|jahren",
            METRE: "meter|metern",
            KILOMETRE: "kilometer|kilometern",
            MILE: "meile|meilen",
            STARS: "stern|sterne|sternen|von 5 sternen|von 5",
            GRAM: "gramm",
            PERCENT: "prozent",
            KILOGRAM: "kilo|kilogramm",
            CALORIES: "kalorie|kalorien",
            PAGES: "seite|seiten",
            SERVINGS: "portion|portionen",
            PEOPLE: "person|personen|leute|gäste|erwachsene",
            INGREDIENTS: "zutat|zutaten",
            REVIEWS: "bewertung|bewertungen",
            AGE: "jahre alt",
        },
    ),
    comparisons=Sayings(
        COMPARISONS_ANYWHERE,
        {
            Comparison("lt"): "unter|weniger als|kürzer als|kleiner als|schneller als|niedriger als",
            Comparison("lt", hint="price"): "billiger als|günstiger als",
            Comparison("lte"): "bis zu|höchstens|maximal|max|max .|nicht mehr als|nicht länger als|nicht über",
            Comparison("lte", REACHED): "innerhalb von|innerhalb",
            Comparison("lte", MEASURED): "bis",
            Comparison("lte", TIMED): "in",
            Comparison("gt"): "über|mehr als|länger als|größer als|höher als",
            Comparison("gt", hint="price"): "teurer als",
            Comparison("gte"): "mindestens|wenigstens|minimum|nicht weniger als",
            Comparison("gte", MEASURED): "ab",
            Comparison("gte", SEATED): "für",
            Comparison("eq"): "genau",
            Comparison("about", MEASURED): "ungefähr|etwa|circa|ca|ca .|rund|um die",
        },
    ),
    afterwards=Sayings(
        {"lte": "oder weniger|maximal|höchstens|max", "gte": "+|oder mehr|mindestens|und mehr|oder höher"}
    ),
    between=any_of("zwischen"),
    from_=any_of("von"),
    to=any_of("und|bis", DASHES),
    leads=Sayings(
        {"": "in|für|mit|die", "price": "preis|kosten|die kosten", "rating": "bewertet mit|bewertung|mit bewertung"}
    ),
    sorts=Sayings(
        {
            CHEAP: "am billigsten|am günstigsten|billiger|günstiger",
            COSTLY: "am teuersten",
            QUICK: "am schnellsten|am kürzesten|schneller|kürzer",
            LONG: "am längsten|länger",
            LIKED: "am besten bewertet|bestbewertet|am beliebtesten|beste bewertung|besten bewertungen"
            "|mit der besten bewertung|mit den besten bewertungen|mit bester bewertung",
            DISLIKED: "am schlechtesten bewertet",
            NEW: "am neuesten|neuer",
            OLD: "am ältesten",
            CLOSE: "am nächsten",
        },
        _inflected(
            {
                CHEAP: "billigst günstigst preiswertest",
                COSTLY: "teuerst",
                QUICK: "schnellst kürzest",
                LONG: "längst",
                LIKED: "bestbewertet beliebtest",
                DISLIKED: "schlechtestbewertet",
                NEW: "neuest aktuellst",
                OLD: "ältest nächst",
                CLOSE: "nächstgelegen nahest",
            }
        ),
    ),
    extremes=Sayings({True: "meisten|höchste|höchsten", False: "wenigsten|niedrigste|niedrigsten"}),
    exclusions=Sayings(
        {
            "firm": "ohne|außer|ausgenommen|aber nicht|aber kein|aber keine|aber keinen|allergisch gegen|allergie gegen"
            "|ich esse kein|ich esse keine|ich esse keinen|ich mag kein|ich mag keine|ich mag keinen|alles außer",
            "loose": "kein|keine|keinen|keiner|keinem|nicht|nicht in|nicht aus|nicht von",
        }
    ),
    listing=Sayings({"next": ",", "last": "oder|und|&"}),
    asking=Sayings({"never": "warum|wieso|wann|wer", "tied": "ist|sind|war|kann|darf|hat|gibt|wird|wie|wo"}),
    ties=folded(", ; aber mit und oder etwas"),
    beings=folded("ist sind war waren hat haben"),
    verbs=folded("bin kann können darf habe wird würde gibt es ich wir sie er"),
    relatives=folded("die der das"),
    flags=Sayings(
        {
            "free": "kostenlos|kostenlose|kostenlosen|gratis|umsonst|kostenfrei|kostenfreie|kostenfreien|gebührenfrei"
            "|freier eintritt",
            "available": "auf lager|verfügbar|lieferbar|vorrätig",
            "open": "jetzt geöffnet|jetzt offen|gerade geöffnet",
            "accessible": "barrierefrei|barrierefreie|barrierefreien|rollstuhlgerecht|stufenfrei",
            "children": "für kinder|mit kindern|familienfreundlich|familienfreundliche|kinderfreundlich|für familien",
        }
    ),
    not_=any_of("nicht"),
    near=Sayings(
        {
            "place": "in der nähe von|in der nähe des|in der nähe der|in der nähe vom|nahe|nahe bei|neben|rund um",
            "here": "in der nähe|in meiner nähe|hier in der nähe",
        }
    ),
    from_place=any_of("von|um|vom"),
    here=any_of("mir|hier|uns"),
    places=any_of("in|im|aus|bei|am|beim"),
    makers=Sayings({True: "von|geschrieben von|verfasst von|der marke|von der marke|vom hersteller|hergestellt von"}),
    articles=any_of("der|die|das|den|dem|des|ein|eine|einen|einem|einer"),
    idioms=any_of(
        "keine ahnung|nicht sicher|warum nicht|ob oder nicht|kein problem|nicht nur|nicht mehr|nicht so|nicht zu"
        "|nicht sehr|im allgemeinen|am besten|zum beispiel|im moment|in ordnung|von hand|keine präferenz"
    ),
    stopwords=folded(STOPWORDS["de"]),
    capital_nouns=True,
    says_frei=True,
)

DATES = DateWords(
    names=Sayings(
        {
            "today": "heute",
            "tonight": "heute abend|heute nacht",
            "tomorrow": "morgen|morgen früh|morgen abend",
            "yesterday": "gestern",
            "upcoming": "demnächst",
            "this weekend": "dieses wochenende|diesem wochenende|am wochenende",
            "next weekend": "nächstes wochenende|nächsten wochenende",
            "last weekend": "letztes wochenende|letzten wochenende",
            "this week": "diese woche|dieser woche",
            "next week": "nächste woche|nächster woche",
            "last week": "letzte woche|letzter woche",
            "this month": "diesen monat|diesem monat",
            "next month": "nächsten monat",
            "last month": "letzten monat",
            "this year": "dieses jahr|diesem jahr",
            "next year": "nächstes jahr|nächsten jahr",
            "last year": "letztes jahr|letzten jahr",
        }
    ),
    weekdays=numbered("montag dienstag mittwoch donnerstag freitag samstag|sonnabend sonntag"),
    months=numbered(
        "januar|jänner|jan februar|feb märz april|apr mai juni|jun juli|jul august|aug september|sep|sept "
        "oktober|okt november|nov dezember|dez",
        start=1,
    ),
    before=Sayings({0: "diesen|diesem|dieser", 1: "nächsten|nächster|nächste", -1: "letzten|letzter|letzte"}),
    parts=any_of("früh|vormittag|mittag|nachmittag|abend|nacht"),
    prepositions=any_of("in|im|am|aus|während|im jahr|im jahre|von|vom|den"),
    bounds=Sayings(
        {
            "before": "vor|vor dem|älter als|vor dem jahr",
            "after": "nach|nach dem|neuer als",
            "since": "seit|seit dem|ab|ab dem",
            "until": "bis|bis zum|bis einschließlich|spätestens am",
        }
    ),
    onwards=any_of("von|vom"),
    on=any_of("an"),
    openers=any_of("zwischen|von|vom|zwischen dem"),
    joiners=any_of("und|bis|bis zum|und dem", DASHES),
    rolling=Sayings(
        {
            -1: "in den letzten|der letzten|in der letzten|die letzten|letzten|in den vergangenen",
            1: "in den nächsten|der nächsten|in der nächsten|die nächsten|nächsten|in den kommenden",
        }
    ),
    spans=Sayings(
        {
            (1, 0): "tag|tage|tagen",
            (7, 0): "woche|wochen",
            (0, 1): "monat|monate|monaten",
            (0, 12): "jahr|jahre|jahren",
        }
    ),
    the=any_of("der|den|dem"),
    ordinals=any_of("."),
    year_joiners=any_of("."),
    stopwords=folded(STOPWORDS["de"]),
)

SPEECH = speech(
    "de",
    capitals=False,
    joins="und|oder|aber|auch|nur|bloß|dann",
    shifts="was ist mit|wie wäre es mit|wie ist es mit|wie sieht es mit|wie steht es mit",
    corrects="nein,|nein ich meinte|ich meinte|ich meine|eigentlich|doch lieber|lieber|stattdessen|sorry",
    chats="ok|okay|ja|danke|bitte|gut|zeig mir|zeige mir|gib mir|finde|suche|such",
    closings="bitte stattdessen auch lieber denn danke",
    asking="""was wer wen wem wessen welche welcher welches welchen wie wann wo warum wieso woher wohin ist
    sind war waren hat haben hatte kann können soll wird werden ich wir du gibt muss darf""",
    limiting="""ohne mit unter über außer für in im bei nahe aus von vor nach zwischen bis ab kein keine
    keinen nicht nichts am an weniger""",
    placing="in im bei nahe aus",
    bounds="unter über weniger mehr als bis ab höchstens mindestens maximal etwa",
    swapping="statt",
    pronouns="es er ihn ihm sie ihnen dessen dazu dafür",
    owners="sein seine seinen ihre ihren",
    dummies="es",
    clausal="zu dass wenn",
    holding="mit|ohne|das hat|die hat|der hat|die haben",
    inside="in",
    relatives={"der": "sein seine seinen ihre ihren", "die": "ihre ihren", "das": "sein seine seinen"},
    unnamed="etwas irgendetwas jemand irgendjemand jeder",
    own="eigene eigenen eigener eigenes eigenem",
    these="diese diesen dieser dieses denen jene beide beiden",
    this="das dies",
    pointing="""mehr davon|mehr wie das|mehr wie diese|so etwas|der erste|die erste|das erste|
    der letzte|die letzte""",
    among="davon|von denen|von diesen|von ihnen|unter diesen",
    definite="der die das den dem",
    indefinite="ein eine einen",
    ordinals="erste ersten zweite zweiten dritte dritten letzte letzten nächste",
    ones="",
    comparing="""billiger billigere günstiger günstigere näher nähere größer größere kleiner kleinere
    schneller schnellere einfacher einfachere ähnliche andere mehr günstigste billigste nächste""",
    grading="am weniger",
    relational="""preis preise kosten gebühr öffnungszeiten adresse ort telefonnummer nummer vorteile
    nachteile unterschied unterschiede voraussetzungen anforderungen schritte ablauf grund gründe ursache
    ursachen folgen symptome behandlung arten beispiele größe alter länge entfernung dauer risiken zutaten
    kalorien bewertungen autor autorin geschichte bedeutung details alternativen ergebnis regeln""",
    empty="viele viel lange oft alt mal es",
    calendar="woche monat jahr wochenende morgen abend nacht tage sommer winter heute",
    slots="""januar februar märz april mai juni juli august september oktober november dezember|montag
    dienstag mittwoch donnerstag freitag samstag sonntag heute morgen wochenende|frühling sommer herbst
    winter|vegan vegetarisch|vegane vegetarische|veganes vegetarisches|frühstück mittagessen
    abendessen|klein mittel groß""",
)

PHRASES = Phrases(
    language="de",
    script=Script(
        decimal=",",
        group=".",
        money=trailing,
        signs={},
        units=(("Tag", "Tage"), ("Stunde", "Stunden"), ("Minute", "Minuten"), ("Sekunde", "Sekunden")),
        space=" ",
        day=dated(
            "{day}. {month} {year}",
            "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        ),
        comma=", ",
        last=lambda others, last: f"{others} und {last}",
        quote=lambda text: f"„{text}“",
    ),
    nouns={
        "Thing": ("Treffer", "Treffer"),
        "Article": ("Artikel", "Artikel"),
        "Book": ("Buch", "Bücher"),
        "Course": ("Kurs", "Kurse"),
        "Event": ("Veranstaltung", "Veranstaltungen"),
        "Hotel": ("Hotel", "Hotels"),
        "JobPosting": ("Stelle", "Stellen"),
        "Movie": ("Film", "Filme"),
        "Organization": ("Organisation", "Organisationen"),
        "Person": ("Person", "Personen"),
        "Place": ("Ort", "Orte"),
        "Product": ("Produkt", "Produkte"),
        "Question": ("Antwort", "Antworten"),
        "Recipe": ("Rezept", "Rezepte"),
        "Restaurant": ("Lokal", "Lokale"),
    },
    nothing="Ich habe nichts Passendes gefunden.",
    nothing_for=lambda what: f"Zu „{what}“ habe ich nichts gefunden.",
    nothing_within=lambda limits: (
        f"Mit {'diesen Vorgaben' if len(limits) > 1 else 'dieser Vorgabe'} habe ich nichts gefunden: "
        f"{'; '.join(limits)}. Vielleicht geht es auch ohne{' eine davon' if len(limits) > 1 else ''}."
    ),
    beyond=lambda names, limits: (
        f"Das würde passen, aber nicht mit {'diesen Vorgaben' if len(limits) > 1 else 'dieser Vorgabe'} "
        f"({'; '.join(limits)}): {names}."
    ),
    instead=lambda said, meant: f"„{said}“ kommt hier nicht vor. Das hier sind Ergebnisse für „{meant}“.",
    reached=lambda name, ways: f"{name} ist so zu erreichen{tail(': ', ', ', ways)}.",
    unreachable="Diese Seite sagt nicht, wie man einen Menschen erreicht.",
    fit=lambda count, noun: f"{count} {noun} {'passt' if count == 1 else 'passen'}.",
    best=lambda name, facts: f"Am besten passt {name}{tail(' (', ', ', facts, ')')}.",
    only=lambda name, facts: f"Es passt nur {name}{tail(' (', ', ', facts, ')')}.",
    also=lambda names: f"Außerdem: {names}.",
    selection=lambda spans: f"In dieser Auswahl: {'; '.join(spans)}.",
    takes=lambda time: f"dauert {time}",
    costs=lambda price: f"kostet {price}",
    free="kostenlos",
    rated=lambda rating: f"bewertet mit {rating}",
    rated_of=lambda rating, best: f"bewertet mit {rating} von {best}",
    on=lambda day: f"am {day}",
    at=lambda place: f"Ort: {place}",
    by=lambda author: f"von {author}",
    cuisine=lambda kinds: f"Küche: {kinds}",
    open=lambda hours: f"geöffnet {hours}",
    prices=lambda low, high: f"Preise von {low} bis {high}",
    times=lambda low, high: f"von {low} bis {high}",
    ratings=lambda low, high: f"bewertet mit {low} bis {high}",
    dates=lambda first, last: f"vom {first} bis zum {last}",
    tell_more="Erzählen Sie mir noch ein wenig mehr, dann finde ich etwas Passendes:",
    needs="Dafür muss ich noch wissen:",
    before_doing="Bevor ich etwas tue, sagen Sie bitte Ja oder Nein:",
    questions={
        "diet": "Worauf soll ich bei der Ernährung achten?",
        "time": "Wie viel Zeit haben Sie?",
        "price": "Was darf es kosten?",
        "kind": "Welche Art soll es sein?",
        "cuisine": "Auf welche Küche haben Sie Lust?",
        "date": "Wann soll es sein?",
        "place": "Wo soll es sein?",
        "rating": "Wie gut bewertet soll es sein?",
        "people": "Für wie viele Personen?",
    },
    which=lambda label: f"{capital(label)}: Was darf es sein?",
    which_collection="Wonach suchen Sie?",
    missing=lambda label: f"{capital(label)}?",
    confirm=lambda what: f"Soll ich das tun: {what}?",
    unbookable=lambda name: f"{name} nimmt keine Reservierungen an.",
    no_preference="egal",
    any="beliebig",
    yes="ja",
    no="nein",
    under=lambda most: f"unter {most}",
    up_to=lambda most: f"bis {most}",
    between=lambda low, high: f"{low}-{high}",
    over=lambda least: f"über {least}",
    working="Ich bin dabei …",
    waiting="Wartet noch, bis es an der Reihe ist",
    cancelled="Das wurde abgebrochen.",
    model_silent="Das Sprachmodell hat nicht geantwortet; dies ist aus den Einträgen selbst zusammengestellt.",
    model_unsupported="Die Einträge belegen nicht, was das Sprachmodell schrieb; dies ist aus ihnen zusammengestellt.",
    left_out=lambda said: f"Zu „{said}“ passt nichts; das hier ist ohne.",
    among=lambda count: f"Sortiert unter den {count} besten Treffern; es gibt noch mehr.",
    cut_short=lambda count: f"Die Treffer sind groß; nur {count} davon passen in diese Antwort.",
    ignored=lambda names: f"Hier ohne Bedeutung und deshalb nicht beachtet: {', '.join(names)}.",
    limits=Limits(
        words={
            "total time": "Zeit",
            "cook time": "Kochzeit",
            "prep time": "Vorbereitung",
            "duration": "Dauer",
            "price": "Preis",
            "low price": "Preis",
            "estimated cost": "Kosten",
            "average price": "Preis im Schnitt",
            "suitable for": "geeignet für",
            "recipe category": "Art des Gerichts",
            "recipe cuisine": "Küche",
            "serves cuisine": "Küche",
            "category": "Kategorie",
            "genre": "Genre",
            "article section": "Rubrik",
            "kind": "Art",
            "rating value": "Bewertung",
            "start date": "Datum",
            "end date": "Ende",
            "date published": "erschienen",
            "number of pages": "Seiten",
            "recipe yield": "Portionen",
            "author": "von",
            "brand": "Marke",
            "location": "Ort",
            "in language": "Sprache",
            "vegetarian": "vegetarisch",
            "vegan": "vegan",
            "gluten free": "glutenfrei",
            "dairy free": "milchfrei",
            "nut free": "nussfrei",
            "low calorie": "kalorienarm",
            "low fat": "fettarm",
            "low salt": "salzarm",
            "low lactose": "laktosearm",
            "diabetic": "für Diabetiker",
            "halal": "halal",
            "kosher": "koscher",
            "pescatarian": "pescetarisch",
            "breakfast": "Frühstück",
            "lunch": "Mittagessen",
            "dinner": "Abendessen",
            "dessert": "Nachtisch",
            "soup": "Suppe",
            "snack": "Snack",
        },
        field="{} {}",
        value="{}: {}",
        compares={
            "lt": "unter {}",
            "lte": "höchstens {}",
            "gt": "über {}",
            "gte": "mindestens {}",
            "eq": "genau {}",
            "between": "zwischen {} und {}",
        },
        since="ab {}",
        until="bis {}",
        lowest="niedrigste zuerst",
        highest="höchste zuerst",
        oldest="älteste zuerst",
        newest="neueste zuerst",
        without="ohne {}",
        free="kostenlos",
        in_stock="vorrätig",
        by="von {}",
        within="in {}",
        near="höchstens {} Meter von {}",
        made_of="{}, nach den Zutaten",
        kind="Art: {}",
        other_money=" (Preise sind hier in {})",
    ),
)

CONTRAST = Contrast(
    together=lambda parts: f"{'; '.join(parts)}.",
    side=lambda name, facts: f"{name}{tail(' (', ', ', facts, ')')}",
    ahead=lambda name, parts: f"{name} {PHRASES.join(parts)}",
    price=("kostet {} weniger", "kostet am wenigsten"),
    time=("dauert {} weniger", "dauert am kürzesten"),
    rating=("ist besser bewertet", "ist am besten bewertet"),
    day=("ist früher", "ist am frühesten"),
    choosing=folded("oder vs versus"),
    joining=folded("und mit als von gegen"),
    cues=folded(
        """vergleiche vergleich vergleichen vergleicht unterschied unterschiede unterscheidet unterscheiden zwischen vs
        versus billiger günstiger teurer preis preise kostet kosten besser schneller langsamer kürzer länger bewertet
        bewertung früher später"""
    ),
)
