"""Environments of peers are whole or not there, and errors tell what pip said."""

import subprocess
import zipfile

import pytest

from xmcascade.errors import SettingError, XmcError
from xmcascade.report import peers
from xmcascade.report.peers import PEERS, peer_of, peer_python


def test_settings_of_peers():
    assert peer_of("omikuji-parabel").settings == {"beam": 10, "trees": 3}
    assert peer_of("napkinxc-plt loss=l2 cost=1").settings == {"loss": "l2", "cost": 1}
    assert PEERS["napkinxc-plt"].settings["loss"] == "log"
    assert peer_of("pecos-xrtransformer epochs=0.5 encoder='my folder'").settings["encoder"] == "my folder"


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ("", "there is no peer ''"),
        ("weka", "there is no peer 'weka'.*peer:omikuji-bonsai"),
        ("omikuji-bonsai 'beam=3", "there is no peer"),
        ("omikuji-bonsai beem=3", "cannot be told 'beem=3'.*it has: beam, trees"),
        ("omikuji-bonsai beam", "beam of peer:omikuji-bonsai is ''.*something like 10"),
        ("omikuji-bonsai beam=many", "beam of peer:omikuji-bonsai is 'many'"),
        ("omikuji-bonsai beam=0", "is 0"),
        ("pecos-xrtransformer epochs=true", "is True"),
    ],
)
def test_wrong_settings_are_refused(told, says):
    with pytest.raises(SettingError, match=says):
        peer_of(told)


def test_a_python_that_is_too_new_is_said_before_anything_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(peers.NEWEST_PYTHON, "pecos", (3, 10))
    with pytest.raises(XmcError, match=r"run this with Python 3\.10 or older"):
        peer_python("pecos", tmp_path)
    assert not list(tmp_path.iterdir())


def wheel(folder):
    """A package that can be installed without a network."""
    path = folder / "tinypeer-1.0-py3-none-any.whl"
    files = {
        "tinypeer.py": "ANSWER = 42\n",
        "tinypeer-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: tinypeer\nVersion: 1.0\n",
        "tinypeer-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr("tinypeer-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in files))
    return str(path)


def test_an_environment_is_made_once_and_again_when_it_is_not_whole(tmp_path, monkeypatch):
    monkeypatch.setitem(peers.ENVIRONMENTS, "tiny", [wheel(tmp_path)])
    half = tmp_path / "envs" / "tiny" / "bin"
    half.mkdir(parents=True)
    (half / "python").write_text("killed while it was made")
    python = peer_python("tiny", tmp_path / "envs")
    said = subprocess.run(
        [python, "-I", "-c", "import tinypeer; print(tinypeer.ANSWER)"], capture_output=True, check=True
    )
    assert said.stdout.strip() == b"42"
    made = (tmp_path / "envs" / "tiny" / "installed.json").stat().st_mtime_ns
    assert peer_python("tiny", tmp_path / "envs") == python
    assert (tmp_path / "envs" / "tiny" / "installed.json").stat().st_mtime_ns == made
    # Other requirements: made anew; what pip says is passed on, and the old one stays.
    monkeypatch.setitem(peers.ENVIRONMENTS, "tiny", [str(tmp_path / "nothing-1.0-py3-none-any.whl")])
    with pytest.raises(XmcError, match=r"for tiny cannot be made.*nothing-1\.0.*Remedy: check the network"):
        peer_python("tiny", tmp_path / "envs")
    assert [path.name for path in (tmp_path / "envs").iterdir()] == ["tiny"]
