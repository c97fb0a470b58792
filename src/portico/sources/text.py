"""Detects the encoding of a text file, without reading more of it than it has to. Decodes whole documents.

UTF-8 is the rule: a file with more lines that are UTF-8 than lines that are not stays UTF-8. Otherwise the encoding
is the one whose letters fit a language best; charset-normalizer decides where none does.
"""

import codecs
import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, BinaryIO

from portico.errors import SourceError
from portico.sources.records import Document, Doubt, Entry, Remark, too_large

_CHUNK = 1 << 20
_SAMPLE = 64 * 1024
_HEAD = 4096  # bytes of a page that may declare its encoding
_CHARSET = re.compile(rb"""<meta\s[^<>]{0,300}?charset\s*=\s*["']?\s*([\w:.-]{1,40})""", re.IGNORECASE)
_ENOUGH_LINES = 1000
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_LINE = re.compile(rb"^[^\n\x80-\xff]*+[\x80-\xff][^\n]*", re.MULTILINE)
_CUT_LETTER = re.compile(rb"\A[\x80-\xbf]{1,3}|[\xc0-\xff][\x80-\xbf]{0,2}\Z")
_LABELS = {
    "utf_8": "UTF-8", "utf_16": "UTF-16", "utf_32": "UTF-32", "cp932": "Shift-JIS", "gb18030": "GB18030",
    "big5": "Big5", "euc_jp": "EUC-JP", "cp949": "EUC-KR", "koi8_r": "KOI8-R", "mac_roman": "Mac Roman",
}  # fmt: skip
_PUNCTUATION = frozenset("\u00a0‘’‚“”„–—…«»‹›•·€£¥§©®™°º²³½¼¾×±µ¿¡№\u200e\u200f、。「」・（）！？：，ー")
_SURE = 0.5


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the bytes of a file become text. Bytes that do not fit become surrogates where the codec allows it."""

    codec: str
    is_sure: bool = True

    @property
    def label(self) -> str:
        """Return the name that people know: windows-1252, Shift-JIS."""
        name = codecs.lookup(self.codec).name.replace("-", "_").removesuffix("_sig").removesuffix("_le")
        name = name.removesuffix("_be") if name.startswith("utf") else name
        match = re.fullmatch(r"cp(12\d\d|874)", name)
        return f"windows-{match[1]}" if match else _LABELS.get(name, name.replace("_", "-").upper())

    @property
    def errors(self) -> str:
        return "replace" if self.label in ("UTF-16", "UTF-32") else "surrogateescape"

    @property
    def is_utf8(self) -> bool:
        return self.label == "UTF-8"

    def entries(self, place: str) -> Iterator[Entry]:
        """Yield what the report should say of an encoding that is not UTF-8."""
        if not self.is_utf8:
            yield Remark(place, f"read as {self.label}")
        if not self.is_sure:
            yield Doubt(place, "the encoding is a guess: its letters fit no language well", "", self.label, "encoding")


@dataclass(frozen=True, slots=True)
class _Language:
    """The letters beside ASCII that a language uses, the frequent ones first, and the encodings it was written in."""

    codecs: tuple[str, ...]
    frequent: frozenset[str]
    letters: frozenset[str]

    @property
    def is_latin(self) -> bool:
        return "é" in self.letters or "ş" in self.letters or "š" in self.letters


def _language(names: str, frequent: str, others: str = "") -> _Language:
    return _Language(tuple(names.split()), frozenset(frequent), frozenset(frequent + others))


_WEST = "cp1252 iso8859_15 mac_roman cp850"
_CENTRAL = "cp1250 iso8859_2 cp852"
_CYRILLIC = "cp1251 koi8_r cp866 iso8859_5"
# The order is that of likelihood: the first of equals is chosen.
_LANGUAGES = (
    _language(_WEST, "éèàçêâîôûùïëœ", "ÿæü"),
    _language(_WEST, "äöüß", "éèàáç"),
    _language(_WEST, "áéíóúñ", "üçªº"),
    _language(_WEST, "ãçáéíóâêôõúà", "üªº"),
    _language(_WEST, "àèìòùé", "óîí"),
    _language(_WEST, "åäöæøé", "üóèôà"),
    _language(_WEST, "ëïéèöü", "áóêçà"),
    _language(_WEST, "áéíóúö", "ðþýæ"),
    _language(_CENTRAL, "ąćęłńóśźż", "éüö"),
    _language(_CENTRAL, "áčéěířšťúůýžňďó", "öüľĺŕôä"),
    _language(_CENTRAL, "áéöőüűóúí"),
    _language(_CENTRAL, "čćđšž", "áéëöü"),
    _language(_CENTRAL, "ăâîşţ", "áé"),
    _language("cp1254 iso8859_9 cp857", "çğıİöşü", "âîûé"),
    _language("cp1257 iso8859_13", "ąčęėįšųūžāēģīķļņ", "äõöü"),
    _language(_CYRILLIC, "оеаинтсрвлкмдпу", "яыьгзбчйхжшюцщэфъёіїєґўђјљњћџ"),
    _language("cp1253 iso8859_7", "αοιετσνηρπκ", "υμλςγδθφβχξωζψάέήίόύώϊϋΐΰ"),
    _language("cp1255 iso8859_8", "יוהלאמרתבש", "גדזחטכךםנןסעפףצץק"),
    _language("cp1256 iso8859_6", "اليمنورتبةع", "ثجحخدذزسشصضطظغفقكهىءآأؤإئپچژگکیےًٌٍَُِّْ،؟"),
    _language("cp874", "านรกอเงมยลวดท่้ีส", "ขคฆจฉชซญฎฏฐณตถธนบปผฝพฟภศษสหฬฮะัาำิึืุูเแโใไ็๊๋์ๆ๑๒๓"),
)  # fmt: skip
_CJK = ("cp932", "euc_jp", "cp949", "gb18030", "big5")


def detect_encoding(file: BinaryIO, name: str = "") -> Encoding:
    """Return the encoding of a file, which is left at its start. `name` is one that the owner has set."""
    if name:
        return Encoding(_known_codec(name))
    file.seek(0)
    head = file.read(_SAMPLE)
    marked = next((codec for mark, codec in _MARKS if head.startswith(mark)), None)
    if marked is None:
        marked = _unmarked_utf16(head)
    if marked is None:
        sample = _lines_not_utf8(file)
        marked = None if sample else "utf-8"
    else:
        sample = b""
    file.seek(0)
    return Encoding(marked) if marked else _guess(sample)


def read_text(document: Document, name: str = "") -> tuple[str, list[Entry]]:
    """Return the whole text of a document, and what the report should say of it."""
    raw = document.read()
    if raw is None:
        return "", [too_large(document.name)]
    encoding = detect_encoding(document.file, name)
    text = raw.decode(encoding.codec, "replace")
    entries = list(encoding.entries(document.name))
    if "\ufffd" in text:
        reason = f"some letters are not {encoding.label}"
        entries.append(Doubt(document.name, reason, value=_around(text, "\ufffd"), setting="encoding"))
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), entries


def decode_page(raw: bytes, place: str, name: str = "") -> tuple[str, list[Entry]]:
    """Return the text of a web page, whose encoding its head may declare, and what the report should say of it."""
    file = io.BytesIO(raw)
    encoding = detect_encoding(file, name)
    declared = _CHARSET.search(raw[:_HEAD])
    if declared and not name and not encoding.is_utf8 and encoding.errors != "replace":
        with contextlib.suppress(SourceError):
            codec = _known_codec(declared[1].decode())
            # Browsers read pages that declare Latin-1 as windows-1252, which has more letters.
            encoding = Encoding({"iso8859-1": "cp1252", "ascii": "cp1252"}.get(codec, codec))
    text = raw.decode(encoding.codec, "replace")
    entries = list(encoding.entries(place))
    if "\ufffd" in text:
        reason = f"some letters are not {encoding.label}"
        entries.append(Doubt(place, reason, value=_around(text, "\ufffd"), setting="encoding"))
    return text.removeprefix("\ufeff"), entries


def misread_utf8(text: str, encoding: Encoding) -> str | None:
    """Return the text of a UTF-8 line in a file of another encoding, or None if it is not one."""
    if text.isascii() or encoding.is_utf8 or encoding.errors == "replace":
        return None
    try:
        return text.encode(encoding.codec, encoding.errors).decode()
    except UnicodeError:
        return None


def _known_codec(name: str) -> str:
    try:
        codec = codecs.lookup(name).name
        b"\xe9".decode(codec, "replace")  # refuses codecs that are not of texts: base64, idna
    except (LookupError, UnicodeError):
        hint = "Use a name such as utf-8, windows-1252, shift_jis or gb18030."
        raise SourceError(f"There is no encoding {name!r}.", hint=hint) from None
    return "utf-8-sig" if codec == "utf-8" else codec


def _unmarked_utf16(head: bytes) -> str | None:
    """Recognise UTF-16 without a mark by the zero bytes of its ASCII letters."""
    if b"\x00" not in head or len(head) < 4:
        return None
    even, odd = head[0::2].count(0), head[1::2].count(0)
    half = len(head) / 2
    if odd > 0.4 * half and even < 0.1 * half:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 * half and odd < 0.1 * half else None


def _lines_not_utf8(file: BinaryIO) -> bytes:
    """Return a sample of the lines with letters beyond ASCII, if most of them are not UTF-8; else nothing."""
    valid, broken, sample = 0, 0, bytearray()
    for chunk in _chunks_of_lines(file):
        for line in _LINE.findall(chunk):
            if _is_utf8(line):
                valid += 1
            else:
                broken += 1
            if len(sample) < _SAMPLE:
                sample += line[:_SAMPLE] + b"\n"
        if max(valid, broken) >= _ENOUGH_LINES:
            break
    return bytes(sample) if broken > valid else b""


def _chunks_of_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the parts of a file that are not ASCII, cut at the ends of lines; long lines between letters."""
    file.seek(0)
    rest = b""
    while chunk := file.read(_CHUNK):
        end = chunk.rfind(b"\n") + 1
        part, rest = (rest + chunk[:end], chunk[end:]) if end else (_CUT_LETTER.sub(b"", rest + chunk), b"")
        if not part.isascii():
            yield part
    if not rest.isascii():
        yield rest


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _guess(sample: bytes) -> Encoding:
    best, codec = max(((_fit(sample, name), name) for name in _candidates()), key=lambda pair: pair[0])
    if best >= _SURE:
        return Encoding(codec)
    # Takes a tenth of a second to import: only for text that fits no language.
    normalizer: Any = import_module("charset_normalizer")
    match: Any = normalizer.from_bytes(sample).best()
    return Encoding(str(match.encoding) if match is not None and best < 0 else codec, is_sure=False)


