"""English: the words that are read in questions and follow-ups, and the phrases that are said. Has no rules."""

from portico.ask.languages.contrast import Contrast
from portico.ask.languages.followup_words import speech
from portico.ask.languages.lexicon import (
    AFFORDED,
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
    FAR,
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
    Unit,
)
from portico.ask.languages.phrasebook import Limits, Phrases, Script, capital, dated, leading, tail
from portico.ask.languages.wordlists import DASHES, Sayings, any_of, folded, numbered
from portico.ask.understanding.dates import DateWords
from portico.search.index.text import STOPWORDS

_ONES = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")

LEXICON = Lexicon(
    decimal=".",
    numbers=Sayings(
        {
            **{float(number): word for number, word in enumerate(_ONES + _TEENS, start=1)},
            **{20.0 + 10 * place: word for place, word in enumerate(_TENS)},
            **{
                20.0 + 10 * place + unit: f"{tens} {ones}"
                for place, tens in enumerate(_TENS)
                for unit, ones in enumerate(_ONES, start=1)
            },
            100.0: "hundred|a hundred|one hundred",
            12.0: "twelve|dozen|a dozen",
            1.5: "one and a half",
        }
    ),
    one_of=Sayings({1.0: "a|an|one", 0.5: "half|half a|half an|a half", 0.25: "a quarter of an|quarter of an"}),
    and_a_half=any_of("and a half"),
    and_=any_of("and|,"),
    of=any_of("of"),
    units=Sayings(
        UNITS_ANYWHERE,
        {
            DOLLAR: "dollar|dollars|buck|bucks",
            EURO: "euro|euros",
            POUND: "pound|pounds|quid",
            YEN: "yen",
            FRANC: "francs",
            SECOND: "second|seconds|secs",
            MINUTE: "minute|minutes",
            HOUR: "hour|hours",
            DAY: "day|days",
            WEEK: "week|weeks",
            MONTH: "month|months",
            YEAR: "year|years",
            METRE: "metre|metres|meter|meters",
            MILE: "mile|miles",
            KILOMETRE: "kilometre|kilometres|kilometer|kilometers|kms",
            Unit("distance", 0.3048, "m"): "foot|feet|ft",
            Unit("distance", 0.9144, "m"): "yard|yards",
            STARS: "star|stars|rating|out of 5|out of 5 stars|stars out of 5|/ 5|/ 5 stars",
            GRAM: "gram|grams|grammes",
            PERCENT: "percent|per cent",
            KILOGRAM: "kilo|kilos|kilograms",
            CALORIES: "calorie|calories|cal|cals",
            PAGES: "page|pages",
            SERVINGS: "serving|servings|portions",
            PEOPLE: "people|person|persons|guests|adults|diners",
            INGREDIENTS: "ingredient|ingredients",
            REVIEWS: "review|reviews",
            AGE: "year old|year olds|years old|years of age",
        },
    ),
    comparisons=Sayings(
        COMPARISONS_ANYWHERE,
        {
            Comparison("lt"): "under|below|less than|fewer than|lower than|shorter than|quicker than|faster than"
            "|smaller than|closer than|nearer than|beneath",
            Comparison("lt", hint="price"): "cheaper than|less expensive than",
            Comparison(
                "lte"
            ): "up to|at most|no more than|not more than|not over|not above|max|max .|maximum|a maximum of"
            "|maximum of|no longer than|not longer than|no greater than|not exceeding|no further than",
            Comparison("lte", REACHED): "within",
            Comparison("lte", TIMED): "in",
            Comparison("lte", AFFORDED): "i have|i only have|i've got|i have only",
            Comparison("gt"): "over|above|more than|greater than|longer than|higher than|bigger than|exceeding",
            Comparison("gt", hint="price"): "more expensive than|pricier than",
            Comparison("gte"): "at least|minimum|minimum of|a minimum of|min|min .|no less than|not less than"
            "|no fewer than|not under|not below|starting at|starting from|upwards of",
            Comparison("gte", MEASURED): "from",
            Comparison("gte", SEATED): "for|serves|serving|feeds|feeding",
            Comparison("eq"): "exactly|precisely|equal to",
            Comparison("about", MEASURED): "around|about|approximately|roughly|circa|approx|some",
        },
    ),
    afterwards=Sayings(
        {
            "lte": "or less|or fewer|or under|or below|or cheaper|or shorter|or quicker|or faster|max|maximum|at most"
            "|tops|at the most|and under|and below",
            "gte": "+|or more|or above|or over|or higher|or better|or longer|plus|and up|and above|and over|minimum"
            "|at least",
        }
    ),
    between=any_of("between|in between"),
    from_=any_of("from"),
    to=any_of("and|to", DASHES),
    leads=Sayings(
        {
            "": "in|for|with|that are|which are|that is|taking|take|takes|that take|that takes|and takes|and take"
            "|lasting",
            "price": "costing|priced|priced at|price|prices|that cost|that costs|cost|costs|budget|budget of",
            "rating": "rated|rating|ratings|with a rating|with a rating of|a rating of|rating of|a rating|scored"
            "|with ratings|that are rated|rated at",
        }
    ),
    sorts=Sayings(
        {
            CHEAP: "cheapest|least expensive|lowest price|lowest priced|lowest prices|cheaper|less expensive"
            "|lowest cost|most affordable|cheapest first",
            COSTLY: "most expensive|priciest|highest price|highest priced|dearest",
            QUICK: "quickest|fastest|shortest|quicker|faster|shorter",
            LONG: "longest|slowest|longer",
            LIKED: "best rated|highest rated|top rated|most popular|highest rating|best reviewed|better rated"
            "|more popular|best rating|highest ratings|most liked|higher rated",
            DISLIKED: "worst rated|lowest rated|lowest rating|least popular|worst reviewed",
            NEW: "newest|latest|most recent|newer|more recent|newest first",
            OLD: "oldest|earliest|soonest|next",
            CLOSE: "nearest|closest|closer|nearer",
            FAR: "furthest|farthest",
            None: "next to|next door",
        }
    ),
    extremes=Sayings({True: "most|highest|most in|highest in", False: "fewest|lowest|least|lowest in|least in"}),
    exclusions=Sayings(
        {
            "firm": "without|without any|except|except for|excluding|but not|but no|anything but|everything but"
            "|other than|apart from|allergic to|an allergy to|don't eat|do not eat|i don't eat|i do not eat"
            "|don't like|do not like|i don't like|i do not like|don't want|do not want|i don't want|i do not want"
            "|can't eat|cannot eat|i can't eat|i cannot eat|can not eat|i hate|with no|not a fan of|avoid|avoiding"
            "|leave out|leaving out|i'm allergic to|i am allergic to|nothing with|nothing containing"
            "|that don't contain|that do not contain|that doesn't contain|not containing|anything except",
            "loose": "no|not|doesn't contain|does not contain|don't contain|do not contain|doesn't have|not in|not at"
            "|not from|not by|not near|not with|nor",
        }
    ),
    listing=Sayings({"next": ",", "last": "or|and|nor|, or|, and|and any|or any|&"}),
    asking=Sayings(
        {
            "never": "why|when|who|since when",
            "tied": "is|are|was|were|does|do|did|can|could|has|have|will|would|should|how|where|isn't|aren't|doesn't"
            "|don't",
        }
    ),
    ties=folded(", ; but with and or something anything that's"),
    beings=folded("is are was were has have had"),
    verbs=folded("""am i'm it's there's he's she's we're you're they're do does did can could will would should may
    might must there it be been i you we they"""),
    relatives=folded("that which who"),
    free_of=folded("""nut nuts peanut dairy gluten sugar lactose egg soy soya wheat meat fat oil alcohol caffeine
    grain shellfish sesame salt carb fish milk"""),
    flags=Sayings(
        {
            "free": "free|for free|free of charge|at no cost|no charge|free entry|free admission",
            "available": "in stock|available|available now|currently available|on hand",
            "open": "open now|open right now|currently open|open at the moment",
            "accessible": "wheelchair accessible|wheelchair friendly|step free|barrier free|wheelchair access"
            "|step free access|accessible by wheelchair",
            "children": "for kids|for children|for the kids|for the children|for my kids|for my children"
            "|family friendly|kid friendly|child friendly|kids friendly|with kids|with children|with the kids"
            "|with my kids|for families|for toddlers|suitable for children|suitable for kids",
        }
    ),
    not_=any_of("not"),
    near=Sayings(
        {
            "place": "near|near to|near the|close to|around|next to|beside|in the vicinity of|not far from|by the"
            "|a short walk from|in walking distance of|within walking distance of",
            "here": "nearby|near me|near by|near here|close by|close to me|close to here|around here|around me|near us",
        }
    ),
    from_place=any_of("of|from|away from"),
    here=any_of("me|here|us"),
    places=any_of("in|at|from"),
    makers=Sayings(
        {
            True: "by|written by|made by|directed by|composed by|authored by|published by|produced by|created by"
            "|designed by|painted by|sung by|performed by|from the brand|from brand|of the brand|by the author"
            "|by the brand|by the chef|by the artist|by the band|from the author|from the maker",
            False: "by the",
        }
    ),
    articles=any_of("the|a|an|any|some|all|my|our|this|that|these|those|added"),
    idioms=any_of("""no idea|no matter|not sure|why not|whether or not|or not|if not|no preference|no preferences
    |not only|no problem|no longer|no one|nobody|not yet|not just|not necessarily|no rush|no worries|not bad|not far
    |no need|not really|not at all|not all|not many|not much|no wonder|not quite|not everyone|not even|not too
    |not very|not so|not that|no thanks|no doubt|no particular|not particularly|no specific|at the latest|at all
    |at least|at most|at home|at once|at first|at last|in general|in total|in advance|in fact|in particular|in order
    |in case|in common|in a hurry|in time|in person|in detail|in short|in bulk|in season|in mind|in english
    |in addition|in need|in love|from scratch|from home|from now|free range|feel free|free time|free wifi|free wi fi
    |free parking|free shipping|free delivery|free will|free style|around the world|around the corner|most of
    |most of the|by the way|by car|by bus|by train|by foot|by bike|by boat|by plane|by hand|by myself|by default
    |by phone|by email|by mistake|by heart|by far|by chance|by accident|by candlelight|by night|by day|by law
    |next time|next day|in a second|in a minute|in a moment|at night|at lunch|at dinner"""),
    stopwords=folded(STOPWORDS["en"]),
)

