"""Nothing that is read can run code (A33): no call in src can unpickle, and a trap in the place of each file stays shut.

The first half reads the sources as syntax trees. The second puts a pickle that would make a folder where a run, a
tokenizer, shards or data keep their own files, with the manifest agreeing, and opens them.
"""

import ast
import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from checkpoints.faults import state_of
from checkpoints.test_pickles import Trap
from unembed.checkpoints.run.folder import RunFolder
from unembed.checkpoints.run.intact import open_checkpoint
from unembed.corpora.shards import ShardWriter, TokenShards
from unembed.corpora.text import TextReader
from unembed.errors import CorpusError, RunError, TokenizerError, UnembedError, UnsafeError
from unembed.tokenizers.files import load as load_tokenizer

SRC = Path(__file__).parents[1] / "src"
# Modules whose reading functions run what they read.
RUNNING = {
    "pickle",
    "_pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "code",
    "runpy",
}
# Calls that are safe with one argument as said, and only with it.
NEEDS = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
    "np.lib.format.read_array": ("allow_pickle", False),
    "np.memmap": None,
}
# Calls that have no safe form: what a name leads to is run, or the safe reader is told to trust more.
NEVER = {
    "eval", "exec", "compile", "__import__", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter",
    "torch.serialization.add_safe_globals", "torch.serialization.safe_globals", "os.system", "os.popen",
}  # fmt: skip


def unsafe_calls(source: str) -> list[str]:
    """What in a source could run code that came with data, each as `line: what`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: import {name}" for name in names if name.split(".")[0] in RUNNING]
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if name in NEVER:
            found.append(f"{node.lineno}: {name}")
        if needed := NEEDS.get(name):
            value = given.get(needed[0])
            if not isinstance(value, ast.Constant) or value.value is not needed[1]:
                found.append(f"{node.lineno}: {name} without {needed[0]}={needed[1]}")
        for keyword in ("trust_remote_code", "allow_pickle"):
            value = given.get(keyword)
            if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
                found.append(f"{node.lineno}: {name} with {keyword}")
    return found


def test_no_call_in_the_sources_can_unpickle():
    found = [f"{path}: {what}" for path in sorted(SRC.rglob("*.py")) for what in unsafe_calls(path.read_text())]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle", "from pickle import loads", "import joblib.numpy_pickle", "torch.load(path)", "eval('1')",
        "torch.load(path, weights_only=False)", "torch.load(path, weights_only=flag)", "np.load(path)", "exec(text)",
        "np.load(path, allow_pickle=True)", "f(allow_pickle=given)", "AutoModel.load(x, trust_remote_code=True)",
        "torch.serialization.add_safe_globals([Thing])", "x = [torch.jit.load(p) for p in y]",
    ],
)  # fmt: skip
def test_the_search_sees_what_it_looks_for(source):
    assert len(unsafe_calls(source)) >= 1


@pytest.mark.parametrize(
    "source",
    ["torch.load(path, weights_only=True)", "np.load(path, allow_pickle=False)", "model.load(path)", "re.compile('a')"],
)
def test_the_search_leaves_safe_calls_alone(source):
    assert unsafe_calls(source) == []


# --- a trap in the place of each file -------------------------------------------------------------------------


@pytest.fixture
def trap(tmp_path):
    """Bytes of a pickle that makes a folder; afterwards there must be none."""
    marker = tmp_path / "marker"
    yield pickle.dumps({"weights": Trap(marker)}, protocol=2)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
def test_a_checkpoint_whose_manifest_vouches_for_a_pickle(tmp_path, trap, name):
    """The manifest only says that nothing has changed; what a file is, its reader decides."""
    with RunFolder.create(tmp_path / "run", description={}) as run:
        folder = run.save_checkpoint(1, **state_of(1))
    (folder / name).write_bytes(trap)
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    manifest["files"][name] = {"bytes": len(trap), "sha256": hashlib.sha256(trap).hexdigest()}
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    checkpoint = open_checkpoint(folder)
    kind = UnembedError if name == "state.json" else UnsafeError
    with pytest.raises(kind, match=name.replace(".", r"\.")) as caught:
        _ = checkpoint.weights(), checkpoint.optimizer(), checkpoint.state
    if name != "state.json":
        assert caught.value.exit_code == 5
        assert "Ask for the same weights as .safetensors" in str(caught.value)


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl"])
def test_a_run_whose_description_or_log_is_a_pickle(tmp_path, trap, name):
    with RunFolder.create(tmp_path / "run", description={}) as run:
        run.append_metrics({"step": 1})
    (tmp_path / "run" / name).write_bytes(trap + b'\n{"step": 1}\n')
    with pytest.raises(RunError, match=name.replace(".", r"\.")):
        RunFolder.open(tmp_path / "run").metrics()


@pytest.mark.parametrize(
    "names", [["tokenizer.json"], ["tokenizer.model"], ["tok512.bin"], ["vocab.json", "merges.txt"]], ids=lambda n: n[0]
)
def test_a_tokenizer_that_is_a_pickle(tmp_path, trap, names):
    for name in names:
        (tmp_path / name).write_bytes(trap)
    with pytest.raises((TokenizerError, UnsafeError)):
        load_tokenizer(tmp_path / names[0])


def test_merges_that_are_a_pickle(tmp_path, trap):
    (tmp_path / "vocab.json").write_text('{"a": 0}')
    (tmp_path / "merges.txt").write_bytes(trap)
    with pytest.raises(TokenizerError, match=r"merges\.txt: byte 0 is not UTF-8, so these are no merges"):
        load_tokenizer(tmp_path / "vocab.json")


@pytest.mark.parametrize("name", ["manifest.json", "train.bin"])
def test_shards_that_are_a_pickle(tmp_path, trap, name):
    with ShardWriter(tmp_path / "data", vocab_size=9, tokenizer="f") as writer:
        writer.append("train", np.arange(9))
    (tmp_path / "data" / name).write_bytes(trap)
    with pytest.raises(CorpusError):
        TokenShards.open(tmp_path / "data")


@pytest.mark.parametrize("name", ["text.txt", "text.pt", "cache.npy", "rows.jsonl"])
def test_data_that_is_a_pickle_is_read_as_text_or_refused(tmp_path, trap, name):
    (tmp_path / name).write_bytes(trap)
    with pytest.raises(CorpusError, match=r"byte 0 \(0x80\): not UTF-8|is no text|named"):
        list(TextReader(tmp_path / name).documents())
