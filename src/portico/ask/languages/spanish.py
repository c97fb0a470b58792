"""Spanish: the words that are read in questions and follow-ups, and the phrases that are said. Has no rules."""

import re

from portico.ask.calendar import DateWords
from portico.ask.lexicon import (
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
)
from portico.ask.phrasebook import Phrases, Script, capital, dated, tail, trailing
from portico.ask.sayings import DASHES, Sayings, any_of, folded, numbered
from portico.ask.speech import speech
from portico.index.text import STOPWORDS

_I_SOUND = re.compile(r"h?[ií](?![aeo])", re.IGNORECASE)  # before it, "y" becomes "e"

LEXICON = Lexicon(
    decimal=",",
    numbers=Sayings(
        {
            1.0: "un|una|uno",
            2.0: "dos",
            3.0: "tres",
            4.0: "cuatro",
            5.0: "cinco",
            6.0: "seis",
            7.0: "siete",
            8.0: "ocho",
            9.0: "nueve",
            10.0: "diez",
            11.0: "once",
            12.0: "doce",
            0.5: "media|medio",
        }
    ),
    and_a_half=any_of("y media|y medio"),
    and_=any_of("y|con"),
    of=any_of("de"),
    units=Sayings(
        UNITS_ANYWHERE,
        {
            DOLLAR: "dólar|dólares",
            EURO: "euro|euros",
            POUND: "libra|libras",
            YEN: "yenes",
            FRANC: "francos",
            SECOND: "segundo|segundos",
            MINUTE: "minuto|minutos",
            HOUR: "hora|horas",
            DAY: "día|días",
            WEEK: "semana|semanas",
            MONTH: "mes|meses",
            YEAR: "año|años",
            METRE: "metro|metros",
            KILOMETRE: "kilómetro|kilómetros",
            MILE: "milla|millas",
            STARS: "estrella|estrellas|de 5 estrellas",
            GRAM: "gramo|gramos",
            PERCENT: "por ciento",
            KILOGRAM: "kilo|kilos",
            CALORIES: "caloría|calorías",
            PAGES: "página|páginas",
            SERVINGS: "porción|porciones|raciones",
            PEOPLE: "persona|personas|adultos",
            INGREDIENTS: "ingrediente|ingredientes",
            REVIEWS: "reseña|reseñas",
        },
    ),
    comparisons=Sayings(
        COMPARISONS_ANYWHERE,
        {
            Comparison("lt"): "menos de|menor que|menor de|por debajo de|menos que|inferior a",
            Comparison("lt", hint="price"): "más barato que|más baratos que",
            Comparison("lte"): "hasta|como máximo|como mucho|máximo|no más de|a lo sumo|un máximo de",
            Comparison("lte", TIMED): "en|de",
            Comparison("gt"): "más de|mayor que|mayor de|por encima de|superior a",
            Comparison("gt", hint="price"): "más caro que|más caros que",
            Comparison("gte"): "al menos|por lo menos|como mínimo|mínimo|no menos de|un mínimo de",
            Comparison("gte", MEASURED): "desde|a partir de",
            Comparison("gte", SEATED): "para",
            Comparison("eq"): "exactamente",
            Comparison("about", MEASURED): "unos|unas|alrededor de|aproximadamente|cerca de",
        },
    ),
    afterwards=Sayings({"lte": "o menos|como máximo|máximo|como mucho", "gte": "+|o más|como mínimo|mínimo|al menos"}),
    between=any_of("entre"),
    from_=any_of("de|desde"),
    to=any_of("y|a|hasta", DASHES),
    leads=Sayings(
        {
            "": "en|por|con|de",
            "price": "precio|que cuesten|que cuestan|precio de",
            "rating": "valoración|valorado con",
        }
    ),
    sorts=Sayings(
        {
            CHEAP: "más barato|más barata|más baratos|más baratas|más económico|más económica|menor precio|menos caro",
            COSTLY: "más caro|más cara|más caros|más caras|mayor precio",
            QUICK: "más rápido|más rápida|más rápidos|más rápidas|más corto|más corta|más cortos|más cortas",
            LONG: "más largo|más larga|más largos|más largas",
            LIKED: "mejor valorado|mejor valorada|mejor valorados|mejor valoradas|mejor puntuado|más popular"
            "|más populares",
            DISLIKED: "peor valorado|peor valorada|peor valorados|peor valoradas",
            NEW: "más nuevo|más nueva|más nuevos|más nuevas|más reciente|más recientes|último|última|últimos|últimas",
            OLD: "más antiguo|más antigua|más antiguos|más antiguas|próximo|próxima|próximos|próximas",
            CLOSE: "más cercano|más cercana|más cercanos|más cercanas",
        }
    ),
    extremes=Sayings({True: "con más|mayor", False: "con menos|menor"}),
    exclusions=Sayings(
        {
            "firm": "sin|excepto|salvo|pero no|todo menos|alérgico a|alérgica a|alergia a|no como|no me gusta"
            "|no me gustan|no quiero|que no sea|que no sean|libre de|que no contenga|que no lleve",
            "loose": "no|no en",
        }
    ),
    listing=Sayings({"next": ",", "last": "o|y|ni|e|u"}),
    asking=Sayings({"never": "por qué|cuándo|quién", "tied": "es|son|está|están|hay|puedo|puede|tiene|cómo|dónde"}),
    ties=folded(", ; pero con y o algo"),
    beings=folded("es son está están tiene tienen"),
    verbs=folded("hay puedo puede tengo yo se lo"),
    relatives=folded("que"),
    flags=Sayings(
        {
            "free": "gratis|gratuito|gratuita|gratuitos|gratuitas|sin coste",
            "available": "en stock|disponible|disponibles",
            "open": "abierto ahora|abierta ahora|abiertos ahora|abiertas ahora",
            "accessible": "accesible en silla de ruedas|accesibles en silla de ruedas|sin escalones",
            "children": "para niños|con niños|para familias|para los niños",
        }
    ),
    not_=any_of("no"),
    near=Sayings(
        {
            "place": "cerca de|cerca del|junto a|junto al|al lado de|al lado del|alrededor de",
            "here": "cerca|cerca de mí|cerca de aquí|aquí cerca",
        }
    ),
    from_place=any_of("de|del"),
    here=any_of("mí|aquí"),
    places=any_of("en"),
    makers=Sayings(
        {True: "por|escrito por|escrita por|escritos por|de la marca|hecho por|del autor|de la autora|dirigida por"}
    ),
    articles=any_of("el|la|los|las|un|una|unos|unas"),
    idioms=any_of(
        "por favor|no sé|por qué no|por ejemplo|no importa|no solo|no muy|en general|en casa|por la mañana|por ahora"
        "|o no|en serio|en total|por mí|no demasiado"
    ),
    stopwords=folded(STOPWORDS["es"]),
)

