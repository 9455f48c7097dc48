"""Untied heads of BERT and RoBERTa have a bias under two names; transformers adds the decoder's, and so do we."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from parity import BY_NAME
from parity.harness import exactly, quiet_transformers, token_ids
from parity.test_export import open_in_transformers
from unembed.checkpoints.foreign.export import write_huggingface
from unembed.checkpoints.load import load
from unembed.errors import CheckpointError
from unembed.verify import export, subject_of

NAMES = {
    "bert": ("cls.predictions.bias", "cls.predictions.decoder.bias"),
    "roberta": ("lm_head.bias", "lm_head.decoder.bias"),
}
BOTH = pytest.mark.parametrize("name", NAMES)


def apart(folder, name, *, drop=(), case="base"):
    """The family's folder (its base is untied), its two biases far from each other, or one of them alone."""
    place = folder(name, case)
    tensors = load_file(place / "model.safetensors")
    for at, bias in enumerate(NAMES[name]):
        tensors[bias] = torch.linspace(-2.0, 3.0 + 5 * at, tensors[NAMES[name][0]].numel())
    kept = {name: tensor for name, tensor in tensors.items() if name not in drop}
    save_file(kept, place / "model.safetensors", metadata={"format": "pt"})
    return place


def theirs(place, name, ids):
    with exactly(torch.float32):
        return getattr(quiet_transformers(), BY_NAME[name].model).from_pretrained(place)(ids).logits


@BOTH
def test_an_untied_head_adds_the_bias_that_transformers_adds(name, folder, tmp_path):
    place, ids = apart(folder, name), token_ids(41, 2, 9)
    ours = load(place)
    with torch.no_grad():
        assert torch.allclose(ours(ids), theirs(place, name, ids), atol=1e-4, rtol=0)
    original, used = NAMES[name]
    assert (original, f"an untied head adds {used}, as transformers does") in ours.load_report.excused
    assert export.claim(subject_of(place)).status == "proved"
    out = tmp_path / "out"
    out.mkdir()
    write_huggingface(ours, out, family=BY_NAME[name].ours())
    open_in_transformers(BY_NAME[name], out)
    assert torch.equal(load(out).head.bias, ours.head.bias)


@BOTH
def test_what_the_refusal_says_of_transformers_holds(name, folder):
    """A tied file whose biases differ: transformers warns, and adds the decoder's."""
    place, ids = apart(folder, name, case="as published"), token_ids(41, 2, 9)
    with pytest.raises(
        CheckpointError, match=rf"--ignore-tensor '{NAMES[name][0]}' takes the first, as transformers 5"
    ):
        load(place)
    ours = load(place, ignore_tensors=[NAMES[name][0]])
    assert ours.load_report.tied
    with torch.no_grad():
        assert torch.allclose(ours(ids), theirs(place, name, ids), atol=1e-4, rtol=0)


@BOTH
def test_either_bias_can_be_asked_for_and_either_alone_is_enough(name, folder):
    first, second = NAMES[name]
    place = apart(folder, name)
    tensors = load_file(place / "model.safetensors")
    for left_out, kept in ((first, second), (second, first)):
        made = load(place, ignore_tensors=[left_out])
        assert torch.equal(made.head.bias, tensors[kept])
        assert (left_out, "ignored by request") in made.load_report.excused
    for left_out, kept in ((first, second), (second, first)):
        assert torch.equal(load(apart(folder, name, drop=(left_out,))).head.bias, tensors[kept])
