"""How fast a table is loaded, and in how much memory.

    python bench/loading.py --rows 200000
    python bench/loading.py --rows 200000 --before ../portico-before/src

Loads the same generated CSV file into SQLite in a process of its own for each side. `--before` names the `src` folder
of another checkout to compare with, such as that of the last release. Read the ratio: machines differ.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MAX_ROWS = 1_000_000
HERE = Path(__file__).resolve().parent.parent / "src"
WORDS = ("kettle", "lamp", "chair", "rug", "shelf", "clock", "mug", "vase")
# Runs in a process of its own, with either source on its path.
LOAD = """
import asyncio, json, resource, sys, time
from portico.sources.ingest import ingest
from portico.sources.registry import SourceOptions, open_source
from portico.store import open_store

async def main():
    store = await open_store(f"sqlite:///{sys.argv[2]}")
    started = time.perf_counter()
    report = await ingest(store, open_source(sys.argv[1], SourceOptions()), "things")
    seconds = time.perf_counter() - started
    await store.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": report.added, "seconds": seconds, "megabytes": peak}))

asyncio.run(main())
"""


def write_table(path: Path, rows: int) -> None:
    with path.open("w") as file:
        file.write("id,name,price,weight,released,stock,active,note\n")
        for n in range(rows):
            name = f"{WORDS[n % 8]} {n}"
            day = f"20{n % 20 + 5:02}-{n % 12 + 1:02}-{n % 28 + 1:02}"
            note = f"A {WORDS[n % 7]} beside a {WORDS[n % 5]}, number {n} of its kind."
            file.write(f'{n},{name},{n % 500}.{n % 100:02},{n % 90}.5,{day},{n % 40},{n % 2 == 0},"{note}"\n')


def measure(source: Path, table: Path, folder: Path) -> dict[str, float]:
    store = folder / f"{abs(hash(source))}.db"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    command = [sys.executable, "-c", LOAD, str(table), str(store)]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    store.unlink()
    return json.loads(result.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help=f"at most {MAX_ROWS:,}")
    parser.add_argument("--before", type=Path, help="the src folder of another checkout")
    arguments = parser.parse_args()
    rows = min(arguments.rows, MAX_ROWS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = folder / "things.csv"
        write_table(table, rows)
        sides = {"now": HERE, **({"before": arguments.before.resolve()} if arguments.before else {})}
        rates: dict[str, float] = {}
        for side, source in sides.items():
            result = measure(source, table, folder)
            rates[side] = result["rows"] / result["seconds"]
            out = (
                f"{side:8} {result['rows']:>9,.0f} rows {rates[side]:>9,.0f} rows/s  peak {result['megabytes']:,.0f} MB"
            )
            sys.stdout.write(out + "\n")
        if "before" in rates:
            sys.stdout.write(f"ratio    {rates['now'] / rates['before']:.2f}\n")


if __name__ == "__main__":
    main()