DATES = DateWords(
    names=Sayings(
        {
            "today": "today",
            "tonight": "tonight|this evening",
            "tomorrow": "tomorrow|tomorrow morning|tomorrow afternoon|tomorrow evening|tomorrow night",
            "yesterday": "yesterday",
            "upcoming": "upcoming|coming up",
            "this weekend": "this weekend|the weekend",
            "next weekend": "next weekend",
            "last weekend": "last weekend",
            "this week": "this week",
            "next week": "next week",
            "last week": "last week",
            "this month": "this month",
            "next month": "next month",
            "last month": "last month",
            "this year": "this year",
            "next year": "next year",
            "last year": "last year",
        }
    ),
    weekdays=numbered("monday tuesday wednesday thursday friday saturday sunday"),
    months=numbered(
        "january|jan february|feb march|mar april|apr may june|jun july|jul august|aug september|sep|sept "
        "october|oct november|nov december|dec",
        start=1,
    ),
    before=Sayings({0: "this|this coming|coming", 1: "next", -1: "last"}),
    parts=any_of("morning|afternoon|evening|night"),
    prepositions=any_of("in|on|during|of|from|in the year|on the|in early|in late|in mid"),
    bounds=Sayings(
        {
            "before": "before|prior to|earlier than|older than",
            "after": "after|later than|newer than",
            "since": "since|starting|starting from|starting on|as of",
            "until": "until|till|up until|no later than",
            "by": "by",
        }
    ),
    onwards=any_of("from"),
    on=any_of("on|onward|onwards"),
    openers=any_of("between|from|between the|from the"),
    joiners=any_of("and|to|until|till|through|and the|to the", DASHES),
    rolling=Sayings(
        {
            -1: "in the last|over the last|within the last|the last|last|in the past|over the past|the past|past",
            1: "in the next|over the next|within the next|during the next|the next|next|in the coming|the coming",
        }
    ),
    spans=Sayings({(1, 0): "day|days", (7, 0): "week|weeks", (0, 1): "month|months", (0, 12): "year|years"}),
    the=any_of("the"),
    ordinals=any_of("st|nd|rd|th|st of|nd of|rd of|th of|of"),
    year_joiners=any_of(",|of"),
    stopwords=folded(STOPWORDS["en"]),
)