DATES = DateWords(
    names=Sayings(
        {
            "today": "hoy",
            "tonight": "esta noche",
            "tomorrow": "mañana",
            "yesterday": "ayer",
            "upcoming": "próximamente",
            "this weekend": "este fin de semana|el fin de semana",
            "next weekend": "próximo fin de semana|el próximo fin de semana|fin de semana que viene",
            "last weekend": "fin de semana pasado|el fin de semana pasado",
            "this week": "esta semana",
            "next week": "próxima semana|la próxima semana|semana que viene|la semana que viene",
            "last week": "semana pasada|la semana pasada",
            "this month": "este mes",
            "next month": "próximo mes|el próximo mes|mes que viene|el mes que viene",
            "last month": "mes pasado|el mes pasado",
            "this year": "este año",
            "next year": "próximo año|el próximo año|año que viene|el año que viene",
            "last year": "año pasado|el año pasado",
        }
    ),
    weekdays=numbered("lunes martes miércoles jueves viernes sábado domingo"),
    months=numbered(
        "enero febrero marzo abril mayo junio julio agosto septiembre|setiembre octubre noviembre diciembre", start=1
    ),
    before=Sayings({0: "este", 1: "próximo|el próximo", -1: "último|el último"}),
    behind=Sayings({1: "que viene|próximo", -1: "pasado"}),
    parts=any_of("por la mañana|por la tarde|por la noche"),
    prepositions=any_of("en|el|de|del|durante|en el año"),
    bounds=Sayings(
        {
            "before": "antes de|antes del",
            "after": "después de|después del|tras",
            "since": "desde|a partir de|desde el|a partir del",
            "until": "hasta|hasta el",
        }
    ),
    onwards=any_of("de"),
    on=any_of("en adelante"),
    openers=any_of("entre|de|desde|del|desde el|entre el"),
    joiners=any_of("y|a|al|hasta|hasta el|y el", DASHES),
    rolling=Sayings(
        {
            -1: "en los últimos|en las últimas|los últimos|las últimas|últimos|últimas",
            1: "en los próximos|en las próximas|los próximos|las próximas|próximos|próximas",
        }
    ),
    rolling_behind=Sayings({-1: "últimos|últimas", 1: "próximos|próximas"}),
    rolling_article=any_of("los|las|en los|en las"),
    spans=Sayings({(1, 0): "día|días", (7, 0): "semana|semanas", (0, 1): "mes|meses", (0, 12): "año|años"}),
    the=any_of("el"),
    ordinals=any_of("de|º de|º"),
    year_joiners=any_of("de|del"),
    stopwords=folded(STOPWORDS["es"]),
)