@cache
def _candidates() -> tuple[str, ...]:
    names = [name for rank in range(4) for one in _LANGUAGES for name in one.codecs[rank : rank + 1]]
    return (*dict.fromkeys(names), *_CJK)


def _fit(sample: bytes, codec: str) -> float:
    """Return how well the letters of a sample fit what is written in an encoding: 1 for frequent letters only."""
    text = sample.decode(codec, "replace")
    if codec in _CJK:
        letters = [character for character in text if not character.isascii()]
        return sum(_cjk_weight(character, codec) for character in letters) / max(len(letters), 1)
    return max(_language_fit(text, language) for language in _LANGUAGES if codec in language.codecs)


def _language_fit(text: str, language: _Language) -> float:
    weights = [
        _weight(text[at - 1 : at] or " ", character, text[at + 1 : at + 2] or " ", language)
        for at, character in enumerate(text)
        if not character.isascii()
    ]
    return sum(weights) / max(len(weights), 1)


def _weight(before: str, character: str, after: str, language: _Language) -> float:
    """Rate a character between its neighbours: a symbol inside a word, or two scripts in one, speak against a guess."""
    small = character.lower() if character != "İ" else character  # its small form is two characters
    if small not in language.letters:
        return _symbol_weight(before, character, after)
    if character.isupper() and before.islower():
        return -0.5
    if not before.isalpha() and not after.isalpha():
        return 0.5
    if language.is_latin:
        return 1.0 if small in language.frequent else 0.8
    if _is_ascii_letter(before) or _is_ascii_letter(after):
        return -1.0
    return 1.0 if small in language.frequent else 0.6