SPEECH = speech(
    "en",
    possessive="{}'s",
    joins="and|or|but|also|plus|then|only|just",
    shifts="what about|how about|the same for|same for",
    corrects="""no,|actually|sorry|oops|i meant|i mean|no i meant|no i mean|rather|make it|
    make that|instead,|not that,""",
    chats="""ok|okay|oh|well|so|yes,|yes|thanks|thank you|great|please|hmm|aha|show me|
    give me|tell me|find me|find|i'd prefer|i would prefer|i prefer|i'd like|i would like|i want|
    i need|do you have|are there|is there|is there one|something|anything|any|ones""",
    closings="please instead rather too also only then though thanks",
    asking="""what who whom whose which how when where why is are was were am do does did has have had can
    could should would will may might must i we you i'm i'd what's who's where's isn't aren't don't doesn't
    didn't can't won't there's it's that's""",
    limiting="""without with under over below above except excluding including no not for in near at from
    to by before after between within during around less than on nothing""",
    placing="in near at from to",
    bounds="under over below above less more than at most least up to within around max maximum minimum",
    swapping="instead of",
    pronouns="it they them he him she it's",
    owners="its their his her",
    dummies="it",
    clausal="to that if take takes took rains rain",
    holding="with|without|having|containing|that has|that have|that had|which has|which have|which had",
    inside="in inside",
    relatives={"who": "their his her its", "that": "its their", "which": "its their"},
    unnamed="something anything someone somebody anyone anybody everyone everybody",
    own="own",
    these="these those this them both",
    this="that",
    pointing="""more like this|more like that|more like these|more like those|more like it|first one|
    second one|last one""",
    among="of those|of these|of them|among those|among these|among them|from those|from these",
    definite="the that",
    indefinite="a an",
    ordinals="first second third fourth fifth last next other latter former",
    ones="one ones",
    comparing="""cheaper closer nearer bigger smaller larger faster quicker easier newer older later
    earlier longer shorter healthier lighter simpler better similar different more less cheapest closest
    nearest fastest best""",
    grading="more most less least",
    relational="""price prices cost costs fee fees rate rates hours address location phone number benefits
    benefit advantages disadvantages difference differences requirements requirement steps process reason
    reasons cause causes effects symptoms treatment types type kinds examples example features size age
    length distance duration limit limits risks support documentation instructions ingredients calories
    reviews rating rated amount minimum maximum period awards restrictions author owner members history
    population role purpose importance definition meaning details alternatives options others deadline
    results rules schedule""",
    empty="""like know mean many much long often old let lets let's any use used us something anything else
    work works happen happens happened call called make makes made take takes took go goes going come comes
    become find found explain see think say saying said talking speaking way thing things lot really still
    already possible name needed required necessary available allowed included enough""",
    calendar="""week month year weekend morning afternoon evening night time season days summer winter
    spring autumn today""",
    slots="""january february march april may june july august september october november december|monday
    tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays thursdays fridays
    saturdays sundays today tomorrow tonight weekend week|spring summer autumn fall winter|vegan
    vegetarian pescatarian|breakfast brunch lunch dinner supper|cheap cheaper cheapest expensive
    affordable|small medium large|red blue green black white yellow|two three four five six seven eight
    nine ten""",
)

