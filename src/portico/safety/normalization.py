"""Normalizes texts: finds their words under every disguise, and compiles globs that match them. Decides nothing.

All of it takes time linear in the text, which is cut to a bound first: who writes a hint may want it to be slow.
"""

import base64
import binascii
import codecs
import html
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import unquote

import re2

from portico.errors import ConfigError

MAX_LAYER = 4096  # characters of a text that are read; fewer than the digits that Python parses as one number
MIN_CODE = 8  # characters that are rarely hexadecimal by chance
ROUNDS = 3  # of decoding

_WORD = re.compile(r"[^\W_]+")
_SPELLED = re.compile(r"\b(?:[^\W_] ){2,}[^\W_]\b")
HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ESCAPE = re.compile(
    r"(?:\\U000|[Uu]\+)(1[0-9a-fA-F]{4})|(?:[\\%]u|\\U0{4}|[Uu]\+(?:00(?=00))?)([0-9a-fA-F]{4})"
    r"|\\[ux]\{([0-9a-fA-F]{1,12})\}|\\(?:x|0{4})([0-9a-fA-F]{2})|\\([0-9a-fA-F]{2})(?![0-9a-fA-F]) ?|\\([0-7]{3})"
)
_HALVES = re.compile(r"[\ud800-\udbff][\udc00-\udfff]")
_NAMED = re.compile(r"\\N\{([A-Za-z0-9 -]{1,60})\}")
_QUOTED = re.compile(r"(?:=[0-9a-fA-F]{2})+|=\r?\n")
_SHIFTED = re.compile(r"[+&]([A-Za-z0-9/]{3,})-?")
_CODE = r"(?:0x[0-9a-f]{2,6}|\d{2,7})"
_CALL = rf"(?:\bString\.)?(?:\b|\[)(?:n?char|chrw?|unichr|from(?:CharCode|CodePoint))\]?\s{{0,2}}\(?\s{{0,2}}{_CODE}"
_CALLED = re.compile(
    rf"{_CALL}(?:\s{{0,2}},\s{{0,2}}{_CODE}|\s{{0,2}}\)?\s{{0,2}}(?:[+.&,~]|\|\|)?\s{{0,2}}{_CALL})*\s{{0,2}}\)?",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"0[xX]([0-9a-fA-F]+)|(\d+)")
_HEX = re.compile(r"(?<![0-9a-z])(?:0x)?[0-9a-f]{2}(?:[ :,-]?(?:0x)?[0-9a-f]{2})+(?![0-9a-z])", re.IGNORECASE)
_CODES = re.compile(r"(?<![\w.])0?\d{2,3}(?:[ ,;:+|/.-]{1,3}0?\d{2,3})+(?!\w)")
_OCTAL = re.compile(r"(?<![\w.])0[0-7]{2,3}(?:[ ,;:+|/.-]{1,3}0[0-7]{2,3})+(?!\w)")
_TRIPLES = re.compile(r"(?<!\w)(?:[01]\d\d){3,}(?!\w)")
_BITS = re.compile(r"(?<!\w)[01]{8}(?:[ ,-]?[01]{8})+(?!\w)|(?<!\w)[01]{7}(?:[ ,-][01]{7})+(?!\w)")
_BIT_RUN = re.compile(r"[01]{8}|[01]{7}")
_BASE32 = re.compile(r"[A-Za-z2-7]{8,}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}={0,2}")
_PAIR = re.compile(r"(?:0[xX])?([0-9a-fA-F]{2})[ :,-]?")
_TEXTUAL = re.compile(r"[^\W\d_].*[^\W\d_]", re.DOTALL)
_UNWORDLY = re.compile(r"[0-9=]|[a-z][A-Z]")
_UNDECIMAL = re.compile(r"[a-fA-F]")
_LEET = re.compile(r"[\w@$€£¥₳₵₣₲₭₥₦₱₴₮₩]+")
_RUN = re.compile(r"[A-Za-z0-9+/=]{20,}")
_SCRIPTED = re.compile(r"[^\W\d_]+")

# What a shell reads as nothing or as a space. Concatenated strings ('dr' + 'op') are one word.
_BLANK = re.compile(r"\$\{?IFS\}?(?:\$\d)?")
_QUOTING = re.compile(r"['\"]\s{0,2}[+.]\s{0,2}['\"]|\$\{?[@*\d!]\}?|\$\{\w{0,20}\}|\$\(\)|['\"\\^`]")

