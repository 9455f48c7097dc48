"""The memory estimate's total against the peak of real processes, as its parts are switched one at a time.

Each case is a child process of its own that trains as `unembed train` does, by the run's own settings, and reads its peak
(VmHWM) from /proc; what it had before the model was built is taken off. Tied and untied, plain and chunked loss, blocks kept
and run again: eight cases of a shape like GPT-2's, and as many of one like Llama's. The estimate is of a process that gives
freed memory back; one that keeps it, as a run does where there is room, is held against what is said of it.
"""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from small import run_config
from unembed.model.init import Gpt2Init
from unembed.model.presets.gpt import gpt_spec
from unembed.model.presets.llama import Size, llama_spec
from unembed.model.spec import TransformerSpec
from unembed.recipes.memory import WORTH_SAYING, memory_sentence, planned
from unembed.training.config import RunConfig, with_settings

TOLERANCE = 0.10
CHILD = """
import json, sys
import msgspec, numpy, torch
from unembed.corpora.windows import TokenSplit
from unembed.model.init import build
from unembed.runtime import give_memory_back, keep_freed_memory
from unembed.training.config import RunConfig
from unembed.training.loop import Trainer

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

torch.set_num_threads(1)
config = msgspec.json.decode(sys.stdin.read(), type=RunConfig)
assert keep_freed_memory() if sys.argv[1] == "kept" else give_memory_back()
ids = numpy.random.default_rng(0).integers(0, config.model.embedding.vocab_size, 2_500).astype(numpy.uint16)
split = TokenSplit("train", ids)
before = status("VmRSS:")
trainer = Trainer(build(config.model, config.init, seed=0), config, split, split)
for _ in range(3):
    trainer.step()
trainer.evaluate()
print(status("VmHWM:") - before)
"""
GPT = gpt_spec(vocab_size=32_768, context_length=128, d_model=320, n_layers=4, n_heads=5)
LLAMA = llama_spec(Size(16_000, 384, 6, 6, 2, 64, 1_024, 128, True), eps=1e-5, theta=1e4)
DEEP = gpt_spec(vocab_size=512, context_length=256, d_model=256, n_layers=8, n_heads=4)
SWITCHES = tuple(itertools.product((True, False), repeat=3))


def config_of(spec: TransformerSpec, batch_size: int, **settings) -> RunConfig:
    config = msgspec.structs.replace(run_config(batch_size=batch_size), model=spec, init=Gpt2Init(std=0.02))
    return with_settings(config, settings)


def growth(config: RunConfig, freed: str = "given back") -> int:
    """By how many bytes a process of its own grows from before the model is built to its peak."""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc, which tells a process its own peak")
    given = msgspec.json.encode(config).decode()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, freed], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow  # 16 processes
@pytest.mark.parametrize(("tied", "chunked", "again"), SWITCHES)
@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_total_is_within_a_tenth_of_the_peak_whatever_is_switched(name, tied, chunked, again):
    spec = GPT if name == "gpt" else LLAMA
    config = config_of(spec, 4, tied=tied, chunked_loss=chunked, checkpoint_activations=again)
    measured = growth(config)
    assert measured > WORTH_SAYING
    assert planned(config).process_peak == pytest.approx(measured, rel=TOLERANCE)


@pytest.mark.slow  # two processes
def test_blocks_that_are_run_again_save_what_is_promised():
    """Where activations weigh most: 32 x 256 tokens of 8 blocks."""
    configs = [config_of(DEEP, 32, checkpoint_activations=again) for again in (False, True)]
    kept, again = map(growth, configs)
    promised, left = (planned(config).process_peak for config in configs)
    assert promised == pytest.approx(kept, rel=TOLERANCE)
    assert left == pytest.approx(again, rel=TOLERANCE)
    assert again < 0.6 * kept


@pytest.mark.slow  # three processes
@pytest.mark.parametrize(
    ("spec", "settings"), [(GPT, {"chunked_loss": True}), (GPT, {"tied": False}), (LLAMA, {"chunked_loss": True})]
)
def test_what_is_kept_between_steps_is_half_more_at_most(spec, settings):
    config = config_of(spec, 4, **settings)
    assert planned(config).process_peak < growth(config, "kept") < 1.5 * planned(config).process_peak


def test_each_switch_moves_the_estimate():
    """Else a switch could be ignored by estimate and run alike."""
    totals = {
        key: planned(config_of(GPT, 16, tied=key[0], chunked_loss=key[1], checkpoint_activations=key[2])).peak
        for key in SWITCHES
    }
    for tied, chunked, again in SWITCHES:
        assert totals[True, chunked, again] < totals[False, chunked, again]
        assert totals[tied, True, again] < totals[tied, False, again]
        assert totals[tied, chunked, True] <= totals[tied, chunked, False]


def test_sentence_names_total_parts_and_what_would_save():
    said = memory_sentence(config_of(GPT, 16))
    total = planned(config_of(GPT, 16)).process_peak / 1e6
    assert said is not None
    assert said.startswith(
        f"memory: steps take about {total:,.0f} MB on a CPU (weights, gradients and optimizer 247 MB, "
    )
    kept = "; where twice that is free, up to half more is kept between steps, for speed"
    assert said.endswith("; less with --set chunked_loss=true" + kept)
    deep = memory_sentence(config_of(DEEP, 12))
    assert deep is not None
    assert deep.endswith("; less with --set checkpoint_activations=true" + kept)
    saving = memory_sentence(config_of(DEEP, 24, checkpoint_activations=True, chunked_loss=True))
    assert saving is None or "--set" not in saving


@pytest.mark.parametrize("settings", [{"dropout": 0.1}, {"compile": True}, {"optimizer": "muon"}])
def test_nothing_is_said_of_what_is_not_counted(settings):
    assert memory_sentence(config_of(GPT, 4)) is not None
    assert memory_sentence(config_of(GPT, 4, **settings)) is None


def test_nothing_is_said_of_a_small_run():
    assert memory_sentence(config_of(DEEP, 1)) is None
