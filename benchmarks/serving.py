"""The server under load: throughput, latency, overload, stopping, reloading; the client has the same cores.

    python benchmarks/serving.py --data DATA
    python benchmarks/serving.py --data DATA --only overload stop   # renews these
    python benchmarks/serving.py --data DATA --quick                # a trial; nothing is saved

`xmcascade serve` runs in a process of its own; the client is one process with a few connections that stay
open, each of which asks again when it has its answer. Texts are test documents of tate-subjects. XR-Linear
has learnt from all of its training documents; CascadeXML has MiniLM, 40,000 labels and random heads over even
clusters: what it says does not matter here.

linear: batches of 32 texts; single texts.
encoder: batches of 32 texts, against the bare encoder on the same texts in the same batches, as transformers
has it, tokenised beforehand (torch, inference mode, all cores); in a process of its own, and in turns.
overload: single texts, sent at 10 times the rate that the server could answer, whatever comes back.
stop: SIGTERM under load, 20 times; a lost request is one that was sent on a connection and not answered.
reload: under load, the model is published anew 5 times.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from common import WORK, data_folder, goal, parser, run_worker, save, saved, today

CORPUS, FOLDER = "tate-subjects", WORK / "serving"
PARTS = ["linear", "encoder", "overload", "stop", "reload"]
BATCH, N_LABELS, TIMES, STOPS, RELOADS, TURNS = 32, 40_000, 10, 20, 5, 4
PACKAGES = [
    "numpy",
    "numba",
    "torch",
    "transformers",
    "tokenizers",
    "fastapi",
    "uvicorn",
    "httptools",
    "uvloop",
]


# Models ---------------------------------------------------------------------------------------------------


def texts_of(data: str, n: int) -> list[str]:
    from xmcascade import read_corpus

    corpus = read_corpus(Path(data, CORPUS, "test.jsonl.xz"), empty_text="keep")
    assert corpus.texts is not None
    return list(corpus.texts)[:n]


def make_models(given: argparse.Namespace) -> dict[str, Any]:
    """Train and save what is served; once."""
    from even import EvenCascade, random_corpus
    from xmcascade import XRLinear, read_corpus

    if not (FOLDER / "linear").is_dir():
        train = read_corpus(Path(given.data, CORPUS, "train.jsonl.xz"), on_error="skip")
        XRLinear().fit(train).save(FOLDER / "linear")
    if not (FOLDER / "encoder").is_dir():
        model = EvenCascade(init="random", score="path", training={"epochs": 0.0, "head_epochs": 0.0})
        model.fit(random_corpus(8, N_LABELS, 32)).save(FOLDER / "encoder")
    return {}


def bare(given: argparse.Namespace) -> dict[str, Any]:
    """Texts a second through the bare encoder."""
    import torch

    from xmcascade import load
    from xmcascade.kernels.parallel import thread_count
    from xmcascade.neural import TokenStore, padded, pretrained

    text = load(FOLDER / "encoder", runtime="torch")._fitted().state.text
    encoder, alone = text.reader.encoder, pretrained.load(pretrained.EMBEDDED)[0].eval()
    alone.pooler = None
    torch.set_num_threads(thread_count())
    texts = texts_of(given.data, 64 if given.quick else 1024)
    tokens = TokenStore.of(texts, encoder.tokenizer, text.max_tokens)
    batches = [
        padded(tokens, range(i, min(i + BATCH, len(texts))), encoder.pad) for i in range(0, len(texts), BATCH)
    ]
    with torch.inference_mode():
        for measured in (False, True):
            start = time.perf_counter()
            for ids, mask in batches if measured else batches[:4]:
                alone(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
    return {
        "texts_per_second": len(texts) / (time.perf_counter() - start),
        "tokens": len(tokens.ids) / len(texts),
    }


# A server and its clients ---------------------------------------------------------------------------------


class Server:
    """`xmcascade serve` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        command = [
            sys.executable,
            "-m",
            "xmcascade",
            "--quiet",
            "serve",
            str(folder),
            "--port",
            str(self.port),
        ]
        self.process = subprocess.Popen([*command, *options])

    async def ready(self) -> Server:
        for _ in range(6000):
            try:
                if (await Connection(self.port).ask(request_of("GET", "/readyz")))[0] == 200:
                    return self
            except OSError:
                pass
            await asyncio.sleep(0.05)
        raise TimeoutError

    @property
    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def request_of(method: str, path: str, body: Any = None) -> bytes:
    raw = b"" if body is None else json.dumps(body).encode()
    kind = f"content-type: application/json\r\ncontent-length: {len(raw)}"
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\n{kind}\r\n\r\n".encode() + raw


