"""A run that was stopped goes on to the same model, bit for bit: at every step, and killed at any moment.

The killed ones are forks of this file run as a program, so that one warm interpreter serves all.
XMCASCADE_KILLS sets how many are killed.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from contract.world import hashes
from neural.runs import kept_step, learnt, make_lists, make_run, nothing
from neural.tiny import save_tiny
from xmcascade import CascadeXML
from xmcascade.neural import Training, choosing, torch_threads

KILLS = int(os.environ.get("XMCASCADE_KILLS", "100")) // 15
# Everything that a step can change: moments of all kinds, dropout, a moving average, evaluations.
RUN = {
    "n_docs": 22, "n_held": 6, "optimizer": "adam", "precision": "bfloat16", "dropout": 0.1, "ema": 0.9,
    "evaluations": 5, "patience": 5, "resumable": True, "head_rate": 0.02,
}  # fmt: skip


class StoppedError(Exception):
    pass


@pytest.fixture(autouse=True)
def one_thread():
    """More only slow such small encoders down."""
    with torch_threads(1):
        yield


def stop_at(monkeypatch, number, moment):
    """Let a run fail before or after the step of this number, or within it, when rows have changed."""
    method = "_backward" if moment == "within" else "_step"
    inner = getattr(Training, method)

    def failing(run, *args):
        if moment != "after" and run.at.step == number:
            if moment == "within":
                inner(run, *args)
            raise StoppedError
        inner(run, *args)
        if moment == "after" and run.at.step == number + 1:
            raise StoppedError

    monkeypatch.setattr(Training, method, failing)


@pytest.mark.parametrize("moment", ["before", "within", "after"])
@pytest.mark.parametrize(("accumulate", "optimizer"), [(1, "adam"), (3, "adagrad")])
def test_stopped_at_every_step_and_resumed(tmp_path, monkeypatch, moment, accumulate, optimizer):
    how = RUN | {"checkpoint_minutes": 0.0, "accumulate": accumulate, "optimizer": optimizer}
    whole = make_run(tmp_path / "whole", **how)
    history = whole.run(2, nothing)
    wanted = learnt(whole)
    for number in range(whole.n_steps):
        run = make_run(tmp_path / f"{number}", **how)
        with monkeypatch.context() as patch, pytest.raises(StoppedError):
            stop_at(patch, number, moment)
            run.run(2, nothing)
        assert kept_step(run) == number
        again = make_run(tmp_path / f"{number}", **how)
        assert again.run(2, started_again) == history
        assert learnt(again) == wanted


def started_again():
    raise AssertionError("the heads were prepared again")


def test_a_run_that_kept_little_goes_on_from_its_start(tmp_path, monkeypatch):
    runs = [make_run(tmp_path / name, **RUN) for name in ("whole", "stopped", "stopped")]
    runs[0].run(2, nothing)
    with monkeypatch.context() as patch, pytest.raises(StoppedError):
        stop_at(patch, 7, "within")
        runs[1].run(2, nothing)
    assert kept_step(runs[1]) == 0
    runs[2].run(2, started_again)
    assert learnt(runs[2]) == learnt(runs[0])


def test_ctrl_c_keeps_the_step_that_it_came_in(tmp_path, monkeypatch):
    runs = [make_run(tmp_path / name, **RUN) for name in ("whole", "stopped", "stopped")]
    runs[0].run(2, nothing)
    inner = Training._backward

    def interrupted(run, *args):
        if run.at.step == 7:
            signal.raise_signal(signal.SIGINT)
        inner(run, *args)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Training, "_backward", interrupted)
        runs[1].run(2, nothing)
    assert kept_step(runs[1]) == 8
    runs[2].run(2, started_again)
    assert learnt(runs[2]) == learnt(runs[0])


def test_patience_is_not_renewed(tmp_path, monkeypatch):
    """Each evaluation is worse than the one before; after the second of them the run is stopped."""
    monkeypatch.setattr(choosing, "ndcg", lambda *_: np.array([1 / (2 + len(run.at.history))]))
    how = RUN | {"checkpoint_minutes": 0.0, "evaluations": 8, "patience": 3}
    run = make_run(tmp_path / "0", **how)
    with monkeypatch.context() as patch, pytest.raises(StoppedError):
        stop_at(patch, 2, "before")
        run.run(2, nothing)
    run = make_run(tmp_path / "0", **how)
    history = run.run(2, started_again)
    assert [facts["step"] for facts in history] == [1, 2, 3, 4]
    assert run.at.best_step == 1


def test_a_run_that_was_done_is_done(tmp_path):
    how = RUN | {"checkpoint_minutes": 0.0}
    one, other = (make_run(tmp_path / "0", **how) for _ in range(2))
    assert one.run(2, nothing) == other.run(2, started_again)
    assert learnt(one) == learnt(other)


def test_other_settings_are_another_run(tmp_path):
    texts, labels = names_and_texts()
    save_tiny(tmp_path / "encoder", texts=texts, layers=1)
    how = {"encoder": str(tmp_path / "encoder"), "threads": 1, "training": {"epochs": 1.0}}
    CascadeXML(**how).fit(texts, labels, checkpoint=tmp_path / "work")
    for other in ({"seed": 1}, {"pooling": "cls"}, {"training": {"epochs": 2.0}}):
        with pytest.raises(Exception, match=r"unfinished work with other documents, settings"):
            CascadeXML(**how | other).fit(texts, labels, checkpoint=tmp_path / "work")


# Killed ---------------------------------------------------------------------------------------------------


def names_and_texts():
    texts, labels = make_lists(240)  # enough that some are held out
    return texts, [[f"label {label}" for label in own] for own in labels]


def train(folder, out):
    """Train a whole model, with all that a fit does, and save it."""
    texts, labels = names_and_texts()
    training = {"epochs": 1.0, "batch": 16, "ema": 0.9, "checkpoint_minutes": 0.0}
    model = CascadeXML(
        encoder=str(folder / "encoder"), tree={"levels": [4]}, optimizer="adam", precision="bfloat16",
        encoder_dropout=0.1, dropouts=(0.1, 0.1), threads=1, training=training,
    )  # fmt: skip
    model.fit(texts, labels, checkpoint=folder / f"work-{out}")
    model.save(folder / out)


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


def kill_trainers(folder, kills, seed):
    save_tiny(folder / "encoder", texts=names_and_texts()[0], layers=2)
    train(folder, "whole")
    began = time.monotonic()
    train(folder, "again")
    takes = time.monotonic() - began
    rng = random.Random(seed)
    done, killed, found = False, 0, set()
    while not done:
        pid = forked(lambda: train(folder, "killed"))
        if killed < kills:
            time.sleep(rng.uniform(0.1, 0.6) * takes)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status)
        done = os.WIFEXITED(status)
        assert not done or os.WEXITSTATUS(status) == 0
        manifest = folder / "work-killed" / "training" / "manifest.json"
        if manifest.exists():
            found.add(json.loads(manifest.read_text(encoding="utf-8"))["values"]["step"])
    same = hashes(folder / "whole") == hashes(folder / "again") == hashes(folder / "killed")
    return {"killed": killed, "steps": sorted(found), "same": same}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_any_moment_the_model_is_the_same(tmp_path):
    command = [sys.executable, "-W", "ignore:This process", __file__, str(tmp_path), str(KILLS), "5"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "XMCASCADE_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["same"], result
    assert result["killed"] >= min(KILLS, 2), result
    assert len(result["steps"]) > 1, result  # the kills did hit at different moments


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(kill_trainers(Path(where), *map(int, numbers))))