# Letters and combining marks that are invisible.
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_SELECTORS = frozenset(map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))))

_LOOKALIKES: tuple[tuple[str, str], ...] = (
    ("авегиіјкмнопрсстухһҽѕԁԛԝѵӏґяшщцэь", "abernijkmhonpcctyxhesdqwvlrrwwueb"),
    ("ΑΒΕΖΗΙΚΜΝΟΡΣΤΥΧ", "abezhikmnopetyx"),
    ("αβγδεηθικνορστυχωμπ", "abydenoikvopotuxwun"),
    ("ᴀʙᴄᴅᴇɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢ", "abcdeghijklmnopqrstuvwyz"),
    ("đðħıłøŧƀƈɗɖɛƒɠɡɦɨʝƙɫɱŋɲɵɔƥɾɼʂƭʈʉʋƴʐƶǝəɐɑ", "ddhilotbcddefgghijklmnnooprrsttuvyzzeeaa"),
    ("ɹʇʌʍʎɥɯʞɟɓ", "rtvwyhmkfb"),
    ("օսոհցյզ", "ounhgjq"),
    ("ᎠᎡᎢᎥᎩᎪᎫᎬᎳᎷᎻᎽᏀᏃᏏᏒᏔᏕᏙᏚᏞᏟᏢᏦᏧᏳᏴ", "drtiyajewmhygzbrwsvslcpkdgb"),
    (
        "ᗩᗅᐱᐃᗷᗸᑕᑢᗪᗞᕲᑯᗴᕮᘿᗱᙓᖴᘜᕼᓰᒍᒚᒎᐸᒪᒧᗰᘻᙢᑎᘉᑙᗝᓍᑭᕵᑫᕴᖇᖆᔕᔑᖶᑌᑘᐯᐺᗯᘺᙡ᙭ᖻᘔ",
        "aaaabbccddddeeeeefghijjjkllmmmnnnooppqqrrsstuuvvwwwxyz",
    ),
    ("ᚱᛖᛗᛟᛒᛏᚢᛋᚠᛁᛚᛞᚷᚹᛕᚨᛈ", "remobtusfildgwkap"),
    ("ⲁⲃⲥⲉⲏⲓⲕⲙⲛⲟⲣⲧⲩⲭⲍⲅⲇ", "abcehikmnoptyxzrd"),
    ("ⱡɽɇⱨⱪⱬɏ", "lrehkzy"),
    ("ꓐꓑꓒꓓꓔꓖꓗꓙꓚꓜꓝꓟꓠꓡꓢꓣꓦꓧꓪꓫꓬꓮꓰꓲꓳꓴ", "bpddtgkjczfmnlsrvhwxyaeiou"),
)
_SYMBOLS = (0x1F150, 0x1F170, 0x1F1E6)  # letters in black circles and squares, and regional indicators
_PLAIN_LETTERS: Mapping[int, int] = {
    **{ord(strange): ord(letter) for alike in _LOOKALIKES for strange, letter in zip(*alike, strict=True)},
    **{first + place: ord("a") + place for first in _SYMBOLS for place in range(26)},
}
_LEET_LETTERS: tuple[Mapping[int, int], ...] = tuple(
    str.maketrans("01345@7$€£¥₳₵₣₲₭₥₦₱₴₮₩", f"o{one}easatselyacfgkmnpstw") for one in "li"
)
_MINGLING = frozenset({"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"})  # scripts whose texts contain Latin words
_DIGESTS = (32, 40, 64)  # hexadecimal digits of common identifiers and checksums


@dataclass(frozen=True, slots=True)
class DecodedLayers:
    """A text without hidden characters, and the results of decoding it repeatedly."""

    texts: tuple[str, ...]
    is_cut: bool  # a layer had more characters than are read
    is_deep: bool  # it is encoded more often than it was decoded