PHRASES = Phrases(
    language="en",
    script=Script(
        decimal=".",
        group=",",
        money=leading,
        signs={},
        units=(("day", "days"), ("hour", "hours"), ("minute", "minutes"), ("second", "seconds")),
        space=" ",
        day=dated(
            "{day} {month} {year}",
            "January February March April May June July August September October November December",
        ),
        comma=", ",
        last=lambda others, last: f"{others} and {last}",
        quote=lambda text: f"“{text}”",
    ),
    nouns={
        "Thing": ("result", "results"),
        "Article": ("article", "articles"),
        "Book": ("book", "books"),
        "Course": ("course", "courses"),
        "Event": ("event", "events"),
        "Hotel": ("hotel", "hotels"),
        "JobPosting": ("job", "jobs"),
        "Movie": ("film", "films"),
        "Organization": ("organisation", "organisations"),
        "Person": ("person", "people"),
        "Place": ("place", "places"),
        "Product": ("product", "products"),
        "Question": ("answer", "answers"),
        "Recipe": ("recipe", "recipes"),
        "Restaurant": ("place to eat", "places to eat"),
    },
    nothing="I found nothing that fits.",
    nothing_for=lambda what: f"I found nothing for “{what}”.",
    nothing_within=lambda limits: (
        f"I found nothing with {'these limits' if len(limits) > 1 else 'this limit'}: {'; '.join(limits)}. "
        f"It may help to leave {'one of them' if len(limits) > 1 else 'it'} out."
    ),
    beyond=lambda names, limits: (
        f"This would fit, but not with {'these limits' if len(limits) > 1 else 'this limit'} "
        f"({'; '.join(limits)}): {names}."
    ),
    instead=lambda said, meant: f"Nothing here says “{said}”. Showing results for “{meant}”.",
    reached=lambda name, ways: f"You can reach {name} here{tail(': ', ', ', ways)}.",
    unreachable="This site does not say how to reach a person.",
    fit=lambda count, noun: f"{count} {noun} {'fits' if count == 1 else 'fit'}.",
    best=lambda name, facts: f"The best match is {name}{tail(': ', ', ', facts)}.",
    only=lambda name, facts: f"The only match is {name}{tail(': ', ', ', facts)}.",
    also=lambda names: f"Also: {names}.",
    selection=lambda spans: f"In this selection: {'; '.join(spans)}.",
    takes=lambda time: f"takes {time}",
    costs=lambda price: f"costs {price}",
    free="free of charge",
    rated=lambda rating: f"rated {rating}",
    rated_of=lambda rating, best: f"rated {rating} out of {best}",
    on=lambda day: f"on {day}",
    at=lambda place: f"at {place}",
    by=lambda author: f"by {author}",
    cuisine=lambda kinds: f"{kinds} cuisine",
    open=lambda hours: f"open {hours}",
    prices=lambda low, high: f"prices from {low} to {high}",
    times=lambda low, high: f"from {low} to {high}",
    ratings=lambda low, high: f"rated {low} to {high}",
    dates=lambda first, last: f"from {first} to {last}",
    tell_more="To find what fits, tell me a little more:",
    needs="To do this, I need to know:",
    before_doing="Before I do anything, please say yes or no:",
    questions={
        "diet": "Is there a diet to keep to?",
        "time": "How much time do you have?",
        "price": "What may it cost?",
        "kind": "What kind?",
        "cuisine": "Which cuisine do you fancy?",
        "date": "When should it be?",
        "place": "Where should it be?",
        "rating": "How well rated should it be?",
        "people": "For how many people?",
    },
    which=lambda label: f"Which {label}?",
    which_collection="What are you looking for?",
    missing=lambda label: f"{capital(label)}?",
    confirm=lambda what: f"Shall I do this: {what}?",
    unbookable=lambda name: f"{name} takes no reservations.",
    no_preference="no preference",
    any="any",
    yes="yes",
    no="no",
    under=lambda most: f"under {most}",
    up_to=lambda most: f"up to {most}",
    between=lambda low, high: f"{low}-{high}",
    over=lambda least: f"over {least}",
    working="Working on it…",
    waiting="Waiting for its turn",
    cancelled="This was cancelled.",
    model_silent="The language model did not answer; this was put together from the items themselves.",
    model_unsupported="The items do not support what the language model wrote; this was put together from them alone.",
    left_out=lambda said: f"Nothing fits “{said}”; this is without it.",
    among=lambda count: f"Sorted among the {count:,} best matches; there are more.",
    cut_short=lambda count: f"The results are large; only {count:,} of them fit into this answer.",
    ignored=lambda names: f"Ignored, as there is no use for it here: {', '.join(names)}.",
    limits=Limits(
        words={},
        field="{} {}",
        value="{}: {}",
        compares={
            "lt": "under {}",
            "lte": "at most {}",
            "gt": "over {}",
            "gte": "at least {}",
            "eq": "exactly {}",
            "between": "between {} and {}",
        },
        since="from {}",
        until="to {}",
        lowest="lowest first",
        highest="highest first",
        oldest="oldest first",
        newest="newest first",
        without="without {}",
        free="free of charge",
        in_stock="in stock",
        by="by {}",
        within="in {}",
        near="within {} metres of {}",
        made_of="{}, by what it is made of",
        kind="type {}",
        other_money=" (prices here are in {})",
    ),
)

CONTRAST = Contrast(
    together=lambda parts: f"{'; '.join(parts)}.",
    side=lambda name, facts: f"{name}{tail(': ', ', ', facts)}",
    ahead=lambda name, parts: f"{name} {PHRASES.join(parts)}",
    price=("costs {} less", "costs least"),
    time=("takes {} less", "takes least time"),
    rating=("is rated higher", "is rated highest"),
    day=("is earlier", "is the earliest"),
    choosing=folded("or vs versus"),
    joining=folded("and with to than from against"),
    cues=folded(
        """compare compares compared comparing comparison differ differs difference differences between vs versus
        cheaper dearer pricier expensive price prices cost costs better faster quicker slower shorter longer rated
        rating higher lower earlier sooner later"""
    ),
)
