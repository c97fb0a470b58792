"""What kinds of things there are and what people call them: types, diets, families of ingredients. Tables, no rules."""

import re
from functools import lru_cache

MAX_KIND = 100  # characters of the name of a kind: data may say anything

# Kinds of schema.org by the words that name them beyond their own; in the singular, stems are compared.
CALLED: dict[str, tuple[str, ...]] = {
    "Recipe": ("recipe", "dish", "cook", "rezept", "gericht", "kochen", "receta", "plato", "recette", "plat"),
    "Restaurant": ("restaurant", "place to eat", "eatery", "bistro", "restaurante"),
    "CafeOrCoffeeShop": ("café", "cafe", "coffee shop"),
    "BarOrPub": ("pub", "bar"),
    "Event": ("event", "veranstaltung", "evento", "événement"),
    "MusicEvent": ("concert", "gig", "konzert", "concierto"),
    "Product": ("product", "produkt", "producto", "produit"),
    "Book": ("book", "buch", "libro", "livre"),
    "Movie": ("movie", "film"),
    "Article": ("article", "news", "artikel", "nachrichten", "artículo", "noticias", "actualités"),
    "NewsArticle": ("news article",),
    "JobPosting": ("job", "vacancy", "stelle", "empleo", "emploi"),
    "Hotel": ("hotel",),
    "Course": ("course", "kurs", "curso", "cours"),
    "SoftwareApplication": ("app", "application", "software"),
    "Podcast": ("podcast",),
    "Person": ("person",),
}

# Kinds so wide that naming one says little of where to look.
WIDE = frozenset({"Thing", "Place", "CreativeWork", "WebPage", "Question", "Answer", "Organization", "Intangible", ""})

# Kinds that hold others whose names do not end like theirs.
HOLDS: dict[str, frozenset[str]] = {
    "FoodEstablishment": frozenset(
        {"Restaurant", "CafeOrCoffeeShop", "BarOrPub", "Bakery", "FastFoodRestaurant", "IceCreamShop", "Winery"}
    ),
    "LocalBusiness": frozenset({"Restaurant", "CafeOrCoffeeShop", "BarOrPub", "Bakery", "Hotel", "Store", "Library"}),
    "Article": frozenset({"BlogPosting", "Report", "SocialMediaPosting"}),
    "Event": frozenset({"Festival"}),
    "LodgingBusiness": frozenset({"Hotel", "Hostel", "BedAndBreakfast", "Motel"}),
    "Place": frozenset(
        {"City", "Beach", "Museum", "Park", "TouristAttraction", "EventVenue", "Church", "Library", "CityHall"}
    ),
    "CreativeWork": frozenset(
        {"Article", "NewsArticle", "BlogPosting", "Book", "Movie", "Recipe", "Podcast", "Course"}
    ),
}


def is_kind(kind: str, wanted: str) -> bool:
    """Whether things of one kind are also of another, whatever their case: an EducationEvent is an Event.

    The wanted kind may be written as schema.org has it, `https://schema.org/Event` or `schema:Event`.
    """
    name = local_name(wanted).lower()
    return name == "thing" or name in _endings(kind) or kind.lower() in _HELD.get(name, ())


def local_name(kind: str) -> str:
    """The name of a kind without its vocabulary."""
    return kind[max(kind.rfind(mark) for mark in "/#:") + 1 :].strip()


@lru_cache(maxsize=1024)
def _endings(kind: str) -> frozenset[str]:
    """The kinds that the name of a kind ends with, in lower case: educationevent and event."""
    if len(kind) > MAX_KIND:
        return frozenset()
    starts = [0, *(found.start() for found in re.finditer(r"(?<!^)[A-Z]", kind))]
    return frozenset(kind[start:].lower() for start in starts)


_HELD = {kind.lower(): frozenset(map(str.lower, held)) for kind, held in HOLDS.items()}


# Diets by their name in data, with what people say for them.
DIETS: dict[str, tuple[str, ...]] = {
    "vegetarian": (
        "vegetarian", "veggie", "meatless", "meat free", "vegetarisch", "vegetariano", "vegetariana", "végétarien",
        "végétarienne", "fleischlos", "sin carne", "素食", "ベジタリアン",
    ),
    "vegan": ("vegan", "plant based", "vegano", "vegana", "végétalien", "végane", "pflanzlich", "纯素", "ヴィーガン"),
    "gluten free": ("gluten free", "glutenfrei", "sin gluten", "sans gluten", "coeliac", "celiac", "无麸质"),
    "dairy free": ("dairy free", "milchfrei", "lactose free", "laktosefrei", "sin lactosa", "sans lactose"),
    "nut free": ("nut free", "nussfrei", "sin frutos secos", "sans noix"),
    "low calorie": ("low calorie", "kalorienarm"),
    "low fat": ("low fat", "fettarm"),
    "low salt": ("low salt", "low sodium"),
    "low lactose": ("low lactose",),
    "diabetic": ("diabetic",),
    "halal": ("halal",),
    "kosher": ("kosher", "koscher"),
    "hindu": ("hindu",),
    "pescatarian": ("pescatarian", "pescetarian"),
    "keto": ("keto", "ketogenic"),
    "paleo": ("paleo",),
}  # fmt: skip
MEETS: dict[str, tuple[str, ...]] = {
    "vegetarian": ("vegan",),
    "dairy free": ("vegan",),
    "pescatarian": ("vegetarian", "vegan"),
}