@dataclass(frozen=True, slots=True)
class NormalizedText:
    """The words of a text in lower case with single spaces, and the disguise that was removed."""

    words: str
    disguise: str = ""


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern of whole words with * and ?, and its regular expression."""

    pattern: str
    expression: "re2.Pattern"

    def finds(self, text: str) -> bool:
        return self.expression.search(text) is not None


def hidden_characters(text: str) -> frozenset[str]:
    """Return the invisible characters of a text, except for spaces."""
    return frozenset(filter(_is_hidden, set(text)))


def _is_hidden(character: str) -> bool:
    if character.isspace():
        return False
    return unicodedata.category(character)[0] == "C" or character in _FILLERS or character in _SELECTORS


def strip_hidden(text: str) -> str:
    """Remove invisible characters and apply NFKC. Case, spacing and punctuation stay."""
    return _without_hidden(unicodedata.normalize("NFKC", _without_hidden(text)))


def _without_hidden(text: str) -> str:
    return _without(text, hidden_characters(text))


def _without(text: str, characters: frozenset[str]) -> str:
    return text.translate(dict.fromkeys(map(ord, characters))) if characters else text


def fold(text: str) -> str:
    """Map a text to lower-case Latin letters without accents, as far as its characters look like those."""
    spread = unicodedata.normalize("NFKD", text)
    marks = frozenset(one for one in set(spread) if unicodedata.category(one) in ("Mn", "Me"))
    return _without(spread, marks).translate(_PLAIN_LETTERS).casefold().translate(_PLAIN_LETTERS)


def words(text: str) -> str:
    return " ".join(_WORD.findall(text))


def with_humps(text: str) -> str:
    """Split camelCase: `dropTable` becomes `drop Table`."""
    return HUMP.sub(" ", text)


def decode_layers(text: str) -> DecodedLayers:
    decoded = [strip_hidden(text)]
    while len(decoded) <= ROUNDS + 1:
        deeper = strip_hidden(_decode_once(_both_ends(decoded[-1])))
        if deeper == decoded[-1]:
            break
        decoded.append(deeper)
    is_cut = any(len(layer) > MAX_LAYER for layer in decoded)
    return DecodedLayers(tuple(map(_both_ends, decoded[: ROUNDS + 1])), is_cut, len(decoded) > ROUNDS + 1)


def _both_ends(text: str) -> str:
    """Return equal parts of the start and the end of a long text, where something may be hidden behind filler."""
    half = MAX_LAYER // 2
    return text if len(text) <= MAX_LAYER else f"{text[:half]}\n{text[-half:]}"


def _decode_once(text: str) -> str:
    decoded = html.unescape(unquote(text))
    for pattern, meaning in _DECODERS:
        decoded = pattern.sub(lambda run, meaning=meaning: meaning(run) or run[0], decoded)
    return decoded


def _decode_escape(escape: re.Match[str]) -> str:
    *hexadecimal, octal = escape.groups()
    return _character(int(octal, 8) if octal else int("".join(filter(None, hexadecimal)), 16))


def _character(code: int) -> str:
    return chr(code) if code <= sys.maxunicode else ""


def _join_surrogates(halves: re.Match[str]) -> str:
    return halves[0].encode("utf-16", "surrogatepass").decode("utf-16")


def _decode_character_name(escape: re.Match[str]) -> str:
    try:
        return unicodedata.lookup(escape[1])
    except KeyError:
        return ""


def _decode_quoted_printable(run: re.Match[str]) -> str:
    """Decode quoted-printable. A soft line break becomes an invisible character."""
    return bytes.fromhex(run[0].replace("=", "")).decode(errors="replace") if run[0].strip("=\r\n") else "\u200b"


def _decode_utf7(run: re.Match[str]) -> str:
    """Decode UTF-7. Only results in plain letters count, since others occur by chance."""
    digits = run[1] + "A" * (-len(run[1]) % 4)
    text = base64.b64decode(digits)[: len(run[1]) * 6 // 16 * 2].decode("utf-16-be", errors="replace")
    return text if fold(text).isascii() and text.isprintable() else ""


def _decode_call(run: re.Match[str]) -> str:
    """Decode `chr(114)+chr(109)` and equivalents in other languages."""
    numbers = (int(hexed, 16) if hexed else int(decimal) for hexed, decimal in _NUMBER.findall(run[0]))
    return "".join(map(_character, numbers))


def _decode_pairs(run: re.Match[str]) -> str:
    # Pairs of digits may be hexadecimal or decimal: both readings count.
    return _join_readings(from_hex(run[0]), _decode_numbers(run))


def _decode_numbers(run: re.Match[str]) -> str:
    numbers = re.findall(r"\d+", run[0])
    return _join_readings(_from_numbers(numbers, 10), _from_numbers(numbers, 8))


def _from_numbers(numbers: list[str], base: int) -> str:
    try:
        return _text_of(bytes(int(number, base) for number in numbers))
    except ValueError:
        return ""


def _decode_bits(run: re.Match[str]) -> str:
    return _from_numbers(_BIT_RUN.findall(run[0]), 2)


def _decode_triples(run: re.Match[str]) -> str:
    return _from_numbers(re.findall(r"\d{3}", run[0]), 10)


def _decode_base(run: re.Match[str]) -> str:
    return _join_readings(_from_base32(run[0].rstrip("=")), from_base64(run[0]))


def _join_readings(*readings: str) -> str:
    return " ".join(filter(None, readings))


def _from_base32(run: str) -> str:
    if not _BASE32.fullmatch(run):
        return ""
    whole = run[: len(run) - (len(run) % 8 in (1, 3, 6))]
    return _text_of(base64.b32decode(whole.upper() + "=" * (-len(whole) % 8)))


def from_hex(run: str) -> str:
    """Return the text that hexadecimal digits encode; empty if none."""
    return _text_of(bytes.fromhex("".join(_PAIR.findall(run))))


def from_base64(run: str) -> str:
    """Return the text that a run of base64 encodes; empty if none."""
    bare = run.rstrip("=").translate(str.maketrans("-_", "+/"))
    whole = bare[: len(bare) - (len(bare) % 4 == 1)]
    try:
        return _text_of(base64.b64decode(whole + "=" * (-len(whole) % 4)))
    except binascii.Error:
        return ""


# In this order, because hexadecimal digits are base64 characters too.
_DECODERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (_ESCAPE, _decode_escape),
    (_HALVES, _join_surrogates),
    (_NAMED, _decode_character_name),
    (_QUOTED, _decode_quoted_printable),
    (_SHIFTED, _decode_utf7),
    (_CALLED, _decode_call),
    (_OCTAL, _decode_numbers),
    (_HEX, _decode_pairs),
    (_CODES, _decode_numbers),
    (_BITS, _decode_bits),
    (_TRIPLES, _decode_triples),
    (_BASE64, _decode_base),
)


def _text_of(raw: bytes) -> str:
    """Return bytes as text if they are text. PowerShell writes two bytes for each letter."""
    halved = raw[::2] if not any(raw[1::2]) else raw
    text = halved.decode(errors="replace")
    legible = sum(map(_is_legible, text))
    return text if legible >= len(text) - len(text) // 12 and _TEXTUAL.search(_without_hidden(text)) else ""


def _is_legible(character: str) -> bool:
    shows = character.isprintable() or character.isspace() or unicodedata.category(character) == "Cf"
    return shows and character != "\ufffd"


def normalize_layers(decoded: tuple[str, ...]) -> tuple[NormalizedText, ...]:
    """Return every reading of a text's layers. The first is the text as it is written."""
    readings: dict[str, str] = {}
    for depth, layer in enumerate(decoded):
        for text, disguise in _readings(layer):
            words_of = words(text)
            readings.setdefault(words_of, disguise or ("encoded" if depth else ""))
            readings.setdefault(
                _SPELLED.sub(lambda run: run[0].replace(" ", ""), words_of), disguise or "letters apart"
            )
    straight = fold(decoded[0])
    readings.setdefault(words(codecs.encode(straight, "rot13")), "letters shifted by 13")
    readings.setdefault(words(straight[::-1]), "written backwards")
    return tuple(NormalizedText(words_of, disguise) for words_of, disguise in readings.items())


