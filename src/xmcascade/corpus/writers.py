"""A Corpus becomes a file that its reader turns into the same Corpus again."""

from __future__ import annotations

import json
from pathlib import Path

from xmcascade.corpus.corpus import Corpus
from xmcascade.corpus.lines import suffixes
from xmcascade.corpus.tables import to_arrow
from xmcascade.errors import SettingError
from xmcascade.progress import tracker
from xmcascade.store.files import replacing_file

__all__ = ["write_corpus"]

ROW_GROUP = 1 << 16  # rows; a reader holds one such group at a time


def write_corpus(corpus: Corpus, path: str | Path) -> None:
    """Write as .jsonl (also .gz, .xz, .zst) or .parquet, by the name's ending.

    Parquet keeps everything. JSON Lines keeps the documents, not labels without any document or label texts.

    >>> import tempfile
    >>> corpus = Corpus.from_lists(["a text"], [["x"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_corpus(corpus, Path(folder, "a.jsonl"))
    ...     Path(folder, "a.jsonl").read_text()
    '{"text": "a text", "labels": ["x"]}\\n'
    """
    path = Path(path)
    suffix, packed = suffixes(path)
    if suffix not in (".jsonl", ".parquet") or (suffix == ".parquet" and packed):
        remedy = "use .jsonl (or .jsonl.gz, .jsonl.xz, .jsonl.zst) or .parquet"
        raise SettingError(f"{path.name!r} does not end in a format that can be written", remedy=remedy)
    table = to_arrow(corpus)
    with replacing_file(path) as out, tracker(f"writing {path.name}", corpus.n_docs) as seen:
        if suffix == ".parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, out, compression="zstd", row_group_size=ROW_GROUP)
            return
        for batch in table.to_batches(4096):
            for row in batch.to_pylist():
                out.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            seen.advance(batch.num_rows)