MEAT = (
    "meat", "chicken", "beef", "pork", "lamb", "bacon", "ham", "turkey", "duck", "veal", "sausage", "steak", "mince",
    "chorizo", "salami", "venison", "goose", "rabbit", "fleisch", "hähnchen", "rind", "schwein", "speck", "pollo",
    "carne", "poulet", "viande",
)  # fmt: skip
FISH = (
    "fish", "salmon", "tuna", "cod", "haddock", "herring", "kipper", "mackerel", "trout", "anchovy", "anchovies",
    "sardine", "sole", "halibut", "lachs", "fisch", "pescado", "poisson",
)  # fmt: skip
SHELLFISH = (
    "shellfish",
    "prawn",
    "shrimp",
    "crab",
    "lobster",
    "mussel",
    "oyster",
    "scallop",
    "clam",
    "crayfish",
    "squid",
)
NUTS = (
    "nut", "almond", "walnut", "hazelnut", "cashew", "pecan", "pistachio", "peanut", "macadamia", "chestnut",
    "pine nut", "marzipan", "praline", "mandel", "haselnuss", "walnuss", "erdnuss", "nuss", "nuez", "almendra", "noix",
    "amande", "noisette",
)  # fmt: skip
DAIRY = (
    "dairy", "milk", "butter", "cream", "cheese", "yoghurt", "yogurt", "milch", "käse", "sahne", "quark", "leche",
    "queso", "lait", "fromage", "crème",
)  # fmt: skip
CHEESE = (
    "cheese", "feta", "ricotta", "parmesan", "mozzarella", "cheddar", "halloumi", "brie", "gouda", "pecorino",
    "mascarpone", "käse", "queso", "fromage", "quark",
)  # fmt: skip
EGGS = (
    "egg", "yolk", "omelette", "meringue", "mayonnaise", "ei", "eier", "eigelb", "eiweiß", "rührei", "spiegelei",
    "huevo", "yema", "tortilla", "oeuf", "œuf", "jaune",
)  # fmt: skip
GLUTEN = ("gluten", "wheat", "barley", "rye", "flour", "bread", "pasta", "couscous", "weizen", "mehl", "brot")

# What must not be said of a thing that is to be without a family. Looked up by stem.
FAMILIES: dict[str, tuple[str, ...]] = {
    "nut": NUTS,
    "tree nut": NUTS,
    "nuss": NUTS,
    "noix": NUTS,
    "frutos secos": NUTS,
    "nuez": NUTS,
    "nueces": NUTS,
    "nüsse": NUTS,
    "dairy": DAIRY,
    "lactose": DAIRY,
    "milch": DAIRY,
    "leche": DAIRY,
    "lait": DAIRY,
    "lactosa": DAIRY,
    "meat": MEAT,
    "fleisch": MEAT,
    "carne": MEAT,
    "viande": MEAT,
    "fish": FISH,
    "fisch": FISH,
    "pescado": FISH,
    "poisson": FISH,
    "shellfish": SHELLFISH,
    "seafood": (*FISH, *SHELLFISH, "seafood"),
    "gluten": GLUTEN,
    "egg": EGGS,
    "ei": EGGS,
    "eier": EGGS,
    "huevo": EGGS,
    "oeuf": EGGS,
    "œuf": EGGS,
    "cheese": CHEESE,
    "käse": CHEESE,
    "queso": CHEESE,
    "fromage": CHEESE,
    "alcohol": ("alcohol", "wine", "beer", "rum", "whisky", "brandy", "cider", "vodka", "gin", "sherry", "perry"),
    "pork": ("pork", "bacon", "ham", "sausage", "chorizo", "salami", "schwein", "speck", "cerdo", "porc"),
}
# A family by its first name.
NAMED: dict[tuple[str, ...], str] = {words: name for name, words in reversed(FAMILIES.items())}
AVOIDED: dict[str, tuple[str, ...]] = {
    "vegetarian": (*MEAT, *FISH, *SHELLFISH),
    "vegan": (*MEAT, *FISH, *SHELLFISH, *DAIRY, "egg", "honey"),
}