def _readings(layer: str) -> Iterator[tuple[str, str]]:
    straight = fold(layer)
    yield straight, ""
    yield fold(with_humps(layer)), ""
    yield fold(_QUOTING.sub("", _BLANK.sub(" ", layer))), "quoted for a shell"
    for letters in _LEET_LETTERS:
        yield _LEET.sub(lambda word, letters=letters: _unleet(word[0], letters), straight), "digits for letters"


def _unleet(word: str, letters: Mapping[int, int]) -> str:
    # Numbers stay numbers: "delete 411 rows" does not say "delete all rows".
    return word.translate(letters) if any(map(str.isalpha, word)) else word


def has_mixed_scripts(text: str) -> bool:
    """Return whether a word mixes Latin letters with a script that is not combined with them."""
    if text.isascii():
        return False
    return any(_is_mixed(word) for word in _SCRIPTED.findall(text) if not word.isascii())


def _is_mixed(word: str) -> bool:
    scripts = {unicodedata.name(letter, "UNNAMED").split()[0] for letter in set(word)} - _MINGLING
    return "LATIN" in scripts and len(scripts) > 1


def has_code(text: str) -> bool:
    """Return whether base64 or hexadecimal encodes text. Words and numbers, which do so by chance, do not count."""
    coded = any(from_base64(run) for run in _BASE64.findall(text) if _UNWORDLY.search(run) and not run.isdigit())
    return coded or any(from_hex(run) for run in _HEX.findall(text) if len(run) >= MIN_CODE and _UNDECIMAL.search(run))


