"""A saver killed at any moment, and readers beside a busy saver: always one whole model, never an error.
Work with a checkpoint killed at any moment, its beginning and its end included, can always go on.

The savers and readers are forks of this file run as a program, so that one warm interpreter serves all.
XMCASCADE_KILLS sets how many savers are killed.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

from xmcascade.store import Checkpoint, Strings, atomic, load_folder, save_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

KILLS = int(os.environ.get("XMCASCADE_KILLS", "100"))
PUBLICATIONS = 200


def save(folder, number):
    """Model 0, 1 or 2: every part of it says which, and the sizes differ."""
    save_folder(
        folder,
        kind="toy",
        settings={},
        n_labels=1,
        arrays={"a": np.full(2000 + number, number), "b": np.full((50, 50), number, np.float32)},
        strings={"one": Strings.of([f"{number}"] * 500), "two": Strings.of([f"{number}"])},
        values={"number": number},
    )


def load(folder, **options):
    manifest, arrays, strings = load_folder(folder, **options)
    number = manifest.values["number"]
    for array in arrays.values():
        assert (array == number).all()
    assert len(arrays["a"]) == 2000 + number
    for packed in strings.values():
        assert set(packed) == {f"{number}"}
    return number


def forked(action):
    """Run in a fork; its exit code says whether it went well."""
    pid = os.fork()
    if pid:
        return pid
    try:
        action()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def save_for_ever(folder):
    number = 0
    while True:
        number = 1 - number
        save(folder, number)


def kill_savers(folder, kills, seed):
    save(folder, 0)
    rng = random.Random(seed)
    seen = [0, 0]
    unfinished = 0
    for _ in range(kills):
        pid = forked(lambda: save_for_ever(folder))
        time.sleep(rng.uniform(0.002, 0.05))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "the saver ended by itself"
        seen[load(folder)] += 1
        unfinished += bool(atomic.leftovers(folder, "saving"))
        for path in atomic.leftovers(folder, "saving"):
            shutil.rmtree(path)
    return {"kills": kills, "seen": seen, "unfinished": unfinished}


def read_beside_saver(folder, publications, exchange):
    if not exchange:
        atomic._exchange = lambda *_: False
    save(folder, 0)

    def publish():
        for i in range(publications):
            save(folder, i % 3)

    pid = forked(publish)
    loads = [0, 0, 0]
    done = 0
    while not done:
        loads[load(folder, verify=sum(loads) % 2 == 0)] += 1
        done, status = os.waitpid(pid, os.WNOHANG)
    assert status == 0
    return {"loads": loads}


def save_from_many(folder, savers, saves):
    pids = [forked(lambda n=n: [save(folder, n % 3) for _ in range(saves)]) for n in range(savers)]
    codes = [os.waitpid(pid, 0)[1] for pid in pids]
    assert codes == [0] * savers
    return {"last": load(folder), "left": [path.name for path in folder.parent.iterdir()]}


def keep_for_ever(folder):
    while True:
        kept = Checkpoint(folder, "run")
        for number in range(3):
            kept.save(f"piece-{number}", {"a": np.full(1000 + number, number)}, {"number": number})
        kept.remove()


def kill_keepers(folder, kills, seed):
    rng = random.Random(seed)
    seen = [0, 0]  # pieces that were not there, and that were
    states = set()
    for _ in range(kills):
        pid = forked(lambda: keep_for_ever(folder))
        time.sleep(rng.uniform(0.001, 0.05))
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), "the work ended by itself"
        states.add(tuple(sorted(path.name.partition("-")[0] for path in folder.glob("*"))))
        kept = Checkpoint(folder, "run")
        for number in range(3):
            piece = kept.load(f"piece-{number}")
            seen[piece is not None] += 1
            if piece is not None:
                arrays, values = piece
                assert values == {"number": number}
                assert arrays["a"].tolist() == [number] * (1000 + number)
        if rng.random() < 0.5:
            kept.remove()
            assert not folder.exists()
    return {"seen": seen, "states": sorted(states)}


def run(*arguments):
    # From Python 3.12 on a fork beside Arrow's idle threads is warned of; the children use none of them.
    command = [sys.executable, "-W", "ignore:This process", __file__, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return json.loads(done.stdout)


def test_a_killed_saver_leaves_the_old_or_the_new_model(tmp_path):
    result = run("kill_savers", tmp_path / "model", KILLS, 1)
    assert result["kills"] == KILLS
    assert min(result["seen"]) > 0, result
    assert result["unfinished"] > KILLS / 4, result  # the kills did hit in the middle of saving


@pytest.mark.parametrize("exchange", [True, False])
def test_readers_beside_a_saver_see_whole_models(tmp_path, exchange):
    result = run("read_beside_saver", tmp_path / "model", PUBLICATIONS, int(exchange))
    assert min(result["loads"]) > 0, result


def test_savers_to_one_folder_do_not_disturb_each_other(tmp_path):
    result = run("save_from_many", tmp_path / "model", 4, 25)
    assert result["left"] == ["model"]


def test_killed_work_can_go_on(tmp_path):
    result = run("kill_keepers", tmp_path / "work", KILLS, 2)
    assert min(result["seen"]) > 0, result
    assert len(result["states"]) > 3, result  # the kills did hit at different moments


if __name__ == "__main__":
    name, folder, *numbers = sys.argv[1:]
    result = globals()[name](Path(folder), *map(int, numbers))
    sys.stdout.write(json.dumps(result))
