"""The command line as a user meets it: answers on stdout, one line a refusal, nothing half-written."""

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from contract.world import hashes
from neural.runs import make_lists
from neural.tiny import save_tiny
from xmcascade import cli, load, make_synthetic, read_corpus, write_corpus
from xmcascade.cli import training
from xmcascade.cli.training import is_interrupt

NEAREST = ["train", "train.jsonl", "--model", "nearest"]
ROWS = [
    {"id": "a", "text": "red apple pie", "labels": ["fruit", "apple"]},
    {"id": "b", "text": "green apple", "labels": ["fruit", "apple"]},
    {"id": "c", "text": "strong wind and rain", "labels": ["weather"]},
    {"id": "d", "text": "rain coat", "labels": ["clothes", "weather"]},
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return tmp_path


@pytest.fixture
def run(monkeypatch, capfd):
    """Run the command line in this process; returns exit code, stdout, stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["xmcascade", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.main()
        written = capfd.readouterr()
        return end.value.code, written.out, written.err

    return call


@pytest.fixture
def model(folder, run):
    assert run("train", "train.jsonl", "--model", "nearest", "--out", "m")[0] == 0
    return Path("m")


def test_texts_of_labels(folder, run):
    Path("labels.jsonl").write_text(
        '{"text": "purrs", "labels": ["cats"]}\n{"text": "it", "labels": ["new"]}\n'
    )
    train = ["train", "train.jsonl", "--model", "xr-linear", "--out", "m", "--label-texts", "labels.jsonl"]
    assert run(*train, "--set", "label_documents=true")[0] == 0
    assert {"cats", "new"} <= set(load("m").label_names)
    assert load("m").predict(["purrs"], k=1)[0][0].label == "cats"


def test_train_saves_a_model_that_loads_and_says_what_it_did(folder, run):
    code, out, _ = run("train", "train.jsonl", "--model", "nearest", "--out", "m", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["documents"] == 4
    assert said["labels"] == load("m").n_labels == 4
    assert said["derived"]["sharpness"]["reason"]


def test_train_takes_settings_by_name(folder, run):
    assert run(*NEAREST, "--out", "m", "--set", "neighbours=2", "--set", "features.ngrams=[1,1]")[0] == 0
    assert load("m").settings.neighbours == 2
    assert load("m").settings.features.ngrams == (1, 1)


def test_predict_writes_one_object_a_line_in_input_order(model, run):
    code, _, _ = run("predict", model, "train.jsonl", "--k", 2, "--out", "p.jsonl")
    rows = [json.loads(line) for line in Path("p.jsonl").read_text().splitlines()]
    assert code == 0
    assert [row["id"] for row in rows] == ["a", "b", "c", "d"]
    assert [len(row["predictions"]) for row in rows] == [2] * 4
    assert set(rows[0]["predictions"][0]) == {"label", "score", "probability"}
    assert {p["label"] for p in rows[0]["predictions"]} == {"fruit", "apple"}


def test_predict_without_out_prints_the_lines_and_nothing_else(model, run):
    _, out, _ = run("predict", model, "train.jsonl")
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["a", "b", "c", "d"]


def test_predict_takes_plain_lines_of_text_and_empty_ones(model, run):
    Path("texts.txt").write_text("apple\n\nrain\n")
    _, out, _ = run("predict", model, "texts.txt", "--k", 1)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [0, 1, 2]


def test_evaluate_prints_one_object_in_percent(model, run):
    Path("test.jsonl").write_text(
        json.dumps({"text": "apple", "labels": ["apple", "never seen"]})
        + "\n"
        + json.dumps({"text": "x", "labels": []})
    )
    code, out, _ = run("evaluate", model, "test.jsonl", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["P@1"] == 100.0
    assert said["R@5"] == 50.0
    assert said["unseen_share"] == 50.0
    assert said["n_docs"] == 1
    assert said["n_unlabelled"] == 1
    assert "PSP@5" in said
    assert "nDCG@5" in said["intervals"]


def test_evaluate_says_when_labels_are_other_ones(model, run):
    Path("test.jsonl").write_text(json.dumps({"text": "apple", "labels": ["17"]}))
    code, _, said = run("evaluate", model, "test.jsonl")
    assert code == 1
    assert "test.jsonl: none of the 1 labels is one that the model knows" in said


def test_evaluate_prints_a_table_for_people(model, run):
    _, out, _ = run("evaluate", model, "train.jsonl", "--k", "1,2")
    assert "P@2" in out
    assert "tail" in out


def test_stats_reads_to_the_end_and_lists_the_problems(folder, run):
    with Path("train.jsonl").open("a") as file:
        file.write('{"text": 5, "labels": []}\nnot json\n{"text": "  ", "labels": ["x"]}\n')
    code, out, _ = run("corpus", "stats", "train.jsonl", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["documents"] == 5
    assert said["documents with empty text"] == 1
    assert {reason: found["count"] for reason, found in said["left out"].items()} == {
        "text not a string": 1,
        "not JSON": 1,
    }


def test_train_stops_at_a_bad_document_or_skips_it_when_told(folder, run):
    with Path("train.jsonl").open("a") as file:
        file.write('{"text": "", "labels": ["x"]}\n')
    code, _, err = run("train", "train.jsonl", "--out", "m")
    assert code == 1
    assert "train.jsonl, line 5, field 'text'" in err
    assert "--on-error skip" in err
    assert not Path("m").exists()
    code, _, err = run(*NEAREST, "--out", "m", "--on-error", "skip")
    assert code == 0
    assert "left out: 1 x text empty" in err


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.parquet"])
def test_convert_keeps_the_documents(folder, run, name):
    assert run("corpus", "convert", "train.jsonl", name)[0] == 0
    before, after = read_corpus("train.jsonl"), read_corpus(name)
    assert list(after.texts) == list(before.texts)
    assert (after.labels != before.labels).nnz == 0


REFUSED = {
    "no such file": (["train", "nothing.jsonl"], "nothing.jsonl: there is no such file"),
    "no such model": (["train", "train.jsonl", "--model", "magic"], "there is no model 'magic'"),
    "no such setting": (["train", "train.jsonl", "--set", "neighbors=3"], "there is no setting 'neighbors'"),
    "setting out of range": ([*NEAREST, "--set", "neighbours=0"], "neighbours is 0"),
    "wrong field": (["train", "train.jsonl", "--text", "title"], "there is no field 'title'"),
    "not a model folder": (["predict", "train.jsonl", "train.jsonl"], "train.jsonl"),
    "no model folder": (["predict", "nowhere", "train.jsonl"], "there is no model folder here"),
    "k not a number": (["evaluate", "m", "train.jsonl", "--k", "one"], "k is 'one'"),
    "k too small": (["predict", "m", "train.jsonl", "--k", "0"], "k is 0"),
    "unknown format": (["corpus", "stats", "train.jsonl", "--format", "xml"], "format is 'xml'"),
    "unwritable format": (["corpus", "convert", "train.jsonl", "out.xlsx"], "out.xlsx"),
    "unknown corpus": (["corpus", "build", "magic"], "there is no built-in corpus 'magic'"),
    "foreign folder": (["train", "train.jsonl", "--out", "."], "is not part of a model"),
    "unknown preset": (
        ["train", "train.jsonl", "--out", "new", "--model", "cascadexml", "--preset", "wiki"],
        "there is no preset 'wiki'",
    ),
    "checkpoint in the model's place": (
        ["train", "train.jsonl", "--out", "new", "--checkpoint", "./new"],
        "the checkpoint new and the model new are the same folder",
    ),
    "checkpoint in the model": (
        ["train", "train.jsonl", "--out", "m", "--checkpoint", "m/work"],
        "the checkpoint m/work and the model m lie in one another",
    ),
    "model in the checkpoint": (
        ["train", "train.jsonl", "--out", "work/new", "--checkpoint", "work"],
        "the checkpoint work and the model work/new lie in one another",
    ),
    "a model as checkpoint": (
        ["train", "train.jsonl", "--out", "new", "--checkpoint", "m"],
        "m: is not empty, and not unfinished work",
    ),
    "a file as checkpoint": (
        ["train", "train.jsonl", "--out", "new", "--checkpoint", "train.jsonl"],
        "train.jsonl: is a file",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_one_line_with_a_remedy_and_exit_code_1(model, run, case):
    arguments, expected = REFUSED[case]
    before = sorted(Path().rglob("*"))
    code, out, err = run(*arguments)
    assert code == 1
    assert out == ""
    assert expected in err
    assert "Remedy:" in err
    assert len([line for line in err.splitlines() if line.startswith("xmcascade:")]) == 1
    assert "Traceback" not in err
    assert sorted(Path().rglob("*")) == before


def test_wrong_usage_has_exit_code_2(folder, run):
    code, _, err = run("train")
    assert code == 2
    assert "DATA" in err


@pytest.mark.parametrize(
    "command",
    [["train"], ["predict"], ["evaluate"], ["corpus", "stats"], ["corpus", "convert"], ["corpus", "build"]],
)
def test_every_command_shows_an_example(run, command):
    code, out, _ = run(*command, "--help")
    assert code == 0
    assert "Example: xmcascade" in out


def test_a_fault_of_ours_is_said_as_such(folder, run, monkeypatch):
    monkeypatch.setattr(training, "load_corpus", lambda *_: 1 / 0)
    code, _, err = run("train", "train.jsonl", "--out", "m")
    assert code == 70
    assert "a fault of ours" in err


def test_ctrl_c_leaves_nothing_half_written(model, tmp_path):
    big = tmp_path / "big.jsonl"
    line = json.dumps({"text": "apple " * 50, "labels": ["fruit"]}) + "\n"
    big.write_text(line * 200_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "xmcascade", "predict", str(model), str(big), "--out", "out.jsonl"],
        stderr=subprocess.PIPE,
        text=True,
    )
    before = {"big.jsonl", "m", "train.jsonl"}
    while {path.name for path in tmp_path.iterdir()} == before:  # until it has begun to write
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_closed_pipe_is_no_error(model):
    command = f"{sys.executable} -m xmcascade predict {model} train.jsonl | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_the_options_of_every_command_are_these():
    """Adding an option is a deliberate change of this list."""
    import typer

    command = typer.main.get_command(cli.app)
    found = {}

    def walk(name, group):
        for sub, inner in group.commands.items():
            if hasattr(inner, "commands"):
                walk(f"{name} {sub}".strip(), inner)
            else:
                found[f"{name} {sub}".strip()] = sorted(
                    option
                    for parameter in inner.params
                    for option in parameter.opts
                    if option.startswith("--")
                )

    walk("", command)
    reading = [
        "--format",
        "--ids",
        "--label-names",
        "--labels",
        "--labels-file",
        "--on-error",
        "--separator",
        "--text",
    ]
    assert found == {
        "train": sorted(
            [
                *reading,
                "--checkpoint",
                "--config",
                "--effort",
                "--events",
                "--json",
                "--label-texts",
                "--minutes",
                "--model",
                "--out",
                "--preset",
                "--set",
                "--tensorboard",
                "--threads",
            ]
        ),
        "predict": sorted([*reading, "--json", "--k", "--out", "--runtime", "--threads", "--threshold"]),
        "evaluate": sorted(
            [*reading, "--json", "--k", "--normalisation", "--propensity", "--runtime", "--threads"]
        ),
        "corpus stats": sorted([*reading, "--json"]),
        "corpus convert": sorted([*reading, "--json"]),
        "corpus build": ["--json", "--out"],
        "tree import": sorted([*reading, "--json", "--out"]),
        "tree show": ["--children", "--levels", "--tree"],
        "tree export": ["--json", "--tree"],
        "compare": sorted(
            [
                *reading,
                "--baseline",
                "--json",
                "--method",
                "--out",
                "--seed",
                "--test",
                "--test-share",
                "--threads",
            ]
        ),
        "inspect": sorted(
            [*reading, "--documents", "--explain", "--json", "--looked-at", "--out", "--threads"]
        ),
        "export": sorted([*reading, "--data", "--json", "--runtime", "--threads"]),
        "serve": sorted(
            [
                "--cors",
                "--host",
                "--insecure",
                "--key-file",
                "--open",
                "--port",
                "--runtime",
                "--set",
                "--threads",
            ]
        ),
        "models": ["--json"],
        "doctor": ["--json"],
    }


def test_a_full_output_is_said_in_one_line(model):
    command = f"{sys.executable} -m xmcascade corpus stats train.jsonl > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "the output cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_with_brackets_are_shown_as_they_are(model, run):
    code, out, _ = run(*NEAREST, "--out", "m[/red]x")
    assert code == 0
    assert "m[/red]x" in out


def test_a_huge_k_is_no_trouble(model, run):
    code, out, _ = run("evaluate", model, "train.jsonl", "--k", 10**12, "--json")
    assert code == 0
    assert json.loads(out)[f"R@{10**12}"] == 100.0


def test_a_text_file_for_prediction_is_one_text_a_line_whatever_it_looks_like(model, run):
    Path("odd.txt").write_text("7\tapple\n{ apple\n__label__ apple\n")
    _, out, _ = run("predict", model, "odd.txt", "--k", 1)
    assert [json.loads(line)["predictions"][0]["label"] for line in out.splitlines()] == ["apple"] * 3


def test_a_column_named_but_not_there_is_refused(model, run):
    Path("a.csv").write_text("text,labels\napple,fruit\n")
    code, _, err = run("train", "a.csv", "--ids", "number", "--out", "m2")
    assert code == 1
    assert "there is no column 'number'" in err


# Unfinished work ------------------------------------------------------------------------------------------

OFTEN = """
from xmcascade.linear import machine
machine.KEEP_SECONDS = 0.0
from xmcascade.cli import main
main()
"""
LONG = ["train", "long.jsonl", "--model", "dismec", "--set", "linear.tolerance=0.01", "--out", "new"]
KEPT = [*LONG, "--checkpoint", "work"]


@pytest.fixture(scope="module")
def long_corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("long") / "long.jsonl"
    write_corpus(make_synthetic(1500, 2500, seed=1), path)  # eight or nine panels of labels
    return path


@pytest.fixture
def long(folder, long_corpus):
    Path("long.jsonl").symlink_to(long_corpus)
    return folder


def start(*arguments):
    return subprocess.Popen([sys.executable, "-c", OFTEN, *arguments], stderr=subprocess.PIPE, text=True)


def wait_until(happened, process):
    end = time.monotonic() + 60
    while not happened() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.001)
    assert process.poll() is None, process.communicate()[1]


def pieces():
    return list(Path("work").glob("dismec-*/manifest.json"))


def names():
    return sorted(path.name for path in Path().iterdir())


def test_a_killed_train_goes_on_when_the_same_command_runs_again(long, run):
    process = start(*KEPT, "--threads", "1")
    wait_until(pieces, process)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert names() == ["long.jsonl", "train.jsonl", "work"]
    code, _, err = run(*KEPT)
    assert code == 0
    assert "labels were kept" in err
    assert names() == ["long.jsonl", "new", "train.jsonl"]
    code, _, err = run(*LONG[:-1], "plain")
    assert code == 0
    assert "labels were kept" not in err
    assert hashes("new") == hashes("plain")


@pytest.mark.parametrize("threads", ["1", "2"])
def test_ctrl_c_leaves_the_work_done_and_says_how_to_go_on(long, run, threads):
    process = start(*KEPT, "--threads", threads)
    wait_until(lambda: len(pieces()) >= 2, process)  # the second may be taken back: it was just being kept
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    said = "xmcascade: interrupted; what is finished is kept in work: run the same command again to go on"
    assert err.splitlines()[-1] == said
    assert "Traceback" not in err
    assert names() == ["long.jsonl", "train.jsonl", "work"]
    assert pieces()
    code, _, err = run(*KEPT)
    assert code == 0
    assert "labels were kept" in err
    assert names() == ["long.jsonl", "new", "train.jsonl"]


def test_ctrl_c_without_a_checkpoint_leaves_nothing(long):
    process = start(*LONG, "--threads", "1")
    for line in process.stderr:
        if "learning from" in line:
            break
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "xmcascade: interrupted; nothing half-written is left"
    assert names() == ["long.jsonl", "train.jsonl"]


def test_a_checkpoint_of_another_command_is_refused_and_untouched(long, run):
    process = start(*KEPT)
    wait_until(pieces, process)
    process.kill()
    process.communicate(timeout=60)
    before = hashes("work")
    code, _, err = run(*KEPT, "--set", "linear.cost=2")
    assert code == 1
    assert "xmcascade: work: holds unfinished work with other documents, settings or version. Remedy:" in err
    assert hashes("work") == before
    assert not Path("new").exists()


def test_every_model_takes_a_checkpoint(folder, run):
    assert run(*NEAREST, "--out", "m", "--checkpoint", "work")[0] == 0
    assert names() == ["m", "train.jsonl"]


def test_the_help_of_checkpoint_is_one_line(run):
    _, out, _ = run("train", "--help")
    assert re.search(r"--checkpoint .*Keep unfinished work here; the same command goes on\.\n", out)


def test_an_interrupt_is_known_however_deep_it_is_wrapped():
    def wrapped(error, depth):
        for _ in range(depth):
            try:
                raise SystemError("returned a result with an exception set") from error
            except SystemError as outer:
                error = outer
        return error

    for depth in range(4):
        assert is_interrupt(wrapped(KeyboardInterrupt(), depth))
        assert not is_interrupt(wrapped(ValueError(), depth))


# One dial -------------------------------------------------------------------------------------------------


def test_the_plan_is_said_first_and_only_to_people(folder, run):
    code, out, err = run("train", "train.jsonl", "--effort", "fast", "--out", "m", "--json")
    assert code == 0
    assert json.loads(out)["model"] == "xr-linear"
    assert "what will be done" in err and err.index("what will be done") < err.index("learning from")
    _, _, err = run("-q", "train", "train.jsonl", "--effort", "fast", "--out", "m")
    assert "what will be done" not in err


def test_effort_reaches_the_settings_and_a_wrong_one_is_refused(folder, run):
    from contract.world import tiny_encoder

    small = ["--set", f"encoder={tiny_encoder()}", "--set", "training.epochs=0.5", "--threads", 1]
    assert run("train", "train.jsonl", "--effort", "best", "--out", "m", *small)[0] == 0
    assert load("m").name == "cascadexml-tfidf" and load("m").settings.effort == "best"
    code, _, err = run("train", "train.jsonl", "--effort", "great", "--out", "m")
    assert code == 1 and "effort is 'great'. Remedy: use fast, balanced or best" in err


def test_a_config_file_stands_where_the_command_line_says_nothing(folder, run):
    Path("run.toml").write_text(
        'model = "nearest"\nout = "from-file"\n'
        '[reading]\ntext = "text"\n'
        "[settings]\nneighbours = 3\n[settings.features]\nngrams = [1, 1]\n"
    )
    assert run("train", "train.jsonl", "--config", "run.toml", "--set", "neighbours=2")[0] == 0
    settings = load("from-file").settings
    assert settings.neighbours == 2 and settings.features.ngrams == (1, 1)
    assert run("train", "train.jsonl", "--config", "run.toml", "--out", "other")[0] == 0
    assert load("other").settings.neighbours == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("modle = 'nearest'", "there is no option 'modle'"),
        ("[settings]\nneighbors = 3\n", "there is no setting 'neighbors'"),
        ("model = ", "run.toml: cannot be read"),
        ("minutes = 'long'", "minutes"),
    ],
)
def test_a_wrong_config_file_is_refused(folder, run, text, said):
    Path("run.toml").write_text(text)
    code, _, err = run("train", "train.jsonl", "--config", "run.toml", "--model", "nearest", "--out", "m")
    assert code in (1, 2) and said in err
    assert not Path("m").exists()


def test_events_are_written_as_lines(folder, run):
    assert run(*NEAREST, "--out", "m", "--events", "events.jsonl", "--tensorboard", "board")[0] == 0
    events = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    assert {"derived"} <= {event["event"] for event in events}
    assert list(Path("board").iterdir())


# Predictions in any form ----------------------------------------------------------------------------------


def test_predictions_as_a_table(model, run):
    import pyarrow.parquet as pq

    assert run("predict", model, "train.jsonl", "--k", 2, "--out", "p.csv")[0] == 0
    lines = Path("p.csv").read_text().splitlines()
    assert lines[0] == "id,labels,probabilities" and len(lines) == 5
    assert run("predict", model, "train.jsonl", "--k", 2, "--out", "p.parquet")[0] == 0
    table = pq.read_table("p.parquet").to_pydict()
    assert table["id"] == ["a", "b", "c", "d"]
    assert {len(row) for name in ("labels", "scores", "probabilities") for row in table[name]} == {2}
    code, _, err = run("predict", model, "train.jsonl", "--out", "p.xlsx")
    assert code == 1 and ".jsonl, .csv or .parquet" in err and not Path("p.xlsx").exists()


def test_predictions_by_threshold(model, run):
    _, out, _ = run("predict", model, "train.jsonl", "--threshold", "1.0")
    rows = [json.loads(line)["predictions"] for line in out.splitlines()]
    assert all(p["probability"] == 1 for row in rows for p in row)
    assert run("predict", model, "train.jsonl", "--threshold", "high")[0] == 1
    code, _, err = run("predict", model, "train.jsonl", "--threshold", "auto")
    assert code == 1 and "no threshold of its own" in err


def test_lines_of_standard_input_are_answered_as_they_come(model):
    command = [sys.executable, "-m", "xmcascade", "predict", str(model), "-", "--k", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        for line, name, label in [
            (b"green apple\n", 0, "apple"),
            (b'{"id": "x", "text": "heavy rain"}\n', "x", "weather"),
            (b"\n", 2, None),
        ]:
            process.stdin.write(line)
            process.stdin.flush()
            said = json.loads(process.stdout.readline())  # before the next line is sent
            assert said["id"] == name
            assert label is None or said["predictions"][0]["label"] == label
        process.stdin.write(b'{"title": "no text"}\n')
        process.stdin.close()
        assert process.wait(60) == 1
        assert b"line 4 of standard input: has no field 'text'" in process.stderr.read()


# What there is --------------------------------------------------------------------------------------------


def test_models_are_listed(run):
    from xmcascade.models import MODELS

    _, out, _ = run("models", "--json")
    said = json.loads(out)
    assert list(said) == list(MODELS)
    assert all(fact["is"] for fact in said.values()) and "wiki10-31k" in said["cascadexml"]["presets"]
    _, out, _ = run("models")
    assert all(name in out for name in MODELS)


def test_the_doctor_tries_kernels_and_encoder(run, monkeypatch):
    from xmcascade.cli import tools

    code, out, _ = run("doctor", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["kernels"] == "work" and said["encoder"].startswith("found: bert, 6 layers")
    monkeypatch.setitem(tools.TRIALS, "kernels", lambda: 1 / 0)
    code, out, _ = run("doctor", "--json")
    assert code == 1 and json.loads(out)["kernels"].startswith("FAILED: ZeroDivisionError")


def test_a_taxonomy_becomes_a_tree(folder, run):
    Path("t.csv").write_text("nature,weather\nfood,fruit\nfruit,apple\n")
    code, out, _ = run("tree", "import", "t.csv", "train.jsonl", "--out", "tree.json", "--json")
    assert code == 0 and json.loads(out)["labels"] == 4
    tree = json.loads(Path("tree.json").read_text())["tree"]
    assert any("apple" in str(branch) and "fruit" in str(branch) for branch in tree)
    Path("t.json").write_text(json.dumps({"apple": ["food"], "fruit": ["food"], "weather": ["nature"]}))
    assert run("tree", "import", "t.json", "train.jsonl", "--out", "other.json")[0] == 0
    assert run("tree", "import", "tree.json", "train.jsonl", "--out", "same.json")[0] == 0
    assert json.loads(Path("same.json").read_text())["tree"] == tree
    train = ["train", "train.jsonl", "--model", "xr-linear", "--set", "tree.file=tree.json", "--out", "m"]
    assert run(*train)[0] == 0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "a,b,c\n", "t.csv:1: has 3 cells, not 2"),
        ("t.json", "{", "is not JSON"),
        ("t.json", '{"apple": 3}', "holds no paths by label"),
        ("t.csv", "x,y\n", "none of the 4 labels"),
    ],
)
def test_a_wrong_taxonomy_is_refused(folder, run, name, text, said):
    Path(name).write_text(text)
    code, _, err = run("tree", "import", name, "train.jsonl")
    assert code == 1 and said in err
    assert not Path("tree.json").exists()


def test_trees_are_shown_and_taken_out(folder, run):
    linear = ["train", "train.jsonl", "--model", "xr-linear"]
    assert run(*linear, "--set", "tree.max_leaf=2", "--out", "m")[0] == 0
    code, out, _ = run("tree", "show", "m", "--levels", 9)
    assert code == 0 and "4 labels; nodes of each level: 2, 4" in out
    assert all(name in out for name in ("apple", "fruit", "weather", "clothes"))
    assert "more" in run("tree", "show", "m", "--children", 1)[1]
    assert run("tree", "export", "m", "tree.json")[0] == 0
    assert run(*linear, "--set", "tree.file=tree.json", "--out", "n")[0] == 0
    assert run("tree", "show", "n", "--levels", 9)[1] == out
    code, _, err = run("tree", "show", "m", "--tree", 2)
    assert code == 1 and "tree 2 of a model with 1" in err


def test_a_model_without_a_tree_says_so(model, run):
    code, _, err = run("tree", "show", model)
    assert code == 1 and "use a model that builds one" in err


def test_methods_are_compared_and_a_model_is_looked_into(folder, run):
    write_corpus(make_synthetic(300, 20, seed=0), "docs.jsonl")
    what = ["compare", "docs.jsonl", "--method", "nearest", "--method", "xr-linear beam=5", "--out", "c"]
    code, out, _ = run(*what)
    assert code == 0 and "xr-linear beam=5" in out and "P@1" in out
    assert {"comparison.json", "comparison.md", "index.html"} <= {path.name for path in Path("c").iterdir()}
    said = json.loads(run(*what, "--json")[1])
    assert [row["method"] for row in said["rows"]] == ["nearest", "xr-linear beam=5"]
    assert run("train", "docs.jsonl", "--model", "xr-linear", "--out", "m")[0] == 0
    code, out, _ = run("inspect", "m", "docs.jsonl", "--out", "look", "--explain", "some words")
    assert code == 0 and Path("look", "index.html").is_file() and "look/index.html" in out


# Runtimes -------------------------------------------------------------------------------------------------


def test_a_model_is_exported_and_used(folder, run):
    pytest.importorskip("onnxruntime")
    texts, labels = make_lists(60)
    Path("docs.jsonl").write_text(
        "".join(
            json.dumps({"text": text, "labels": [f"l{label}" for label in own]}) + "\n"
            for text, own in zip(texts, labels, strict=True)
        )
    )
    save_tiny(folder / "encoder", texts=texts, layers=2, width=32)
    train = ["train", "docs.jsonl", "--model", "cascadexml", "--out", "m", "--set", "training.epochs=1.0"]
    assert run(*train, "--set", f"encoder={folder / 'encoder'}", "--threads", 1)[0] == 0
    code, _, err = run("predict", "m", "docs.jsonl", "--runtime", "onnx")
    assert code == 1 and "xmcascade export m --runtime onnx" in err
    code, out, _ = run("export", "m", "--runtime", "onnx", "--data", "docs.jsonl", "--threads", 1, "--json")
    report = json.loads(out)
    assert code == 0 and report["n_docs"] == 60 and report["agreement"] == 1.0
    assert set(report["milliseconds"]) == {"torch", "onnx"} and load("m").runtime == report["default"]
    code, out, _ = run("predict", "m", "docs.jsonl", "--runtime", "onnx", "--k", 2)
    torch_code, torch_out, _ = run("predict", "m", "docs.jsonl", "--runtime", "torch", "--k", 2)
    assert code == torch_code == 0
    found, right = ([json.loads(line) for line in lines.splitlines()] for lines in (out, torch_out))
    assert [[p["label"] for p in row["predictions"]] for row in found] == [
        [p["label"] for p in row["predictions"]] for row in right
    ]
    assert "60 documents: 100.00%" in run("export", "m", "--runtime", "onnx", "--data", "docs.jsonl")[1]


def test_what_cannot_be_exported_is_said_and_nothing_changes(model, run):
    before = hashes(model)
    for runtime, remedy in [("onnx", "has no encoder"), ("tensorrt", "use onnx or onnx-int8")]:
        code, _, err = run("export", model, "--runtime", runtime)
        assert code == 1 and remedy in err
    assert hashes(model) == before


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["predict", "m", "train.jsonl", "--out", "train.jsonl"], "train.jsonl is what is read"),
        (["predict", "m", "train.jsonl", "--out", "m/manifest.json"], "lies in a model folder"),
        (["tree", "export", "x", "m/manifest.json"], "lies in a model folder"),
        (
            ["tree", "import", "paths.json", "train.jsonl", "--out", "paths.json"],
            "paths.json is what is read",
        ),
        (["corpus", "convert", "train.jsonl", "./train.jsonl"], "train.jsonl is what is read"),
        ([*NEAREST, "--out", "n", "--events", "train.jsonl"], "train.jsonl is what is read"),
        ([*NEAREST, "--out", "/"], "is where another disk begins"),
        (
            [*NEAREST, "--out", "n", "--labels-file", "none.txt"],
            "labels_file is 'none.txt', but train.jsonl is",
        ),
        ([*NEAREST, "--out", "n", "--minutes", "nan"], "minutes is nan"),
        (["evaluate", "m", "train.jsonl", "--k", "9" * 20], "give whole numbers from 1 to"),
        (["predict", "m", "train.jsonl", "--threads", "0"], "threads is 0"),
        (["predict", "empty", "train.jsonl"], "the file is missing, so this is no model folder"),
        (
            ["corpus", "stats", "train.jsonl", "--text", "body"],
            "there is no field 'body'; the fields are 'id'",
        ),
        (
            ["compare", "train.jsonl", "--method", "nearest"],
            "4 documents are too few to set 10% of them aside",
        ),
        (["compare", "train.jsonl", "--method", "nearest", "--out", "m"], "which is no part of a comparison"),
    ],
    ids=lambda value: " ".join(map(str, value))[:60] if isinstance(value, list) else "",
)
def test_what_would_be_lost_or_is_meant_otherwise_is_refused(model, run, arguments, said):
    Path("empty").mkdir()
    Path("paths.json").write_text(json.dumps({"apple": ["fruit"]}))
    before = hashes(Path())
    code, _, error = run(*arguments)
    assert code == 1
    assert said in " ".join(error.split())
    assert hashes(Path()) == before


@pytest.mark.parametrize("name", ["settings", "reading"])
def test_tables_of_a_config_are_tables(folder, run, name):
    Path("run.toml").write_text(f"{name} = 3")
    code, _, error = run(*NEAREST, "--out", "m", "--config", "run.toml")
    assert code == 1
    assert f"run.toml: {name} is 3, not a table" in error


def shell(command, **how):
    script = command.replace("xmcascade", f"{sys.executable} -m xmcascade")
    return subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, timeout=120, **how)


@pytest.mark.parametrize("end", ["2>&1 >/dev/null | true", "2>/dev/full", "2>&-", ">&-"])
def test_nobody_reading_what_is_said_is_no_reason_to_stop(folder, end):
    done = shell(f"xmcascade {' '.join(NEAREST)} --out m {end}")
    assert done.returncode == 0, done.stderr
    assert load("m").n_labels == 4


def test_lines_of_standard_input_to_a_file(model):
    done = shell("printf 'apple\\nrain\\n' | xmcascade predict m - --k 1 --out tags.csv")
    assert done.returncode == 0, done.stderr
    assert Path("tags.csv").read_text().count("\n") == 3


LINES = b'apple\n{bad\n{"text": null}\n{"text": "\\ud800"}\n\xff\nrain\n'


def test_lines_before_a_bad_one_are_answered(model):
    done = shell("xmcascade predict m - --k 1", input=LINES)
    assert done.returncode == 1
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0]
    assert b"line 2 of standard input: cannot be read" in done.stderr
    assert b"a text that does not begin with {" in done.stderr


def test_bad_lines_can_be_skipped(model):
    done = shell("xmcascade predict m - --k 1 --on-error skip", input=LINES)
    assert done.returncode == 0
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [0, 5]
    assert b"left out: 4 lines" in done.stderr


def test_closed_standard_input_is_said(model):
    done = shell("xmcascade predict m - <&-")
    assert done.returncode == 1
    assert b"standard input is closed" in done.stderr


def test_labels_of_predictions_can_be_told_apart_in_a_table(folder, run):
    rows = [{"text": "apple", "labels": ["a;b", "c\rd"]}, {"text": "rain", "labels": ["e"]}]
    Path("odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run("train", "odd.jsonl", "--model", "nearest", "--out", "m")[0] == 0
    code, _, error = run("predict", "m", "odd.jsonl", "--out", "tags.csv")
    assert code == 1
    assert "the label 'a;b' holds ';'" in error
    assert run("predict", "m", "odd.jsonl", "--k", 2, "--separator", "|", "--out", "tags.csv")[0] == 0
    with Path("tags.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [set(row["labels"].split("|")) for row in found] == [
        {"a;b", "c\rd"},
        {"e"} | set(found[1]["labels"].split("|")),
    ]


def test_a_comparison_in_which_a_method_failed_is_no_success(folder, run):
    write_corpus(make_synthetic(60, 5, seed=0), "some.jsonl")
    methods = ["--method", "nearest", "--method", "cascadexml encoder=no/such/encoder"]
    code, out, _ = run("compare", "some.jsonl", *methods, "--out", "c")
    assert code == 1
    assert "cascadexml encoder=no/such/encoder failed" in out


def test_examples_of_help_stand_on_one_line(run):
    for words in ([], ["train"], ["corpus"], ["corpus", "stats"], ["tree"], ["tree", "import"]):
        _, out, _ = run(*words, "--help")
        assert re.search(rf"^ *Example: xmcascade {' '.join(words)}.*\S", out, re.MULTILINE)
        assert all(not line.strip().startswith("--out my") for line in out.splitlines())