class Connection:
    """A connection that is opened when it is needed, and stays open while the server lets it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)

    async def ask(self, request: bytes) -> tuple[int, int]:
        """Status and bytes of the answer; an OSError says that there was none."""
        if self.writer is None:
            await self.open()
        assert self.reader is not None and self.writer is not None
        self.writer.write(request)
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await self.reader.readexactly(length)
        except asyncio.IncompleteReadError as error:
            self.close()
            raise ConnectionResetError("no answer") from error
        if b"connection: close" in head.lower():
            self.close()
        return int(head[9:12]), length

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


@dataclass
class Seen:
    """What came back."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    refused: list[float] = field(default_factory=list)
    """Seconds of answers with 429."""
    lost: int = 0
    """Requests that were sent and not answered."""
    unreachable: int = 0

    def told(self, wall: float, texts: int = 1) -> dict[str, Any]:
        found = np.array(self.seconds or [np.nan])
        return {
            "requests_per_second": self.statuses[200] / wall,
            "texts_per_second": texts * self.statuses[200] / wall,
            **{f"p{p}_ms": 1000 * float(np.percentile(found, p)) for p in (50, 95, 99)},
            "statuses": {str(status): n for status, n in sorted(self.statuses.items())},
            "refused_p99_ms": 1000 * float(np.percentile(self.refused, 99)) if self.refused else None,
            "lost": self.lost,
            "unreachable": self.unreachable,
        }


async def asked(connection: Connection, request: bytes, seen: Seen) -> None:
    begun = time.perf_counter()
    try:
        if connection.writer is None:
            await connection.open()
    except OSError:
        seen.unreachable += 1
        raise
    try:
        status, _ = await connection.ask(request)
    except OSError:
        connection.close()
        seen.lost += 1
        raise
    took = time.perf_counter() - begun
    seen.statuses[status] += 1
    (seen.seconds if status == 200 else seen.refused).append(took)


async def load(
    port: int, requests: list[bytes], connections: int, seconds: float, warm_up: float = 1.0
) -> dict[str, Any]:
    """So many connections ask again and again."""
    seen, ends = Seen(), time.perf_counter() + warm_up

    async def one(first: int) -> None:
        connection, at = Connection(port), first
        while time.perf_counter() < ends:
            await asked(connection, requests[at % len(requests)], seen)
            at += connections
        connection.close()

    await asyncio.gather(*(one(i) for i in range(connections)))
    seen.__init__()  # type: ignore[misc]
    start = time.perf_counter()
    ends = start + seconds
    await asyncio.gather(*(one(i) for i in range(connections)))
    return seen.told(time.perf_counter() - start)


# Parts ----------------------------------------------------------------------------------------------------


def bodies(texts: list[str], n: int) -> list[bytes]:
    return [
        request_of("POST", "/v1/predict", {"texts": texts[i : i + n], "k": 5})
        for i in range(0, len(texts) - n + 1, n)
    ]


async def linear(given: argparse.Namespace, texts: list[str], seconds: float) -> dict[str, Any]:
    server = await Server(FOLDER / "linear").ready()
    batches = await load(server.port, bodies(texts, BATCH), 4, seconds)
    batches["texts_per_second"] *= BATCH
    singles = await load(server.port, bodies(texts, 1), 8, seconds)
    memory = server.memory_mb
    assert server.stop() == 0
    return {"batches": batches, "singles": singles, "memory_mb": memory}


