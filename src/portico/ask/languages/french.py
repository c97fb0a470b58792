"""French: the words that are read in questions and follow-ups, and the phrases that are said. Has no rules."""

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

_SEMICOLON = "\u00a0; "

LEXICON = Lexicon(
    decimal=",",
    numbers=Sayings(
        {
            1.0: "un|une",
            2.0: "deux",
            3.0: "trois",
            4.0: "quatre",
            5.0: "cinq",
            6.0: "six",
            7.0: "sept",
            8.0: "huit",
            9.0: "neuf",
            10.0: "dix",
            11.0: "onze",
            12.0: "douze",
            0.5: "une demi|demi",
        }
    ),
    and_a_half=any_of("et demie|et demi"),
    and_=any_of("et"),
    of=any_of("de|d'"),
    units=Sayings(
        UNITS_ANYWHERE,
        {
            DOLLAR: "dollar|dollars",
            EURO: "euro|euros",
            POUND: "livres sterling",
            YEN: "yens",
            FRANC: "francs",
            SECOND: "seconde|secondes",
            MINUTE: "minute|minutes|mn",
            HOUR: "heure|heures",
            DAY: "jour|jours",
            WEEK: "semaine|semaines",
            MONTH: "mois",
            YEAR: "an|ans|année|années",
            METRE: "mètre|mètres",
            KILOMETRE: "kilomètre|kilomètres",
            MILE: "mille|milles",
            STARS: "étoile|étoiles|sur 5|étoiles sur 5",
            GRAM: "gramme|grammes",
            PERCENT: "pour cent",
            KILOGRAM: "kilo|kilos",
            CALORIES: "calorie|calories",
            PAGES: "page|pages",
            SERVINGS: "portion|portions",
            PEOPLE: "personne|personnes|adultes|invités",
            INGREDIENTS: "ingrédient|ingrédients",
            REVIEWS: "avis",
        },
    ),
    comparisons=Sayings(
        COMPARISONS_ANYWHERE,
        {
            Comparison("lt"): "moins de|moins d'|inférieur à|inférieure à|au dessous de|en dessous de|sous les",
            Comparison("lt", hint="price"): "moins cher que|moins chers que",
            Comparison("lte"): "jusqu' à|au maximum|maximum|max|au plus|pas plus de|pas plus d'|un maximum de",
            Comparison("lte", TIMED): "en|de|d'",
            Comparison("gt"): "plus de|plus d'|supérieur à|supérieure à|au dessus de",
            Comparison("gt", hint="price"): "plus cher que|plus chers que",
            Comparison("gte"): "au moins|minimum|au minimum|pas moins de|un minimum de",
            Comparison("gte", MEASURED): "à partir de|à partir d'|dès",
            Comparison("gte", SEATED): "pour",
            Comparison("eq"): "exactement",
            Comparison("about", MEASURED): "environ|autour de|à peu près|vers",
        },
    ),
    afterwards=Sayings(
        {"lte": "ou moins|maximum|au maximum|max|au plus", "gte": "+|ou plus|minimum|au minimum|au moins|et plus"}
    ),
    between=any_of("entre"),
    from_=any_of("de"),
    to=any_of("et|à", DASHES),
    leads=Sayings(
        {"": "en|pour|à|avec", "price": "prix|coûtant|qui coûtent|au prix de", "rating": "noté|notés|note|note de"}
    ),
    sorts=Sayings(
        {
            CHEAP: "moins cher|moins chère|moins chers|moins chères|le plus abordable",
            COSTLY: "plus cher|plus chère|plus chers|plus chères",
            QUICK: "plus rapide|plus rapides|plus court|plus courte|plus courts|plus courtes",
            LONG: "plus long|plus longue|plus longs|plus longues",
            LIKED: "mieux noté|mieux notée|mieux notés|mieux notées|plus populaire|plus populaires",
            DISLIKED: "moins bien noté|moins bien notée|moins bien notés|moins bien notées",
            NEW: "plus récent|plus récente|plus récents|plus récentes|dernières|derniers",
            OLD: "plus ancien|plus ancienne|plus anciens|plus anciennes|prochain|prochaine|prochains|prochaines",
            CLOSE: "plus proche|plus proches",
        }
    ),
    extremes=Sayings({True: "le plus de|le plus d'", False: "le moins de|le moins d'"}),
    exclusions=Sayings(
        {
            "firm": "sans|sauf|excepté|mais pas|mais pas de|tout sauf|allergique à|allergique au|allergique aux|pas de"
            "|pas d'|je ne mange pas de|je ne mange pas d'|je n' aime pas|je ne veux pas de|qui ne contient pas de",
            "loose": "pas|aucun|aucune",
        }
    ),
    listing=Sayings({"next": ",", "last": "ou|et|ni"}),
    asking=Sayings({"never": "pourquoi|quand|qui", "tied": "est|sont|y a|peut|peux|a|comment|où"}),
    ties=folded(", ; mais avec et ou"),
    beings=folded("est sont a ont"),
    verbs=folded("suis ai peut peux n' ne il je"),
    relatives=folded("qui"),
    flags=Sayings(
        {
            "free": "gratuit|gratuite|gratuits|gratuites|gratuitement",
            "available": "en stock|disponible|disponibles",
            "open": "ouvert maintenant|ouverte maintenant|ouverts maintenant|ouvertes maintenant",
            "accessible": "accessible en fauteuil roulant|accessibles en fauteuil roulant|sans marches",
            "children": "pour enfants|pour les enfants|avec des enfants|avec enfants|pour les familles",
        }
    ),
    not_=any_of("pas"),
    near=Sayings(
        {
            "place": "près de|près du|près des|près d'|à côté de|à côté du|à proximité de|autour de|autour du",
            "here": "à proximité|près de moi|près d' ici|dans les environs|autour de moi",
        }
    ),
    from_place=any_of("de|du|d'"),
    here=any_of("moi|ici"),
    places=any_of("à|au|dans|en|aux"),
    makers=Sayings({True: "par|écrit par|écrite par|écrits par|de la marque|réalisé par|de l' auteur|signé"}),
    articles=any_of("le|la|les|l'|un|une|des|du|de la|de l'|aux"),
    idioms=any_of(
        "pas mal|pas sûr|pourquoi pas|ou pas|pas trop|pas très|en général|à la maison|par exemple|pas seulement"
        "|par cœur|par jour|en total|pas grave|pas de problème|à peu"
    ),
    stopwords=folded(STOPWORDS["fr"]),
)

