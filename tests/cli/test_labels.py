"""No label of a result table stays English in another language: every key that a command prints has its words."""

import pytest

from commands import run
from unembed import catalogue
from unembed.generation.candidates import CANDIDATE_COLUMNS, STEP_COLUMNS
from unembed.generation.texts import VALUES
from unembed.recipes.comparison import WAYS, _result
from unembed.recipes.outcome import Outcome
from unembed.tokenizers.comparing import compare
from unembed.training.profile import PARTS
from unembed.tying.alike import MEASURES
from unembed.verify.claim import Claim

COMPARED = compare("to be or not to be, that is the question\n" * 40, vocab_size=260)
SHARED = _result([], dict.fromkeys(WAYS, 1.0))
TEXTS = {
    "value": [
        *Outcome.__dataclass_fields__, *VALUES, *COMPARED.values,
        *["report", "samples", "entropy_floor_nats", "agreements_right"],
        *["format", "config", "tokenizer", "written", "tensors", "parameters", "tied", "repaired", "verdict",
        "kind", "repair", "lossless"],
        *["lookup_scale", "seeds", "rates"],
        *["parameters_untied", "table_parameters", "by_part", "bytes", "flops_per_token"],
    ],
    "table": ["claims", "tensors", "checks", "tokens", "samples", "candidates", "steps", "profile",
              "comparison", "runs", "likeness",
              *COMPARED.tables],
    "column": [
        *CANDIDATE_COLUMNS, *STEP_COLUMNS, *Claim._fields, *VALUES[4:5], "seed", "prompt", "text", "dtype", "shape", "span",
        *(column for table in COMPARED.tables.values() for column in table.columns),
        *(column for table in SHARED.tables.values() for column in table.columns), "measure", "value", "paired_at_random",
    ],
    "choice": ["status.proved", "status.failed", "status.skipped", "status.ok", "status.broken", "stopped.steps",
               "stopped.early", "stopped.length", "stopped.end", "stopped.stop", "stopped.context",
               *(f"part.{name}" for name in (*PARTS, "between")),
               *(f"sharing.{way}" for way in WAYS), *(f"measure.{measure}" for measure in MEASURES)],
}  # fmt: skip


@pytest.mark.parametrize("lang", ["es", "ko"])
def test_every_key_that_a_command_prints_has_its_words(lang):
    words = catalogue.load(lang)
    assert [
        f"{kind}.{name}" for kind, names in TEXTS.items() for name in names if not words.find(f"{kind}.{name}")
    ] == []


def test_verify_says_each_claim_once_and_in_the_language(trained):
    done = run("verify", trained, "--claim", "tie", "--lang", "es")
    assert "Afirmaciones" in done.out
    assert "probada" in done.out
    assert "proved" not in done.out + done.err
