"""The kinds of things and what people call them: types, diets, families of ingredients. Tables, no rules.

The tables are TOML files beside this module, read when they are first needed.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, TypeAlias

MAX_KIND = 100  # characters of the name of a kind: data may say anything


Words: TypeAlias = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class KindTables:
    """The tables of `kinds.toml`."""

    names: Words
    wide: frozenset[str]
    subkinds: Mapping[str, frozenset[str]]  # in lower case
    category_synonyms: Words


@dataclass(frozen=True, slots=True)
class FoodTables:
    """The tables of `food.toml`."""

    diets: Words
    stricter_diets: Words
    ingredients: Words  # by each name of a family
    family_names: Mapping[tuple[str, ...], str]  # the first name of a family, by its words
    avoided: Words  # by diet


@cache
def kind_tables() -> KindTables:
    tables = _load("kinds.toml")
    subkinds = {kind.lower(): frozenset(map(str.lower, held)) for kind, held in tables["subkinds"].items()}
    return KindTables(_words(tables["names"]), frozenset(tables["wide"]), subkinds, _words(tables["category_synonyms"]))


@cache
def food_tables() -> FoodTables:
    tables = _load("food.toml")
    families: dict[str, dict[str, list[str]]] = tables["families"]

    def words_of_all(names: Iterable[str]) -> list[str]:
        return [word for name in names for word in families[name]["words"]]

    ingredients = {
        name: (*words_of_all(family.get("includes", ())), *family["words"])
        for family in families.values()
        for name in family["names"]
    }
    avoided = {
        diet: (*words_of_all(rule["families"]), *rule.get("words", ())) for diet, rule in tables["avoided"].items()
    }
    family_names = {words: name for name, words in reversed(ingredients.items())}
    return FoodTables(_words(tables["diets"]), _words(tables["stricter_diets"]), ingredients, family_names, avoided)


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads(files("portico.ask.understanding").joinpath(name).read_text("utf-8"))


def _words(table: Mapping[str, list[str]]) -> Words:
    return {name: tuple(words) for name, words in table.items()}


def is_kind(kind: str, other: str) -> bool:
    """Return whether things of one kind are also of another, whatever their case: an EducationEvent is an Event.

    The wanted kind may be written as schema.org has it, `https://schema.org/Event` or `schema:Event`.
    """
    name = local_name(other).lower()
    return name == "thing" or name in _endings(kind) or kind.lower() in kind_tables().subkinds.get(name, ())


def local_name(kind: str) -> str:
    """Return the name of a kind without its vocabulary."""
    return kind[max(kind.rfind(mark) for mark in "/#:") + 1 :].strip()


@lru_cache(maxsize=1024)
def _endings(kind: str) -> frozenset[str]:
    """Return the kinds that the name of a kind ends with, in lower case: educationevent and event."""
    if len(kind) > MAX_KIND:
        return frozenset()
    starts = [0, *(match.start() for match in re.finditer(r"(?<!^)[A-Z]", kind))]
    return frozenset(kind[start:].lower() for start in starts)


# Words of a question that say nothing of what is wanted.
VAGUE_WORDS = frozenset(
    """something anything somewhere anywhere idea ideas suggestion suggestions suggest recommend recommendation
    recommendations inspiration help whatever stuff thing things good nice great best tasty some option options choice
    any etwas irgendwas idee ideen vorschlag empfehlung empfehlen algo idea sugerencia recomienda quelque chose idée
    suggestion recommande eat cook make do go see buy""".split()  # noqa: SIM905 - words are read as words
)
OPEN_WORDS = frozenset(
    {"something", "anything", "somewhere", "anywhere", "idea", "ideas", "suggestion", "suggestions", "suggest",
     "recommend", "help", "etwas", "irgendwas", "algo", "quelque"}
)  # fmt: skip
CHEAP_WORDS = frozenset(
    {"cheap", "inexpensive", "affordable", "budget", "günstig", "günstige", "günstiges", "billig", "preiswert",
     "barato", "barata", "baratos", "económico", "abordable"}
)  # fmt: skip
# Words around "how many" that say nothing of what is counted.
COUNT_FILLERS = frozenset(
    """many total altogether listed there here site gibt habt haben hier insgesamt hay tienen tienes tenéis aquí total
    avez ici catalogue catalog database list""".split()  # noqa: SIM905 - words are read as words
)
# Words that pick from what is in an order: "compare the two cheapest".
PICK_WORDS = frozenset(
    """compare show list two three four five top vergleiche zeige zwei drei vier fünf compara muestra dos tres cuatro
    cinco comparez montre deux trois quatre cinq""".split()  # noqa: SIM905 - words are read as words
)
# Orders by date that begin today; without accents.
SOON_WORDS = frozenset(
    {"next", "soonest", "nachste", "nachsten", "nachster", "nachstes", "proximo", "proxima", "proximos", "proximas",
     "prochain", "prochaine", "prochains", "prochaines"}
)  # fmt: skip
# Words that ask whether something is open, on a day when nothing need take place; without accents.
HOURS_WORDS = frozenset({"hours", "offnungszeiten", "horario", "horarios", "horaires"})
OPENING_WORDS = HOURS_WORDS | frozenset(
    {"open", "opens", "closed", "closes", "shut", "offen", "geoffnet", "offnet", "geschlossen", "abierto", "abierta",
     "abiertos", "abiertas", "abre", "abren", "cerrado", "cerrada", "cierra", "ouvert", "ouverte", "ouverts",
     "ouvertes", "ouvre", "ouvrent", "ferme", "fermee", "fermes"}
)  # fmt: skip
DESCRIBING_WORDS = frozenset({"with", "containing", "mit", "con", "avec"})  # what follows says which one
COOKING_WORDS = frozenset(
    {"cook", "bake", "eat", "dinner", "lunch", "breakfast", "supper", "kochen", "backen", "essen", "abendessen",
     "cocinar", "cenar", "comer", "cuisiner", "manger", "dîner"}
)  # fmt: skip
PRONOUNS = frozenset({"i", "we", "you", "they", "he", "she", "it", "to", "can", "could", "should", "must", "would"})
# Question words that ask for no thing; without accents.
ADVERBIAL_QUESTIONS = frozenset(
    {"who", "where", "when", "why", "how", "wer", "wo", "wann", "warum", "wie", "quien", "donde", "cuando", "como",
     "qui", "ou", "quand", "pourquoi", "comment"}
)  # fmt: skip
WHAT_WORDS = frozenset({"what", "what's", "was", "que", "qu'est-ce"})
QUESTION_WORDS = frozenset(
    {"who", "what", "why", "how", "when", "where", "which", "is", "are", "was", "were", "do", "does", "did", "can",
     "could", "should", "will", "would", "has", "have", "had", "wer", "warum", "wie", "wann", "wo", "welche",
     "welcher", "welches", "ist", "sind", "kann", "quién", "qué", "por", "cómo", "cuándo", "dónde", "cuál", "es",
     "qui", "que", "quoi", "pourquoi", "comment", "quand", "où", "quel", "quelle", "est"}
)  # fmt: skip
