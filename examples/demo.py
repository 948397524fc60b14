"""The demo: learn which functions Python code calls for a given purpose, and answer a few questions.

The corpus is mined from the standard library and the packages installed here; nothing is downloaded.
"""

from __future__ import annotations

import logging
from pathlib import Path

from rich.console import Console
from rich.table import Table

from xmcascade import NearestNeighbours, XRLinear, load, load_corpus
from xmcascade.cli import print_evaluation
from xmcascade.progress import set_console

QUESTIONS = [
    "compute the mean and standard deviation of an array",
    "delete a directory and everything in it",
    "parse a date from a string",
    "read lines from a compressed file",
    "run a command and return its output",
]


def main() -> None:
    """Build the corpus, train, evaluate, save, load, and answer."""
    console = Console(highlight=False, soft_wrap=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    set_console(console if console.is_terminal else None)
    train, test = load_corpus("docstrings", "train"), load_corpus("docstrings", "test")
    console.print(
        f"\n{train.n_docs:,} documents to learn from, {test.n_docs:,} to test on, {train.n_labels:,} labels\n"
    )
    shown = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5")
    table = Table("model", *shown, box=None)
    output = Path("demo-output")
    for model in (NearestNeighbours(), XRLinear()):
        evaluation = model.fit(train).evaluate(test)
        table.add_row(model.name, *(f"{evaluation.metrics[name]:.2f}" for name in shown))
        model.save(output / model.name)
    console.print(table)
    console.print(f"\n{model.name} in detail, in percent:\n")
    print_evaluation(evaluation)

    folder = output / model.name
    console.print(f"\nThe model in {folder}, loaded again, answers: which functions would I call to ...\n")
    answers = Table("question", "labels (probability)", box=None)
    for question, predictions in zip(QUESTIONS, load(folder).predict(QUESTIONS, k=5), strict=True):
        answers.add_row(question, ", ".join(f"{p.label} ({p.probability:.2f})" for p in predictions))
    console.print(answers)


if __name__ == "__main__":
    main()
