"""What every benchmark shares: the data, environments for peers, measured workers, results as JSON.

Workers of some benchmarks run in environments of peers, without xmcascade: it is imported inside functions.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
WORK = ROOT / ".benchmarks"  # peers' environments and generated data; not under version control
ENVIRONMENTS = WORK / "envs"

sys.path.append(str(ROOT / "src" / "xmcascade" / "report"))  # its worker.py needs nothing beside it
from worker import measured as measured  # noqa: E402
from worker import peak_mb  # noqa: E402


def parser(description: str) -> argparse.ArgumentParser:
    """Arguments of every benchmark."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument(
        "--data", default=os.environ.get("XMCASCADE_DATA"), help="folder of corpora [$XMCASCADE_DATA]"
    )
    made.add_argument("--worker", help=argparse.SUPPRESS)  # used by the script to start itself
    return made


def data_folder(arguments: argparse.Namespace) -> Path:
    """The folder of corpora, or a clear end."""
    if not arguments.data or not Path(arguments.data).is_dir():
        sys.exit("give the folder that holds the corpora: --data FOLDER, or set XMCASCADE_DATA")
    return Path(arguments.data)


def peer_python(peer: str) -> Path:
    """The interpreter of a peer's environment, made on first use."""
    from xmcascade.report.peers import peer_python as made

    logging.basicConfig(level=logging.INFO, format="%(message)s")
    return made(peer, ENVIRONMENTS)


def run_worker(script: str, worker: str, *arguments: str, python: Path | None = None) -> dict[str, Any]:
    """Run one worker of a script in a process of its own; its last line of output is its answer."""
    command = [str(python or sys.executable), script, "--worker", worker, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": str(os.cpu_count())}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{worker} failed:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def alternated(
    works: dict[str, Callable[[], Any]],
    rounds: int,
    warm_up: int = 1,
    before: Callable[[], Any] = lambda: None,
) -> dict[str, dict[str, Any]]:
    """Do each work in turn, A B A B ...; for each medians of seconds and CPU seconds, and every seconds.

    `before` is done, unmeasured, before each: all then start from the same caches.
    """
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for number in range(warm_up + rounds):
        for name, work in works.items():
            before()
            wall, cpu = time.perf_counter(), time.process_time()
            work()
            times = time.perf_counter() - wall, time.process_time() - cpu
            if number >= warm_up:
                found[name].append(times)
    return {
        name: {
            "seconds": statistics.median(wall for wall, _ in runs),
            "cpu_seconds": statistics.median(cpu for _, cpu in runs),
            "all_seconds": [wall for wall, _ in runs],
        }
        for name, runs in found.items()
    }


def times(one: dict[str, Any], other: dict[str, Any]) -> float:
    """How many times the seconds of another work one takes: the median over rounds of `alternated`."""
    pairs = zip(one["all_seconds"], other["all_seconds"], strict=True)
    return statistics.median(a / b for a, b in pairs)


def goal(title: str, value: float, sign: str, bound: float) -> dict[str, Any]:
    """Print whether a number meets its goal; returns what to save of it."""
    met = value <= bound if sign == "<=" else value >= bound
    print(f"{title + ':':58}{value:8.2f}   goal {sign} {bound:g}: {'ok' if met else 'MISSED'}", flush=True)
    return {"value": value, "goal": f"{sign} {bound:g}", "met": met}


def memory_plans() -> list[dict[str, Any]]:
    """A list to which each training of a CascadeXML adds, as it begins, what it says it will need."""
    from xmcascade.neural import Training

    found: list[dict[str, Any]] = []
    said = Training.memory

    def memory(self: Any) -> Any:
        plan = said(self)
        found.append({"planned_mb": plan.total / 2**20, "plan": str(plan), "before_mb": peak_mb()})
        return plan

    Training.memory = memory
    return found


def today() -> str:
    """The date of a result."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


def saved(name: str) -> dict[str, Any]:
    """What `save` has written; empty when nothing was."""
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(name: str, results: Any, packages: list[str]) -> None:
    """Write benchmarks/results/NAME.json with all that is needed to judge and repeat it."""
    from xmcascade.report.compare import machine

    versions = {
        "python": platform.python_version(),
        **{p: metadata.version(p) for p in ["xmcascade", *packages]},
    }
    command = " ".join(["python", f"benchmarks/{Path(sys.argv[0]).name}", "--data", "DATA"])
    record = {
        "benchmark": name,
        "date": today(),
        "command": command,
        "machine": machine(),
        "versions": versions,
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(f"written: {path.relative_to(ROOT)}")