def _symbol_weight(before: str, character: str, after: str) -> float:
    if character not in _PUNCTUATION:
        return -1.0
    if character in "’–—“”„«»‘¿¡…°":
        return 0.9
    return 0.9 if not before.isalpha() and not after.isalpha() else 0.0


def _is_ascii_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _cjk_weight(character: str, codec: str) -> float:
    """Rate a character by where it stands in the table of its country: the common ones come first."""
    if character in _PUNCTUATION or "\uff01" <= character <= "\uff5e":
        return 0.7
    if "\uff61" <= character <= "\uff9f" or character == "\ufffd" or not character.isprintable():
        return -0.5
    lead, *rest = character.encode(codec, "replace")
    is_kana = "\u3041" <= character <= "\u30ff"
    match codec:
        case "cp932" | "euc_jp":
            return 1.0 if is_kana else _kanji_weight(character, lead, codec)
        case "cp949":
            return 0.9 if "\uac00" <= character <= "\ud7a3" and lead >= 0xB0 and rest[0] > 0xA0 else -1.0
        case "gb18030":
            return 0.8 if 0xB0 <= lead <= 0xD7 and rest[0] > 0xA0 else 0.1
        case _:
            return 0.8 if 0xA4 <= lead <= 0xC6 and not is_kana else 0.1


def _kanji_weight(character: str, lead: int, codec: str) -> float:
    if not "\u4e00" <= character <= "\u9fff":
        return -0.5
    common, weight = (range(0x88, 0x98), 0.85) if codec == "cp932" else (range(0xB0, 0xD0), 0.75)
    return weight if lead in common else 0.3


def _around(text: str, mark: str) -> str:
    at = text.find(mark)
    return text[max(0, at - 20) : at + 20]
