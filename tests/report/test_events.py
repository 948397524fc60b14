"""Events as lines and as curves."""

import json
import sys

import pytest

from xmcascade.errors import DataError, SettingError
from xmcascade.progress import tell
from xmcascade.report.events import recorded


def test_lines_are_added_and_whole_as_they_come(tmp_path):
    path = tmp_path / "deep" / "events.jsonl"
    with recorded(lines=path):
        tell("one", number=1)
        assert json.loads(path.read_text())["number"] == 1
    with recorded(lines=path):
        tell("two")
    tell("nobody hears")
    assert [json.loads(line)["event"] for line in path.read_text().splitlines()] == ["one", "two"]


def test_curves_can_be_read_back(tmp_path):
    from tensorboardX.proto import event_pb2

    with recorded(board=tmp_path / "board"):
        tell("progress", title="training", done=64, total=128, unit="documents", loss=[0.5, 0.25])
        tell("evaluation", title="training", step=2, **{"P@1": 71.5})
        tell("derived", name="epochs", value=3.0, reason="told without a step: no curve")
    (file,) = (tmp_path / "board").iterdir()
    data, at, seen = file.read_bytes(), 0, {}
    while at < len(data):  # a record: length (8 bytes), its checksum (4), the event, its checksum (4)
        length = int.from_bytes(data[at : at + 8], "little")
        event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
        seen |= {value.tag: (event.step, value.simple_value) for value in event.summary.value}
        at += 16 + length
    assert {tuple(map(float, value)) for value in seen.values()} == {(64, 0.5), (64, 0.25), (2, 71.5)}
    assert len([tag for tag in seen if tag.startswith("training/loss")]) == 2


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written"), recorded(lines=tmp_path / "file" / "x"):
        pass


def test_without_the_library_the_remedy_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(SettingError, match=r"xmcascade\[report\]"), recorded(board=tmp_path):
        pass
