"""What is kept on disk and how: packed strings, model folders, unfinished work."""

from xmcascade.store.checkpoint import Checkpoint, fingerprint
from xmcascade.store.folder import Parts, check_target, load_folder, read_manifest, save_folder, within
from xmcascade.store.manifest import FORMAT, Derived, FileEntry, Manifest
from xmcascade.store.strings import Strings, StringsBuilder

__all__ = [
    "FORMAT",
    "Checkpoint",
    "Derived",
    "FileEntry",
    "Manifest",
    "Parts",
    "Strings",
    "StringsBuilder",
    "check_target",
    "fingerprint",
    "load_folder",
    "read_manifest",
    "save_folder",
    "within",
]
