"""The demo: learn which functions Python code calls for a purpose, compare two methods, answer questions.

The corpus is mined from the standard library and the packages installed here; nothing is downloaded.
"""

from __future__ import annotations

import logging
from pathlib import Path

from rich.console import Console
from rich.table import Table

from xmcascade import load, load_corpus
from xmcascade.cli import print_comparison
from xmcascade.progress import set_console
from xmcascade.report import compare, inspect_model

OUTPUT = Path("demo-output")
METHODS = ["xr-linear", "cascadexml-tfidf effort=fast"]
QUESTIONS = [
    "compute the mean and standard deviation of an array",
    "delete a directory and everything in it",
    "parse a date from a string",
    "read lines from a compressed file",
    "run a command and return its output",
]


def main() -> None:
    """Build the corpus, train, compare, answer, and say where the reports are."""
    console = Console(highlight=False, soft_wrap=True)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    set_console(console if console.is_terminal else None)
    train, test = load_corpus("docstrings", "train"), load_corpus("docstrings", "test")
    console.print(
        f"\n{train.n_docs:,} documents to learn from, {test.n_docs:,} to test on, {train.n_labels:,} labels\n"
    )
    found = compare(train, test, METHODS, OUTPUT / "comparison")
    found.write(OUTPUT / "comparison")
    console.print()
    print_comparison(found)
    kept = next(row.model for row in found.finished if row.model)
    model = load(OUTPUT / "comparison" / kept)
    model.save(OUTPUT / "model")

    console.print(f"\nThe model in {OUTPUT / 'model'} answers: which functions would I call to ...\n")
    answers = Table("question", "labels (probability)", box=None)
    for question, predictions in zip(QUESTIONS, model.predict(QUESTIONS, k=5), strict=True):
        answers.add_row(question, ", ".join(f"{p.label} ({p.probability:.2f})" for p in predictions))
    console.print(answers)
    inspect_model(model, test, OUTPUT / "inspection", text=QUESTIONS[0], documents=500, looked_at=200)
    console.print("\nOpen these in a browser:")
    for report in ("comparison", "inspection"):
        console.print(f"  {(OUTPUT / report / 'index.html').resolve()}")


if __name__ == "__main__":
    main()
