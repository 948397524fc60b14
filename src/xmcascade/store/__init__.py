"""What is kept on disk and how: packed strings and model folders."""

from xmcascade.store.strings import Strings, StringsBuilder

__all__ = ["Strings", "StringsBuilder"]