DATES = DateWords(
    names=Sayings(
        {
            "today": "aujourd'hui",
            "tonight": "ce soir|cette nuit",
            "tomorrow": "demain|demain soir|demain matin",
            "yesterday": "hier",
            "upcoming": "prochainement",
            "this weekend": "ce weekend|ce week end|le weekend|le week end",
            "next weekend": "weekend prochain|week end prochain|le weekend prochain|le week end prochain",
            "last weekend": "weekend dernier|week end dernier|le weekend dernier|le week end dernier",
            "this week": "cette semaine",
            "next week": "semaine prochaine|la semaine prochaine",
            "last week": "semaine dernière|la semaine dernière",
            "this month": "ce mois|ce mois ci",
            "next month": "mois prochain|le mois prochain",
            "last month": "mois dernier|le mois dernier",
            "this year": "cette année",
            "next year": "année prochaine|l' année prochaine|l' an prochain",
            "last year": "année dernière|l' année dernière|l' an dernier",
        }
    ),
    weekdays=numbered("lundi mardi mercredi jeudi vendredi samedi dimanche"),
    months=numbered("janvier février mars avril mai juin juillet août septembre octobre novembre décembre", start=1),
    before=Sayings({0: "ce|cet"}),
    behind=Sayings({1: "prochain", -1: "dernier"}),
    parts=any_of("matin|midi|après midi|soir"),
    prepositions=any_of("en|le|de|du|pendant|en l' année|au mois de|au mois d'"),
    bounds=Sayings(
        {
            "before": "avant|avant le",
            "after": "après|après le",
            "since": "depuis|depuis le|à partir de|à partir du|dès",
            "until": "jusqu' à|jusqu' en|jusqu' au|d' ici|d' ici le|d' ici à",
        }
    ),
    onwards=any_of("de"),
    on=any_of("et après"),
    openers=any_of("entre|de|du|entre le"),
    joiners=any_of("et|à|au|jusqu' au|jusqu' à|et le", DASHES),
    rolling=Sayings(
        {
            -1: "dans les derniers|dans les dernières|ces derniers|ces dernières",
            1: "dans les prochains|dans les prochaines|les prochains|les prochaines",
        }
    ),
    rolling_behind=Sayings({-1: "derniers|dernières", 1: "prochains|prochaines"}),
    rolling_article=any_of("les|dans les|ces|au cours des|pendant les"),
    spans=Sayings({(1, 0): "jour|jours", (7, 0): "semaine|semaines", (0, 1): "mois", (0, 12): "an|ans|année|années"}),
    the=any_of("le"),
    ordinals=any_of("er"),
    year_joiners=any_of(","),
    stopwords=folded(STOPWORDS["fr"]),
)

