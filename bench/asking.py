"""What asking costs beside searching, and how a server bears many streams at once.

    python bench/asking.py --items 100000
    python bench/asking.py --streams 200

Ratios are to be read, not times: machines differ, and so do moments.
"""

import argparse
import asyncio
import resource
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
from common import COLLECTION, fill_vectors, generate, load, local_embedder, made_up_vectors, timed

from portico.protocols import parse_config
from portico.query import Query
from portico.requests import Ask
from portico.server.assembly import open_site

QUESTIONS = (
    "red kettle from the harbour",
    "a kettle under £20",
    "cheapest lamp with at least 4 stars",
    "something wooden, not red",
    "what did they make in the valley last year",
    "blue bowl between 10 and 30 pounds",
)
BODY = {
    "query": {"text": "vegetarian dinner under 30 minutes"},
    "prefer": {"streaming": True, "mode": "list, summarize"},
}


async def measure(items: int, rounds: int) -> None:
    """One question as a search, and as a question."""
    embedder = local_embedder()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/site.db"
        load(generate(Path(folder), items), url)
        config = parse_config({"store": {"url": url}, "limits": {"anonymous_per_minute": 1_000_000}})
        async with open_site(config, background=False) as parts:
            await fill_vectors(parts.store, embedder.name, made_up_vectors(items, embedder.dimensions))
        async with open_site(config, background=False) as parts:
            caller = parts.site.access.anonymous_caller()

            async def search(number: int) -> None:
                text = QUESTIONS[number % len(QUESTIONS)]
                await parts.site.query(Query(COLLECTION, text=text, limit=10), caller)

            async def ask(number: int) -> None:
                async for _ in parts.site.ask(Ask(QUESTIONS[number % len(QUESTIONS)]), caller):
                    pass

            first = time.perf_counter()
            await ask(0)
            learning = (time.perf_counter() - first) * 1000
            for work in (search, ask):
                await timed(work, len(QUESTIONS))
            searched, _ = await timed(search, rounds)
            asked, _ = await timed(ask, rounds)
    print(f"{items:,} items: search {searched:.1f} ms, ask {asked:.1f} ms ({asked / searched:.2f} times)")
    print(f"the first question, which learns what the fields hold: {learning:.0f} ms")


async def streams(count: int, port: int) -> None:
    """Many streams at once against the sample site in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        portico = Path(sys.executable).parent / "portico"
        command = [portico, "demo", "--port", str(port), "--nwp-port", str(port + 1)]
        quiet = {"stdout": asyncio.subprocess.DEVNULL, "stderr": asyncio.subprocess.DEVNULL}
        server = await asyncio.create_subprocess_exec(*command, cwd=folder, **quiet)
        try:
            await _when_ready(port)
            alone = [await _stream(port) for _ in range(10)]
            started = time.perf_counter()
            together = await asyncio.gather(*(_stream(port) for _ in range(count)))
            whole = time.perf_counter() - started
        finally:
            server.send_signal(signal.SIGTERM)
            await server.wait()
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    median = statistics.median(alone)
    print(f"alone: {median * 1000:.0f} ms; {count} at once: all in {whole:.2f} s, the slowest {max(together):.2f} s")
    print(f"each second {count / whole:.0f} answers, {whole / count / median:.2f} times what one takes alone")
    print(f"memory of the server at most {peak:.0f} MB")


async def _when_ready(port: int) -> None:
    """Once it searches by words and by meaning, and does nothing else."""
    async with httpx.AsyncClient(trust_env=False) as client:
        for _ in range(600):
            try:
                status = (await client.get(f"http://127.0.0.1:{port}/readyz")).json()
                if status["ready"] and all(
                    counts["items"] == counts["embedded"] for counts in status["collections"].values()
                ):
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.1)
    sys.exit("The server did not start.")


async def _stream(port: int) -> float:
    started = time.perf_counter()
    async with httpx.AsyncClient(trust_env=False, timeout=120) as client:
        response = await client.post(f"http://127.0.0.1:{port}/ask", json=BODY)
    if response.status_code != 200 or response.text.count("event: complete") != 1:
        sys.exit(f"A stream failed: {response.status_code} {response.text[:300]}")
    return time.perf_counter() - started


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=0)
    parser.add_argument("--streams", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--port", type=int, default=8190)
    options = parser.parse_args()
    if options.items:
        await measure(options.items, options.rounds)
    if options.streams or not options.items:
        await streams(options.streams or 200, options.port)


if __name__ == "__main__":
    asyncio.run(main())