async def encoder(given: argparse.Namespace, texts: list[str], seconds: float) -> dict[str, Any]:
    server, turns = await Server(FOLDER / "encoder").ready(), []
    for _ in range(1 if given.quick else TURNS):  # the machine is not as fast at all times
        alone = run_worker(__file__, "bare", "--data", given.data, *["--quick"] * given.quick)
        batches = await load(server.port, bodies(texts, BATCH), 4, seconds)
        batches["texts_per_second"] *= BATCH
        turns.append({"bare": alone, "batches": batches})
    singles = await load(server.port, bodies(texts, 1), 1, seconds)
    assert server.stop() == 0
    return {"turns": turns, "one_at_a_time": singles}


async def overload(given: argparse.Namespace, texts: list[str], seconds: float) -> dict[str, Any]:
    server, requests = await Server(FOLDER / "encoder").ready(), bodies(texts, 1)
    can = (await load(server.port, requests, 32, seconds))["requests_per_second"]
    before, seen, free, tasks = server.memory_mb, Seen(), list[Connection](), set[asyncio.Task[None]]()

    async def one(request: bytes) -> None:
        connection = free.pop() if free else Connection(server.port)
        try:
            await asked(connection, request, seen)
        except OSError:
            return
        free.append(connection)

    start, sent, wanted = time.perf_counter(), 0, TIMES * can
    while (now := time.perf_counter() - start) < 6 * seconds:
        while sent < wanted * now:
            task = asyncio.create_task(one(requests[sent % len(requests)]))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            sent += 1
        await asyncio.sleep(0.005)
    wall = time.perf_counter() - start
    await asyncio.gather(*tasks)
    after = server.memory_mb
    assert server.stop() == 0
    told = {"capacity": can, "offered_per_second": sent / wall, "seconds": wall, **seen.told(wall)}
    return {**told, "memory_mb": [before, after], "growth_percent": 100 * (after / before - 1)}


async def stop(given: argparse.Namespace, texts: list[str], seconds: float) -> dict[str, Any]:
    requests, rows = bodies(texts, 1), []
    for _ in range(2 if given.quick else STOPS):
        server, seen = await Server(FOLDER / "linear").ready(), Seen()

        async def one(first: int, server: Server = server, seen: Seen = seen) -> None:
            connection, at = Connection(server.port), first
            while True:
                try:
                    await asked(connection, requests[at % len(requests)], seen)
                except OSError:
                    return
                at += 1

        tasks = [asyncio.create_task(one(i)) for i in range(16)]
        await asyncio.sleep(1.0)
        code = await asyncio.to_thread(server.stop)
        await asyncio.gather(*tasks)
        rows.append(
            {
                "code": code,
                "answered": seen.statuses[200],
                "lost": seen.lost,
                "other": sum(seen.statuses.values()) - seen.statuses[200],
            }
        )
    return {
        "stops": rows,
        "lost": sum(row["lost"] for row in rows),
        "codes": sorted({row["code"] for row in rows}),
    }


async def reload(given: argparse.Namespace, texts: list[str], seconds: float) -> dict[str, Any]:
    folder, requests, seen = FOLDER / "reloaded", bodies(texts, 1), Seen()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FOLDER / "linear", folder)
    server, done = await Server(folder).ready(), False

    async def one(first: int) -> None:
        connection, at = Connection(server.port), first
        while not done:
            await asked(connection, requests[at % len(requests)], seen)
            at += 1

    start, tasks = time.perf_counter(), [asyncio.create_task(one(i)) for i in range(8)]
    for _ in range(RELOADS):
        await asyncio.sleep(1.0)
        await asyncio.to_thread(run_worker, __file__, "publish")
        await asyncio.sleep(3.0)
    done = True
    await asyncio.gather(*tasks)
    wall = time.perf_counter() - start
    metrics = await asyncio.open_connection("127.0.0.1", server.port)
    metrics[1].write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    text = (await metrics[0].read()).decode()
    loads = float(text.partition('model="reloaded",result="loaded"} ')[2].split("\n")[0])
    assert server.stop() == 0
    return {"published": RELOADS, "loads": loads, **seen.told(wall)}