SPEECH = speech(
    "es",
    adjectives_first=False,
    joins="y|e|o|pero|también|además|solo|solamente",
    shifts="qué tal|qué hay de|y qué hay de|y qué tal|qué pasa con",
    corrects="no,|en realidad|quería decir|quise decir|quiero decir|me refería a|mejor|perdón",
    chats="vale|ok|bueno|gracias|sí|por favor|muéstrame|dame|busca",
    closings="favor por también entonces gracias",
    asking="""qué que quién quiénes cuál cuáles cómo cuándo dónde cuánto cuántos cuánta cuántas es son era
    fue hay está están tiene tienen puede puedo debo yo""",
    limiting="sin con bajo menos más excepto para en cerca de desde hasta entre antes después por no nada a",
    placing="en cerca desde",
    bounds="menos más de hasta máximo mínimo unos",
    swapping="en vez de",
    pronouns="él ella ellos ellas lo",
    owners="su sus",
    dummies="",
    clausal="",
    holding="con|sin|que tiene|que tienen|que tenga|que tengan|que lleva|que llevan|que lleve|que lleven",
    inside="en",
    relatives={"que": "su sus"},
    unnamed="algo alguien",
    own="propio propia propios propias",
    these="estos estas esos esas este esta ese esa ellos ellas ambos",
    this="esto eso",
    pointing="""más como esto|más como ese|el primero|la primera|el segundo|la segunda|el último|
    la última|parecidos""",
    among="de esos|de esas|de estos|de estas|de ellos|de ellas",
    definite="el la los las",
    indefinite="un una",
    ordinals="primero primera segundo segunda tercero tercera último última",
    ones="",
    comparing="""más menos mejor mejores barato baratos barata baratas cercano cercanos rápido rápidos
    parecido otros""",
    relational="""precio precios coste costo tarifa horario horarios dirección ubicación teléfono número
    ventajas desventajas diferencia diferencias requisitos pasos proceso razón razones causa causas efectos
    síntomas tratamiento tipos ejemplos tamaño edad duración riesgos ingredientes calorías autor historia
    importancia significado detalles alternativas resultado reglas""",
    empty="mucho muchos",
    calendar="semana mes año mañana tarde noche días verano invierno hoy",
    slots="""enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre|
    lunes martes miércoles jueves viernes sábado domingo hoy mañana|primavera verano otoño invierno|
    vegano vegetariano|vegana vegetariana|veganos vegetarianos|veganas vegetarianas|desayuno almuerzo
    cena|barato caro|pequeño mediano grande""",
)

