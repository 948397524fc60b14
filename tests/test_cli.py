"""The command line as a user meets it: answers on stdout, one line a refusal, nothing half-written."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xmcascade import cli, load, read_corpus

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


def test_train_saves_a_model_that_loads_and_says_what_it_did(folder, run):
    code, out, _ = run("train", "train.jsonl", "--model", "nearest", "--out", "m", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["documents"] == 4
    assert said["labels"] == load("m").n_labels == 4
    assert said["derived"]["sharpness"]["reason"]


def test_train_takes_settings_by_name(folder, run):
    assert (
        run("train", "train.jsonl", "--out", "m", "--set", "neighbours=2", "--set", "features.ngrams=[1,1]")[
            0
        ]
        == 0
    )
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
    code, _, err = run("train", "train.jsonl", "--out", "m", "--on-error", "skip")
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
    "setting out of range": (["train", "train.jsonl", "--set", "neighbours=0"], "neighbours is 0"),
    "wrong field": (["train", "train.jsonl", "--text", "title"], "there is no field 'title'"),
    "not a model folder": (["predict", "train.jsonl", "train.jsonl"], "train.jsonl"),
    "no model folder": (["predict", "nowhere", "train.jsonl"], "there is no model folder here"),
    "k not a number": (["evaluate", "m", "train.jsonl", "--k", "one"], "k is 'one'"),
    "k too small": (["predict", "m", "train.jsonl", "--k", "0"], "k is 0"),
    "unknown format": (["corpus", "stats", "train.jsonl", "--format", "xml"], "format is 'xml'"),
    "unwritable format": (["corpus", "convert", "train.jsonl", "out.xlsx"], "out.xlsx"),
    "unknown corpus": (["corpus", "build", "magic"], "there is no built-in corpus 'magic'"),
    "foreign folder": (["train", "train.jsonl", "--out", "."], "is not part of a model"),
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
    monkeypatch.setattr(cli, "load_corpus", lambda *_: 1 / 0)
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
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["big.jsonl", "m", "train.jsonl"]


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
        "train": sorted([*reading, "--json", "--model", "--out", "--set", "--threads"]),
        "predict": sorted([*reading, "--json", "--k", "--out", "--threads"]),
        "evaluate": sorted([*reading, "--json", "--k", "--normalisation", "--propensity", "--threads"]),
        "corpus stats": sorted([*reading, "--json"]),
        "corpus convert": sorted([*reading, "--json"]),
        "corpus build": ["--json", "--out"],
    }


def test_a_full_output_is_said_in_one_line(model):
    command = f"{sys.executable} -m xmcascade corpus stats train.jsonl > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "the output cannot be written" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_with_brackets_are_shown_as_they_are(model, run):
    code, out, _ = run("train", "train.jsonl", "--out", "m[/red]x")
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
