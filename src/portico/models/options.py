"""Reads the options of a model's URL, such as `?threads=1`. Refuses unknown, repeated and ill-typed ones."""

from collections import Counter
from typing import TypeVar
from urllib.parse import SplitResult, parse_qsl

import msgspec

from portico.errors import ConfigError

Options = TypeVar("Options", bound=msgspec.Struct)


def read_options(url: SplitResult, kind: type[Options]) -> Options:
    pairs = parse_qsl(url.query, keep_blank_values=True)
    twice = [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]
    if twice:
        raise ConfigError(f"The {url.scheme}: model URL gives {', '.join(twice)} more than once")
    try:
        return msgspec.convert(dict(pairs), kind, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(kind))
        raise ConfigError(
            f"The options of the {url.scheme}: model URL are wrong: {error}", hint=f"Known options: {known}."
        ) from error