SPEECH = speech(
    "fr",
    adjectives_first=False,
    joins="et|ou|mais|aussi|seulement|uniquement|juste",
    shifts="qu'en est-il de|que dire de|et pour|quid de",
    corrects="non,|en fait|je voulais dire|je veux dire|plutôt|pardon|désolé",
    chats="ok|d'accord|merci|oui|bon|alors|s'il vous plaît|montre-moi|donne-moi|cherche|trouve",
    closings="plutôt aussi merci alors svp",
    asking="""que qui quoi quel quelle quels quelles comment quand où pourquoi combien est sont était
    est-ce est-il est-elle a-t-il a-t-elle ont peut peut-on faut je j'ai tu vous""",
    limiting="""sans avec sous moins plus sauf pour en dans près de à au aux depuis entre avant après par
    pas rien chez""",
    placing="en dans près à au",
    bounds="moins plus de sous jusqu'à maximum minimum environ",
    swapping="au lieu de",
    pronouns="il elle ils elles lui a-t-il a-t-elle est-il est-elle",
    owners="son sa ses leur leurs",
    dummies="il est-il",
    clausal="de que",
    relatives={"qui": "son sa ses leur leurs"},
    unnamed="quelqu'un",
    own="propre propres",
    these="ceux celles ceux-ci ceux-là celles-ci celles-là eux ces cette cet",
    this="ça cela ceci",
    pointing="""plus comme ça|le premier|la première|le deuxième|la deuxième|le dernier|la dernière|
    lequel|laquelle""",
    among="""d'entre eux|d'entre elles|de ceux-ci|de ceux-là|de celles-ci|de celles-là|parmi eux|
    parmi ceux-ci|parmi elles""",
    definite="le la les",
    indefinite="un une",
    ordinals="premier première deuxième second seconde troisième dernier dernière",
    ones="",
    comparing="""plus moins cher chers chère chères proche proches rapide rapides simple simples similaire
    similaires meilleur meilleurs autres""",
    relational="""prix coût coûts tarif tarifs horaires adresse lieu téléphone numéro avantages
    inconvénients différence différences conditions étapes raison raisons cause causes effets symptômes
    traitement types exemples taille âge durée risques ingrédients calories avis auteur histoire importance
    signification détails alternatives résultat règles""",
    empty="beaucoup longtemps",
    calendar="semaine mois année matin soir nuit jours été hiver",
    slots="""janvier février mars avril mai juin juillet août septembre octobre novembre décembre|lundi
    mardi mercredi jeudi vendredi samedi dimanche aujourd'hui demain|printemps été automne hiver|
    végétalien végétarien végan|végétalienne végétarienne|petit-déjeuner déjeuner dîner|petit moyen
    grand""",
)

