"""What decides a tokenizer's ids is stored with it (A21), and its merges depend on the text alone (A18b).

The rest of A18 to A22 is tested beside each tokenizer; these checks go across them.
"""

import os
import random
import subprocess
import sys

import pytest

from unembed.tokenizers.files import fingerprint, load, save
from unembed.tokenizers.training import train_bpe, train_unigram
from unembed.tokenizers.words import WordTokenizer

TEXT = "Compañera ACCIÓN hacía hacia 각 compañera acción ñandú\n" * 5
KINDS = {
    "bpe": lambda **switches: train_bpe(TEXT, vocab_size=300, **switches),
    "unigram": lambda **switches: train_unigram(TEXT, vocab_size=290, **switches),
    "words": lambda **switches: WordTokenizer.from_text(TEXT, **switches),
}
# lower case on or off, accents kept or not: what is left of the text
LEFT = {
    (False, False): "Compañera ACCIÓN hacía 각",
    (True, False): "compañera acción hacía 각",
    (False, True): "Companera ACCION hacia 각",
    (True, True): "companera accion hacia 각",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("switches", LEFT)
def test_two_switches_are_stored_and_mean_what_they_say(kind, switches, tmp_path):
    lowercases, strips_accents = switches
    made = KINDS[kind](lowercases=lowercases, strips_accents=strips_accents)
    loaded = load(save(made, tmp_path))
    for tokenizer in (made, loaded):
        assert tokenizer.decode(tokenizer.encode_ids("Compañera ACCIÓN hacía 각")) == LEFT[switches]
        assert (tokenizer.encode("hacia").ids == tokenizer.encode("hacía").ids) == strips_accents
        assert ("upper case" in tokenizer.loses, "accents" in tokenizer.loses) == switches
    assert fingerprint(loaded) == fingerprint(made)


def test_the_four_settings_are_four_tokenizers():
    for make in KINDS.values():
        made = {fingerprint(make(lowercases=lower, strips_accents=strips)) for lower, strips in LEFT}
        assert len(made) == 4


TRAINS = """
import sys, hashlib, json
from unembed.tokenizers.training import train_bpe
lines = sys.stdin.buffer.read().decode().splitlines(keepends=True)
print(hashlib.sha256(json.dumps(train_bpe(iter(lines), vocab_size=1200).to_dict(), sort_keys=True).encode()).hexdigest())
"""


def test_merges_are_the_same_in_five_processes_unlike_each_other(data):
    """Other hash seeds, thread counts, parallelism switched off, other orders of lines: one vocabulary (A18b)."""
    lines = [
        line for name in ("es", "ko", "en") for line in (data / "text" / f"udhr_{name}.txt").read_text().split("\n")
    ]
    made = set()
    for seed, (threads, parallel) in enumerate(
        [("1", "true"), ("2", "true"), ("7", "true"), ("1", "false"), ("3", "0")]
    ):
        random.Random(seed).shuffle(lines)
        environment = {"PYTHONHASHSEED": str(seed), "RAYON_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": parallel}
        done = subprocess.run(
            [sys.executable, "-c", TRAINS],
            input="".join(line + "\n" for line in lines).encode(),
            capture_output=True,
            check=True,
            env=os.environ | environment,
        )
        made.add(done.stdout)
    assert len(made) == 1


MEASURES = """
import random
from pathlib import Path
from unembed.tokenizers.training import train_bpe
draw = random.Random(0)
protein = ("".join(draw.choices("ACDEFGHIKLMNPQRSTVWY", k=1 << 16)) for _ in range(800))
made = train_bpe(protein, vocab_size=500)
lines = Path("/proc/self/status").read_text().splitlines()
print(made.vocab_size, next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")))
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not tell a process's memory")
def test_unsplit_protein_of_50_megabytes_is_learnt_in_bounded_memory():
    """A18c: a trainer that holds every place of every pair of an unbroken text would need gigabytes."""
    done = subprocess.run([sys.executable, "-c", MEASURES], capture_output=True, text=True, check=True)
    vocab_size, kilobytes = map(int, done.stdout.split())
    assert vocab_size == 500
    assert kilobytes < 1.5e6