def has_ciphertext(text: str) -> bool:
    """Return whether there is a random-looking run of letters and digits that decodes to nothing readable."""
    return any(_looks_random(run) and not has_code(run) for run in _RUN.findall(text))


def _looks_random(run: str) -> bool:
    if len(run) in _DIGESTS and _HEX.fullmatch(run):
        return False
    kinds = [(character.islower(), character.isupper(), character.isdigit()) for character in run]
    turns = sum(here != there and any(here) and any(there) for here, there in pairwise(kinds))
    # camelCase changes case often too, but has few digits.
    return turns >= len(run) / (3 if any(map(str.isdigit, run)) else 2)


def glob(pattern: str) -> Glob:
    """Compile a pattern that matches from the start of a word to the end of one, unless it ends in *."""
    pieces = _pieces(pattern)
    if not pieces:
        raise ConfigError(f"The pattern {pattern!r} is empty", pattern=pattern)
    return Glob(pattern, re2.compile(f"(?m:{_whole_words(pieces)}|{_with_spaces(pieces)})"))


def any_pattern(patterns: Iterable[str]) -> "re2.Pattern":
    """Compile an expression for any of some trusted patterns, as whole words."""
    return re2.compile(f"(?m:{'|'.join(_whole_words(_pieces(pattern)) for pattern in patterns)})")


def near_pattern(before: str, after: str, between: str, others: int, closing: str) -> "re2.Pattern":
    """Compile an expression for a word of one list followed closely by one of another, with few words between.

    Lists have commas between their words, which may end in *. If there are closing words, only they may follow.
    """
    small = f"(?: (?:{_alternation(between)}))"
    gap = f"{small}{{0,3}}(?: [^ \n]+){{0,{others}}}{small}{{0,1}} "
    end = f"(?: (?:{_alternation(closing)}))?$| (?:{_alternation(closing)}) " if closing else " |$"
    return re2.compile(f"(?m:(?:^| )(?:{_alternation(before)}){gap}(?:{_alternation(after)})(?:{end}))")


def _alternation(words: str) -> str:
    return "|".join(_pieces(word).replace("*", "[^ \n]*") for word in words.split(","))


def _pieces(pattern: str) -> str:
    """Return the letters, digits, * and ? of a pattern, with single spaces for everything else."""
    folded = fold(with_humps(strip_hidden(pattern)))
    return re.sub(r"\*+", "*", " ".join(re.findall(r"(?:[^\W_]|[*?])+", folded)))


def _whole_words(pieces: str) -> str:
    start = "" if pieces.startswith("*") else "(?:^| )"
    body = pieces.lstrip("* ")
    end = "" if body.endswith("*") and not body.endswith(" *") else "(?: |$)"
    # Between two words, * may also match nothing.
    body = body.rstrip("* ").replace(" * ", "\0")
    return start + "".join({"*": ".*", "?": ".?", "\0": " (?:.* )?"}.get(piece, piece) for piece in body) + end


def _with_spaces(pieces: str) -> str:
    """Match the same words with spaces inside or none between them, from the start of a word to the end of one."""
    body = pieces.strip("* ").replace(" ", "")
    return "(?:^| )" + " ?".join({"*": ".*", "?": ".?"}.get(piece, piece) for piece in body) + "(?: |$)"


def join_texts(texts: Iterable[NormalizedText]) -> str:
    """Join readings as lines of one text, since no glob matches across lines."""
    return "\n".join(form.words for form in texts)