PHRASES = Phrases(
    language="fr",
    script=Script(
        decimal=",",
        group="\u202f",
        money=trailing,
        signs={},
        units=(("jour", "jours"), ("heure", "heures"), ("minute", "minutes"), ("seconde", "secondes")),
        space=" ",
        day=dated(
            "{day} {month} {year}",
            "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
            first="1er",
        ),
        comma=", ",
        last=lambda others, last: f"{others} et {last}",
        quote=lambda text: f"«\u00a0{text}\u00a0»",
    ),
    nouns={
        "Thing": ("résultat", "résultats"),
        "Article": ("article", "articles"),
        "Book": ("livre", "livres"),
        "Course": ("cours", "cours"),
        "Event": ("événement", "événements"),
        "Hotel": ("hôtel", "hôtels"),
        "JobPosting": ("emploi", "emplois"),
        "Movie": ("film", "films"),
        "Organization": ("organisation", "organisations"),
        "Person": ("personne", "personnes"),
        "Place": ("lieu", "lieux"),
        "Product": ("produit", "produits"),
        "Question": ("réponse", "réponses"),
        "Recipe": ("recette", "recettes"),
        "Restaurant": ("adresse où manger", "adresses où manger"),
    },
    nothing="Je n’ai rien trouvé qui convienne.",
    nothing_for=lambda what: f"Je n’ai rien trouvé pour «\u00a0{what}\u00a0».",
    nothing_within=lambda limits: (
        f"Je n’ai rien trouvé avec {'ces critères' if len(limits) > 1 else 'ce critère'}\u00a0: "
        f"{_SEMICOLON.join(limits)}. Essayez peut-être {'sans l’un d’eux' if len(limits) > 1 else 'sans lui'}."
    ),
    fit=lambda count, noun: f"{count} {noun} {'convient' if count == 1 else 'conviennent'}.",
    best=lambda name, facts: f"Ce qui convient le mieux\u00a0: {name}{tail(' (', ', ', facts, ')')}.",
    only=lambda name, facts: f"Le seul résultat\u00a0: {name}{tail(' (', ', ', facts, ')')}.",
    also=lambda names: f"Et aussi\u00a0: {names}.",
    selection=lambda spans: f"Dans cette sélection\u00a0: {_SEMICOLON.join(spans)}.",
    takes=lambda time: f"compter {time}",
    costs=lambda price: f"coûte {price}",
    free="gratuit",
    rated=lambda rating: f"note de {rating}",
    rated_of=lambda rating, best: f"note de {rating} sur {best}",
    on=lambda day: f"le {day}",
    at=lambda place: f"lieu\u00a0: {place}",
    by=lambda author: f"par {author}",
    cuisine=lambda kinds: f"cuisine\u00a0: {kinds}",
    prices=lambda low, high: f"prix de {low} à {high}",
    times=lambda low, high: f"de {low} à {high}",
    ratings=lambda low, high: f"notes de {low} à {high}",
    dates=lambda first, last: f"du {first} au {last}",
    tell_more="Pour trouver ce qui vous convient, dites-m’en un peu plus\u00a0:",
    questions={
        "diet": "Suivez-vous un régime particulier\u00a0?",
        "time": "De combien de temps disposez-vous\u00a0?",
        "price": "Quel est votre budget\u00a0?",
        "kind": "Quel genre\u00a0?",
        "cuisine": "Quelle cuisine vous ferait envie\u00a0?",
        "date": "Pour quand\u00a0?",
        "place": "À quel endroit\u00a0?",
        "rating": "Quelle note au minimum\u00a0?",
        "people": "Pour combien de personnes\u00a0?",
    },
    which=lambda label: f"{capital(label)}\u00a0: que souhaitez-vous\u00a0?",
    which_collection="Que cherchez-vous\u00a0?",
    missing=lambda label: f"{capital(label)}\u00a0?",
    confirm=lambda what: f"Dois-je le faire\u00a0: {what}\u00a0?",
    no_preference="peu importe",
    any="au choix",
    yes="oui",
    no="non",
    under=lambda most: f"moins de {most}",
    up_to=lambda most: f"jusqu'à {most}",
    between=lambda low, high: f"{low}-{high}",
    over=lambda least: f"plus de {least}",
    working="J’y travaille…",
    waiting="En attente de son tour",
    cancelled="C’est annulé.",
    model_silent="Le modèle de langage n’a pas répondu\u00a0; ceci provient directement des éléments eux-mêmes.",
    left_out=lambda said: f"Rien ne correspond à «\u00a0{said}\u00a0»\u00a0; voici sans ce critère.",
    among=lambda count: f"Trié parmi les {count} meilleurs résultats\u00a0; il y en a d’autres.",
    ignored=lambda names: f"Sans effet ici, et donc ignoré\u00a0: {', '.join(names)}.",
)