def publish() -> dict[str, Any]:
    from xmcascade import load as loaded

    loaded(FOLDER / "reloaded").save(FOLDER / "reloaded")
    return {}


def report(results: dict[str, Any]) -> dict[str, Any]:
    """The numbers, and the goals."""
    goals = {}
    if own := results.get("linear"):
        title = "XR-Linear, batches of 32, texts/s"
        goals[title] = goal(title, own["batches"]["texts_per_second"], ">=", 1000)
        goals["single"] = goal(
            "XR-Linear, single requests/s", own["singles"]["requests_per_second"], ">=", 300
        )
        goals["single p99"] = goal("XR-Linear, single requests, p99 ms", own["singles"]["p99_ms"], "<=", 50)
    if own := results.get("encoder"):
        bare, served = (
            float(np.mean([turn[which]["texts_per_second"] for turn in own["turns"]]))
            for which in ("bare", "batches")
        )
        alone = own["one_at_a_time"]["p50_ms"]
        print(f"bare encoder {bare:.1f} texts/s, served {served:.1f}; one at a time p50 {alone:.1f} ms")
        goals["encoder"] = goal("CascadeXML, % of the bare encoder", 100 * served / bare, ">=", 80)
    if own := results.get("overload"):
        came = f"{own['offered_per_second']:.0f} came; {own['statuses']}"
        print(f"overload: {own['capacity']:.0f} requests/s can be answered, {came}")
        goals["429"] = goal("overload, 429 after ms, p99", own["refused_p99_ms"], "<=", 100)
        failed = sum(n for status, n in own["statuses"].items() if status not in ("200", "429"))
        goals["5xx"] = goal("overload, other statuses", failed, "<=", 0)
        goals["errors"] = goal("overload, connection errors", own["lost"] + own["unreachable"], "<=", 0)
        goals["growth"] = goal("overload, memory growth in %", own["growth_percent"], "<=", 5)
    if own := results.get("stop"):
        goals["stop"] = goal(f"SIGTERM under load, {len(own['stops'])} times, lost", own["lost"], "<=", 0)
    if own := results.get("reload"):
        goals["reload"] = goal(
            "reload under load, lost or refused", own["lost"] + own["unreachable"], "<=", 0
        )
    return goals


async def measured(given: argparse.Namespace, part: str, texts: list[str]) -> dict[str, Any]:
    works = {"linear": linear, "encoder": encoder, "overload": overload, "stop": stop, "reload": reload}
    return {**await works[part](given, texts, 1.0 if given.quick else 10.0), "date": today()}


def main() -> None:
    arguments = parser(__doc__ or "")
    arguments.add_argument("--only", nargs="*", choices=PARTS, default=PARTS)
    arguments.add_argument("--report", action="store_true", help="show the saved results, measure nothing")
    arguments.add_argument("--quick", action="store_true", help="short, to try the script; nothing is saved")
    given = arguments.parse_args()
    if given.worker:
        works = {"models": make_models, "bare": bare, "publish": lambda _: publish()}
        print(json.dumps(works[given.worker](given)))
        return
    results = {} if given.quick else dict(saved("serving").get("results", {}).get("parts", {}))
    if not given.report:
        import uvloop

        given.data = str(data_folder(given))
        FOLDER.mkdir(parents=True, exist_ok=True)
        run_worker(__file__, "models", "--data", given.data)
        texts = texts_of(given.data, 4096)
        for part in given.only:
            print(f"{part} ...", flush=True)
            results[part] = uvloop.run(measured(given, part, texts))
    goals = report(results)
    if not (given.quick or given.report):
        save("serving", {"parts": results, "goals": goals}, PACKAGES)


if __name__ == "__main__":
    main()