# Words of a question that say nothing of what is wanted.
VAGUE = frozenset(
    """something anything somewhere anywhere idea ideas suggestion suggestions suggest recommend recommendation
    recommendations inspiration help whatever stuff thing things good nice great best tasty some option options choice
    any etwas irgendwas idee ideen vorschlag empfehlung empfehlen algo idea sugerencia recomienda quelque chose idée
    suggestion recommande eat cook make do go see buy""".split()  # noqa: SIM905 - words are read as words
)
OPEN = frozenset(
    {"something", "anything", "somewhere", "anywhere", "idea", "ideas", "suggestion", "suggestions", "suggest",
     "recommend", "help", "etwas", "irgendwas", "algo", "quelque"}
)  # fmt: skip
CHEAP = frozenset(
    {"cheap", "inexpensive", "affordable", "budget", "günstig", "günstige", "günstiges", "billig", "preiswert",
     "barato", "barata", "baratos", "económico", "abordable"}
)  # fmt: skip
# Words around "how many" that say nothing of what is counted.
COUNTED = frozenset(
    """many total altogether listed there here site gibt habt haben hier insgesamt hay tienen tienes tenéis aquí total
    avez ici catalogue catalog database list""".split()  # noqa: SIM905 - words are read as words
)
# Words that pick from what is in an order: "compare the two cheapest".
PICKING = frozenset(
    """compare show list two three four five top vergleiche zeige zwei drei vier fünf compara muestra dos tres cuatro
    cinco comparez montre deux trois quatre cinq""".split()  # noqa: SIM905 - words are read as words
)
# Orders by date that begin today; without accents.
SOON = frozenset(
    {"next", "soonest", "nachste", "nachsten", "nachster", "nachstes", "proximo", "proxima", "proximos", "proximas",
     "prochain", "prochaine", "prochains", "prochaines"}
)  # fmt: skip
# Words that ask whether something is open, on a day when nothing need take place; without accents.
HOURS = frozenset({"hours", "offnungszeiten", "horario", "horarios", "horaires"})
OPENING = HOURS | frozenset(
    {"open", "opens", "closed", "closes", "shut", "offen", "geoffnet", "offnet", "geschlossen", "abierto", "abierta",
     "abiertos", "abiertas", "abre", "abren", "cerrado", "cerrada", "cierra", "ouvert", "ouverte", "ouverts",
     "ouvertes", "ouvre", "ouvrent", "ferme", "fermee", "fermes"}
)  # fmt: skip
# What is called otherwise in data that is in English, or among friends.
ALSO: dict[str, tuple[str, ...]] = {
    "dinner": ("supper", "main course", "abendessen", "hauptgericht", "hauptgerichte", "cena", "cenas", "dîner"),
    "lunch": ("mittagessen", "almuerzo", "almuerzos", "déjeuner"),
    "breakfast": ("frühstück", "desayuno", "desayunos", "petit déjeuner"),
    "dessert": ("pudding", "nachtisch", "nachtische", "nachspeise", "nachspeisen", "postre", "postres"),
    "soup": ("suppe", "suppen", "sopa", "sopas", "soupe", "soupes", "potage"),
    "drink": ("beverage", "getränk", "getränke", "bebida", "bebidas", "boisson", "boissons"),
    "snack": ("imbiss", "imbisse", "tentempié", "tentempiés", "en-cas"),
    "side": ("side dish", "beilage", "beilagen", "guarnición", "guarniciones", "accompagnement"),
    "salad": ("salat", "salate", "ensalada", "ensaladas", "salade", "salades"),
}
DESCRIBING = frozenset({"with", "containing", "mit", "con", "avec"})  # what follows says which one
COOKING = frozenset(
    {"cook", "bake", "eat", "dinner", "lunch", "breakfast", "supper", "kochen", "backen", "essen", "abendessen",
     "cocinar", "cenar", "comer", "cuisiner", "manger", "dîner"}
)  # fmt: skip
DOERS = frozenset({"i", "we", "you", "they", "he", "she", "it", "to", "can", "could", "should", "must", "would"})
# Question words that ask for no thing; without accents.
ASIDE = frozenset(
    {"who", "where", "when", "why", "how", "wer", "wo", "wann", "warum", "wie", "quien", "donde", "cuando", "como",
     "qui", "ou", "quand", "pourquoi", "comment"}
)  # fmt: skip
WHAT = frozenset({"what", "what's", "was", "que", "qu'est-ce"})
ASKING = frozenset(
    {"who", "what", "why", "how", "when", "where", "which", "is", "are", "was", "were", "do", "does", "did", "can",
     "could", "should", "will", "would", "has", "have", "had", "wer", "warum", "wie", "wann", "wo", "welche",
     "welcher", "welches", "ist", "sind", "kann", "quién", "qué", "por", "cómo", "cuándo", "dónde", "cuál", "es",
     "qui", "que", "quoi", "pourquoi", "comment", "quand", "où", "quel", "quelle", "est"}
)  # fmt: skip
