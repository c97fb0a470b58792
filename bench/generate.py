"""Made-up items in any number, the same for the same seed: products with words, prices, dates and nested offers."""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

ADJECTIVES = "red blue old new small large quiet bright salted smoked woven carved painted folding heavy light".split()
NOUNS = "kettle lamp chair basket knife boat jacket clock mirror bowl blanket pencil ladder wheel bottle candle".split()
PLACES = "harbour mill market quay lighthouse bridge garden workshop attic station library chapel".split()
SYLLABLES = "ba be bo da de do fa fe ga go ka ke ko la le lo ma me mo na ne no pa po ra re ro sa se so ta te to".split()


def items(count: int, seed: int = 7) -> Iterator[dict[str, Any]]:
    chance = random.Random(seed)
    # Words fall off in frequency as they do in texts: a few common ones, many rare ones.
    words = ["".join(chance.choices(SYLLABLES, k=chance.randint(2, 4))) for _ in range(30_000)]
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(words))))
    for number in range(count):
        text = " ".join(chance.choices(words, cum_weights=weights, k=60))
        name = f"{chance.choice(ADJECTIVES)} {chance.choice(NOUNS)} {chance.choice(words)}"
        price = round(chance.lognormvariate(3, 1), 2)
        yield {
            "id": f"p{number}",
            "@type": "Product",
            "name": name,
            "description": f"{text}. From the {chance.choice(PLACES)}.",
            "category": chance.choice(NOUNS),
            "price": price,
            "stock": chance.randint(0, 500),
            "released": f"20{chance.randint(10, 26)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
            "tags": chance.sample(ADJECTIVES, 3),
            "offers": {"price": price, "currency": "GBP"},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    for item in items(parser.parse_args().count):
        sys.stdout.write(json.dumps(item) + "\n")


if __name__ == "__main__":
    main()
