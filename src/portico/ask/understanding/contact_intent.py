"""Who wants to reach a person, and how this site says that they can. Reads words and data; searches nothing."""

from collections.abc import Iterable, Mapping
from typing import Any

from portico.ask.facts import texts_at
from portico.ask.languages.wordlists import folded
from portico.ask.understanding.fields import Fields
from portico.query import Condition, Filter, Or
from portico.search.index.text import STOPWORDS, fold, words

# A person is wanted, or a way to one: one of these has to be said, without accents and capitals.
_PEOPLE = folded(
    """human humans person someone somebody agent operator staff manager representative advisor adviser assistant mensch
    menschen mitarbeiter mitarbeiterin berater persona humano agente asesor empleado alguien personne humain conseiller
    employe quelqu موظف شخص إنسان"""
)
_CONTACT = folded("contact hotline helpline helpdesk kontakt kontaktieren contacto contactar contacter تواصل اتصال")
# A thing to buy, too, unless something else that is said is about reaching somebody: "your phone number".
_WAYS = folded(
    """contacts support phone telephone email mail kontaktdaten telefon telefonnummer telefono correo courriel هاتف"""
)
# What else may be said by somebody who wants nothing but that.
_AROUND = folded(
    """speak talk chat call ring write reach connect transfer put real live actual customer service services team number
    address details info information your yours us you like sprechen reden anrufen erreichen schreiben echten echter
    kundenservice kundendienst nummer adresse euch ihnen möchte will hablar llamar escribir cliente atencion numero
    direccion quiero puedo ustedes vosotros parler appeler ecrire joindre vrai vraie client veux
    voudrais puis peux بكم معكم التحدث أريد مع إلى"""
)
_SPEAKING = folded("speak talk chat call connect transfer reach sprechen reden hablar llamar parler joindre التحدث")
_IDLE = folded(word for language in STOPWORDS.values() for word in language)
_SAID_WHOLE = ("联系方式", "人工客服", "客服", "联系你们", "联系我们", "お問い合わせ", "連絡先", "担当者と話したい")

# Types whose only item on a site speaks for it.
_SPEAKERS = ("Organization", "Corporation", "OnlineStore", "OnlineBusiness", "LocalBusiness", "GovernmentOrganization")
_POINTS = ("contactPoint.telephone", "contactPoint.email", "contactPoint.url")
_FACTS = (*_POINTS, "telephone", "email")


def wants_a_person(text: str, *, is_alone: bool = True) -> bool:
    """Whether somebody wants to talk to people, and not to find something: every word has to be about that.

    What does not stand alone may ask for the number of something else.
    """
    if text.strip(" .!?？。！") in _SAID_WHOLE:
        return True
    said = {fold(word) for word in words(text)}
    telling = said - _IDLE
    if not telling or not telling <= _PEOPLE | _CONTACT | _WAYS | _AROUND:
        return False
    is_spoken_to = not telling.isdisjoint(_PEOPLE) and not telling.isdisjoint(_SPEAKING)
    is_sought = not telling.isdisjoint(_WAYS) and not said.isdisjoint(_AROUND)
    return is_spoken_to or (is_alone and (is_sought or not telling.isdisjoint(_CONTACT)))


def speaker(site: Iterable[Fields]) -> tuple[str, Filter] | None:
    """Where to look for whom to reach: what has a contact point, if one collection has, or the only organisation."""
    known = list(site)
    points = [(each, path) for each in known for path in _POINTS if each.held(path)]
    if len({each.collection.name for each, _ in points}) == 1:
        has_one = tuple(Condition(path, "exists", True) for _, path in points)
        return points[0][0].collection.name, Or(has_one)
    kinds = [(each, kind) for each in known for kind in _SPEAKERS if each.held("@type").get(kind)]
    if len(kinds) == 1 and kinds[0][0].held("@type")[kinds[0][1]] == 1:
        fields, kind = kinds[0]
        return fields.collection.name, Condition("@type", "eq", kind)
    return None


def ways_to(data: Mapping[str, Any]) -> list[str]:
    """The numbers and addresses that an item is reached at."""
    return list(dict.fromkeys(text for path in _FACTS for text in texts_at(data, path)))
