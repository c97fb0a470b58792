"""Requests to reach a person, and the contact details of a site. Reads words and data; searches nothing."""

from collections.abc import Iterable, Mapping
from typing import Any

from portico.ask.facts import texts_at
from portico.ask.languages.wordlists import fold_words
from portico.ask.understanding.fields import Fields
from portico.query import Condition, Filter, Or
from portico.search.index.text import STOPWORDS, fold, words

# A person is wanted, or a way to one: one of these has to be said, without accents and capitals.
_PEOPLE = fold_words(
    """human humans person someone somebody agent operator staff manager representative advisor adviser assistant mensch
    menschen mitarbeiter mitarbeiterin berater persona humano agente asesor empleado alguien personne humain conseiller
    employe quelqu موظف شخص إنسان"""
)
_CONTACT = fold_words("contact hotline helpline helpdesk kontakt kontaktieren contacto contactar contacter تواصل اتصال")
# Also a product, unless another word is about contact: "your phone number".
_CHANNELS = fold_words(
    """contacts support phone telephone email mail kontaktdaten telefon telefonnummer telefono correo courriel هاتف"""
)
# Other words that a contact request may contain.
_AROUND = fold_words(
    """speak talk chat call ring write reach connect transfer put real live actual customer service services team number
    address details info information your yours us you like sprechen reden anrufen erreichen schreiben echten echter
    kundenservice kundendienst nummer adresse euch ihnen möchte will hablar llamar escribir cliente atencion numero
    direccion quiero puedo ustedes vosotros parler appeler ecrire joindre vrai vraie client veux
    voudrais puis peux بكم معكم التحدث أريد مع إلى"""
)
_SPEAKING_VERBS = fold_words(
    "speak talk chat call connect transfer reach sprechen reden hablar llamar parler joindre التحدث"
)
_IDLE = fold_words(word for language in STOPWORDS.values() for word in language)
_WHOLE_PHRASES = ("联系方式", "人工客服", "客服", "联系你们", "联系我们", "お問い合わせ", "連絡先", "担当者と話したい")

# Types whose only item on a site speaks for it.
_CONTACT_TYPES = (
    "Organization",
    "Corporation",
    "OnlineStore",
    "OnlineBusiness",
    "LocalBusiness",
    "GovernmentOrganization",
)
_POINTS = ("contactPoint.telephone", "contactPoint.email", "contactPoint.url")
_FACTS = (*_POINTS, "telephone", "email")


def is_contact_request(text: str, *, is_alone: bool = True) -> bool:
    """Return whether a question is a contact request. Every word of it has to be about that.

    What does not stand alone may ask for the number of something else.
    """
    if text.strip(" .!?？。！") in _WHOLE_PHRASES:
        return True
    question_words = {fold(word) for word in words(text)}
    significant = question_words - _IDLE
    if not significant or not significant <= _PEOPLE | _CONTACT | _CHANNELS | _AROUND:
        return False
    is_spoken_to = not significant.isdisjoint(_PEOPLE) and not significant.isdisjoint(_SPEAKING_VERBS)
    is_sought = not significant.isdisjoint(_CHANNELS) and not question_words.isdisjoint(_AROUND)
    return is_spoken_to or (is_alone and (is_sought or not significant.isdisjoint(_CONTACT)))


def find_contact_item(site: Iterable[Fields]) -> tuple[str, Filter] | None:
    """Return where to look for contact details: the one collection that has them, or the only organisation."""
    all_fields = list(site)
    points = [(known_fields, path) for known_fields in all_fields for path in _POINTS if known_fields.held_values(path)]
    if len({known_fields.collection.name for known_fields, _ in points}) == 1:
        has_one = tuple(Condition(path, "exists", True) for _, path in points)
        return points[0][0].collection.name, Or(has_one)
    kinds = [
        (known_fields, kind)
        for known_fields in all_fields
        for kind in _CONTACT_TYPES
        if known_fields.held_values("@type").get(kind)
    ]
    if len(kinds) == 1 and kinds[0][0].held_values("@type")[kinds[0][1]] == 1:
        fields, kind = kinds[0]
        return fields.collection.name, Condition("@type", "eq", kind)
    return None


def contact_details(data: Mapping[str, Any]) -> list[str]:
    """Return the numbers and addresses that an item is reached at."""
    return list(dict.fromkeys(text for path in _FACTS for text in texts_at(data, path)))
