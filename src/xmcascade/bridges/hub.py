"""Models on the Hugging Face hub, in its ecosystem's form: save_pretrained, push_to_hub, from_pretrained.

What is pushed and fetched is the model folder as it is, with a card beside it, README.md, that says what the
model is. No file of a model folder can carry code, and nothing else is fetched from a repository.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from xmcascade.errors import MissingExtraError, ModelFolderError, XmcError
from xmcascade.evaluate import Evaluation
from xmcascade.models import Model, load
from xmcascade.store import Manifest, check_target
from xmcascade.store.atomic import replacing
from xmcascade.store.manifest import ARRAYS, MANIFEST, is_strings_file
from xmcascade.store.parts import write_file
from xmcascade.version import __version__

__all__ = ["from_pretrained", "push_to_hub", "save_pretrained"]

CARD = "README.md"
LIBRARY = {"library_name": "xmcascade", "library_version": __version__}
ONLINE = "check the name, the network, and for a private model the token"
Metrics = Evaluation | Mapping[str, float] | None


def save_pretrained(
    model: Model[Any, Any],
    save_directory: str | Path,
    *,
    metrics: Metrics = None,
    dataset: str = "test documents",
    card: str | None = None,
    repo_id: str | None = None,
) -> None:
    """Save a model folder with a model card, README.md, in one step; `load` reads it as any other.

    The card says what the model is and how good, if metrics are given (what `model.evaluate` returns, or
    percentages by name) and on which data set. A card that is there already stays. `card` is one of your own.

    >>> from tempfile import TemporaryDirectory
    >>> from xmcascade import XRLinear, load
    >>> model = XRLinear().fit(["red apple", "blue sky"], [["fruit"], ["weather"]])
    >>> with TemporaryDirectory() as parent:
    ...     save_pretrained(model, f"{parent}/fruit-tagger", metrics={"P@1": 100.0})
    ...     print(Path(parent, "fruit-tagger", "README.md").read_text().splitlines()[1])
    ...     load(f"{parent}/fruit-tagger").n_labels
    library_name: "xmcascade"
    2
    """
    target = Path(save_directory)

    def check(folder: Path) -> None:
        check_target(folder, also=[CARD])

    space = "check the folder's permissions and the space on the disk"
    with _explained(str(target), "cannot be saved", space), replacing(target, check) as new:
        manifest = model.save(new / "model")
        for path in (new / "model").iterdir():
            path.rename(new / path.name)
        (new / "model").rmdir()
        old = target / CARD
        if card is not None:
            text = card.encode()
        elif old.is_file():
            text = old.read_bytes()
        else:
            text = _card(manifest, repo_id or target.name, metrics, dataset).encode()
        write_file(new / CARD, text)


def push_to_hub(
    model: Model[Any, Any],
    repo_id: str,
    *,
    commit_message: str = "Push model using xmcascade",
    private: bool | None = None,
    token: str | None = None,
    branch: str | None = None,
    create_pr: bool = False,
    metrics: Metrics = None,
    dataset: str = "test documents",
    card: str | None = None,
) -> str:
    """Put a model on the hub, in one commit, and return that commit's address.

    The repository is made if there is none. The card is as in `save_pretrained`; one that is there already
    stays unless you give another.

    >>> push_to_hub(model, "me/fruit-tagger", metrics=model.evaluate(test))  # doctest: +SKIP
    'https://huggingface.co/me/fruit-tagger/commit/...'
    """
    hub = _hub()
    with TemporaryDirectory() as parent, _explained(repo_id, "cannot be pushed to the hub", ONLINE):
        folder = Path(parent, "model")
        save_pretrained(model, folder, metrics=metrics, dataset=dataset, card=card, repo_id=repo_id)
        api = hub.HfApi(token=token, **LIBRARY)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        there = set(api.list_repo_files(repo_id, revision=branch))
        kept = {CARD} & there if card is None else set()
        new = sorted({path.name for path in folder.iterdir()} - kept)
        gone = sorted(name for name in there.difference(new) if is_strings_file(name))
        done = api.create_commit(
            repo_id,
            [
                *(hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=folder / name) for name in new),
                *(hub.CommitOperationDelete(path_in_repo=name) for name in gone),
            ],
            commit_message=commit_message,
            revision=branch,
            create_pr=create_pr,
        )
    return str(done.pr_url or done.commit_url)


def from_pretrained(
    name_or_folder: str | Path,
    *,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: bool | str | None = None,
    local_files_only: bool = False,
    threads: int | None = None,
    verify: bool = True,
) -> Model[Any, Any]:
    """A model from a folder, or from the hub by its name; what was fetched once stays in the hub's cache.

    >>> from_pretrained("no-such-model", local_files_only=True)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    xmcascade.errors.ModelFolderError: no-such-model: is no folder here, and cannot be fetched ...
    """
    folder = Path(name_or_folder)
    if not folder.is_dir():
        hub = _hub()
        with _explained(str(name_or_folder), "is no folder here, and cannot be fetched from the hub", ONLINE):
            folder = hub.snapshot_download(
                str(name_or_folder),
                revision=revision,
                cache_dir=cache_dir,
                token=token,
                local_files_only=local_files_only,
                allow_patterns=[MANIFEST, ARRAYS, "*.arrow"],
                **LIBRARY,
            )
    return load(folder, threads=threads, verify=verify, links=True)  # in the hub's cache, files are links


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError(
            "huggingface_hub is not installed", remedy="pip install 'xmcascade[hub]'"
        ) from error
    return huggingface_hub


@contextmanager
def _explained(where: str, what: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except XmcError:
        raise
    except Exception as error:  # of several libraries, and of many kinds
        why = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
        raise ModelFolderError(f"{what} ({why})", where=where, remedy=remedy) from error


def _card(manifest: Manifest, name: str, metrics: Metrics, dataset: str) -> str:
    """A model card: facts for the hub, then the same for people. JSON is YAML too, whatever the strings."""
    numbers = metrics.metrics if isinstance(metrics, Evaluation) else dict(metrics or {})
    facts: dict[str, Any] = {
        "library_name": "xmcascade",
        "pipeline_tag": "text-classification",
        "tags": ["xmcascade", manifest.kind, "extreme-classification", "multi-label"],
    }
    if numbers:
        found = [{"type": metric, "name": metric, "value": value} for metric, value in numbers.items()]
        task, data = {"type": "text-classification"}, {"name": dataset, "type": dataset}
        results = [{"task": task, "dataset": data, "metrics": found}]
        facts["model-index"] = [{"name": name.rpartition("/")[2], "results": results}]
    lines = ["---", *(f"{fact}: {json.dumps(value)}" for fact, value in facts.items()), "---", ""]
    lines += [
        f"# {name}",
        "",
        f"Tells which of {manifest.n_labels:,} labels a text should have. Method: {manifest.kind}, learnt "
        f"from {manifest.values['n_docs']:,} documents with xmcascade {manifest.package_version}.",
        "",
        "```python",
        "from xmcascade import from_pretrained",
        "",
        f"model = from_pretrained({name!r})",
        'for prediction in model.predict(["a text"], k=5)[0]:',
        "    print(prediction.label, prediction.probability)",
        "```",
        "",
    ]
    if numbers:
        lines += [f"## How good, in percent, on {dataset}", "", "| metric | value |", "|---|---|"]
        lines += [*(f"| {metric} | {value:.2f} |" for metric, value in numbers.items()), ""]
    settings = json.dumps(manifest.settings, indent=2, ensure_ascii=False).splitlines()
    return "\n".join([*lines, "## Settings", "", *(f"    {line}" for line in settings), ""])