PHRASES = Phrases(
    language="es",
    script=Script(
        decimal=",",
        group=".",
        money=trailing,
        signs={},
        units=(("día", "días"), ("hora", "horas"), ("minuto", "minutos"), ("segundo", "segundos")),
        space=" ",
        day=dated(
            "{day} de {month} de {year}",
            "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        ),
        comma=", ",
        last=lambda others, last: f"{others} {'e' if _I_SOUND.match(last) else 'y'} {last}",
        quote=lambda text: f"«{text}»",
    ),
    nouns={
        "Thing": ("resultado", "resultados"),
        "Article": ("artículo", "artículos"),
        "Book": ("libro", "libros"),
        "Course": ("curso", "cursos"),
        "Event": ("evento", "eventos"),
        "Hotel": ("hotel", "hoteles"),
        "JobPosting": ("empleo", "empleos"),
        "Movie": ("película", "películas"),
        "Organization": ("organización", "organizaciones"),
        "Person": ("persona", "personas"),
        "Place": ("lugar", "lugares"),
        "Product": ("producto", "productos"),
        "Question": ("respuesta", "respuestas"),
        "Recipe": ("receta", "recetas"),
        "Restaurant": ("sitio para comer", "sitios para comer"),
    },
    nothing="No he encontrado nada que encaje.",
    nothing_for=lambda what: f"No he encontrado nada sobre «{what}».",
    nothing_within=lambda limits: (
        f"No he encontrado nada con {'estas condiciones' if len(limits) > 1 else 'esta condición'}: "
        f"{'; '.join(limits)}. Quizá ayude {'quitar alguna' if len(limits) > 1 else 'quitarla'}."
    ),
    fit=lambda count, noun: f"{count} {noun} {'encaja' if count == 1 else 'encajan'}.",
    best=lambda name, facts: f"Lo que mejor encaja es {name}{tail(' (', ', ', facts, ')')}.",
    only=lambda name, facts: f"Lo único que encaja es {name}{tail(' (', ', ', facts, ')')}.",
    also=lambda names: f"También: {names}.",
    selection=lambda spans: f"En esta selección: {'; '.join(spans)}.",
    takes=lambda time: f"lleva {time}",
    costs=lambda price: f"cuesta {price}",
    free="gratis",
    rated=lambda rating: f"valoración de {rating}",
    rated_of=lambda rating, best: f"valoración de {rating} sobre {best}",
    on=lambda day: f"el {day}",
    at=lambda place: f"lugar: {place}",
    by=lambda author: f"de {author}",
    cuisine=lambda kinds: f"cocina: {kinds}",
    prices=lambda low, high: f"precios de {low} a {high}",
    times=lambda low, high: f"de {low} a {high}",
    ratings=lambda low, high: f"valoraciones de {low} a {high}",
    dates=lambda first, last: f"del {first} al {last}",
    tell_more="Para dar con lo que buscas, cuéntame un poco más:",
    questions={
        "diet": "¿Sigues alguna dieta?",
        "time": "¿Cuánto tiempo tienes?",
        "price": "¿Cuánto quieres gastar?",
        "kind": "¿De qué tipo?",
        "cuisine": "¿Qué cocina te apetece?",
        "date": "¿Para cuándo?",
        "place": "¿En qué lugar?",
        "rating": "¿Qué valoración debe tener?",
        "people": "¿Para cuántas personas?",
    },
    which=lambda label: f"¿Qué {label}?",
    which_collection="¿Qué buscas?",
    missing=lambda label: f"¿{capital(label)}?",
    confirm=lambda what: f"¿Lo hago: {what}?",
    no_preference="me da igual",
    any="cualquiera",
    yes="sí",
    no="no",
    under=lambda most: f"menos de {most}",
    up_to=lambda most: f"hasta {most}",
    between=lambda low, high: f"{low}-{high}",
    over=lambda least: f"más de {least}",
    working="Estoy en ello…",
    waiting="A la espera de su turno",
    cancelled="Se ha cancelado.",
    model_silent="El modelo de lenguaje no ha respondido; esto procede directamente de los propios elementos.",
    left_out=lambda said: f"Nada encaja con «{said}»; esto es sin ello.",
    among=lambda count: f"Ordenado entre las {count} mejores coincidencias; hay más.",
    ignored=lambda names: f"Sin efecto aquí, así que no se ha tenido en cuenta: {', '.join(names)}.",
)
