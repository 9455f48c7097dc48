"""Figures of the source documents about the two ends of a model: ids become vectors, vectors become scores.

Each docstring says in short what a document states; the test asks the model itself, through its taps. Where a document is
wrong, the right statement is tested and the comment says what was printed. The next files to read are
test_positions_of_the_documents.py and test_blocks_of_the_documents.py.
"""

import math

import pytest
import torch
from msgspec.structs import replace

from unembed.generation.sampling import GREEDY, Sampling, draw, probabilities
from unembed.geometry.neighbours import cosine_neighbours
from unembed.lenses.logit_lens import logit_lens
from unembed.model.counts import count
from unembed.model.init import AndreaInit, Gpt2Init, build, init_table
from unembed.model.presets import preset
from unembed.model.presets.gpt import gpt_spec, micro_spec
from unembed.model.spec import with_tying
from unembed.model.taps import Recorder
from unembed.objectives import next_token_loss

GPT2_INIT = Gpt2Init(std=0.02)
WORDS = ("the", "cat", "dog", "a", "is")
HIDDEN = torch.tensor([[0.9, -1.2, 0.4, 2.0]], dtype=torch.float64)
LOGITS = torch.tensor([[3.1, 0.5, -0.8, 1.7, 0.2]], dtype=torch.float64)
WALK = [256, 1842, 7301]
IDS = torch.tensor([[5, 1, 4, 1, 9, 2, 6, 5], [3, 5, 8, 9, 7, 9, 3, 2]])
TARGETS = IDS.roll(-1, 1)
SMALL = {"vocab_size": 13, "context_length": 8, "d_model": 8, "n_heads": 2}


def taps_of(model, ids):
    """Every named step of a forward, on the path that names them all."""
    recorder = Recorder()
    model(torch.as_tensor(ids), tap=recorder, attention="explicit")
    return recorder.values


def mini_gpt():
    return build(preset("mini-gpt").spec, GPT2_INIT, seed=0, dtype=torch.float64)


# --- the worked example: d = 4, V = 5 ---------------------------------------------------------------------


def worked_example():
    """A tied model without blocks or norm whose table scores h as the document has it."""
    spec = gpt_spec(vocab_size=5, context_length=4, d_model=4, n_layers=0, n_heads=1)
    model = build(replace(spec, final_norm=None), GPT2_INIT, seed=0, dtype=torch.float64)
    with torch.no_grad():
        table, direction = model.embed.table, HIDDEN / HIDDEN.norm()
        # what lies across h stays random; along h each row gets what its score needs
        table -= table @ direction.T @ direction
        table += LOGITS.T / HIDDEN.norm() @ direction
    return model


def test_worked_example_scores_and_shapes():
    """h = [0.9, -1.2, 0.4, 2.0] has logits [3.1, 0.5, -0.8, 1.7, 0.2]: 1 x 4 times 4 x 5 is 1 x 5."""
    model = worked_example()
    transposed = model.unembed_table().T
    assert (HIDDEN.shape, transposed.shape) == ((1, 4), (4, 5))
    logits = model.unembed(HIDDEN[None])[0]
    assert logits.shape == (1, 5)
    torch.testing.assert_close(logits, LOGITS, rtol=0, atol=1e-14)
    torch.testing.assert_close(logits, HIDDEN @ transposed, rtol=0, atol=1e-14)


def test_worked_example_greedy_picks_the():
    """Greedy takes "the", 3.1; softmax changes no order, so it is needed for sampling only."""
    scores = worked_example().unembed(HIDDEN[None])[0, 0].detach()
    assert WORDS[int(scores.argmax())] == "the"
    assert WORDS[draw(probabilities(scores, GREEDY), 0.999)] == "the"
    shares = probabilities(scores, Sampling())
    assert shares.argsort().tolist() == scores.argsort().tolist()
    expected = [math.exp(x) / sum(math.exp(y) for y in LOGITS[0].tolist()) for x in LOGITS[0].tolist()]
    assert shares.tolist() == pytest.approx(expected, rel=1e-13)
    # sampling can pick another word: "the" has 0.7162 of the probability, and "cat" the next 0.0532
    assert [WORDS[draw(shares, u)] for u in (0.71, 0.73, 0.99)] == ["the", "cat", "is"]


def test_worked_example_tying_saves_twenty_numbers():
    """5 x 4 = 20 numbers are saved: counted in the modules, not in a formula."""
    tied = worked_example()
    untied = build(with_tying(tied.spec, False), GPT2_INIT, seed=0)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    assert sizes[1] - sizes[0] == 20


# --- a walk through the tables ----------------------------------------------------------------------------


@pytest.mark.parametrize("has_embedding_norm", [False, True])
def test_walk_of_three_ids_reads_three_rows_of_each_table(has_embedding_norm):
    """x_t = token_table[id_t] + position_table[t]: ids 256, 1842, 7301 with positions 0, 1, 2, each part visible alone."""
    sizes = {"vocab_size": 8_449, "context_length": 1_024, "d_model": 16, "n_layers": 1, "n_heads": 2}
    spec = micro_spec(**sizes) if has_embedding_norm else gpt_spec(**sizes)
    model = build(spec, AndreaInit(), seed=0, dtype=torch.float64)
    seen = taps_of(model, [WALK])
    for place, token in enumerate(WALK):
        assert torch.equal(seen["embed"][0, place], model.embed.table[token])
        assert torch.equal(seen["pos_embed"][0, place], model.embed.pos_table[place])
        x = model.embed.table[token] + model.embed.pos_table[place]
        if has_embedding_norm:  # ANDREA normalises the sum
            x = x / (x.square().mean() + 1e-5).sqrt()
        torch.testing.assert_close(seen["blocks.0.resid_pre"][0, place], x, rtol=1e-14, atol=1e-15)


def test_dot_product_is_lengths_times_cosine():
    """u.v = |u| |v| cos(theta): a score is how long a row is and how near its direction lies to the hidden vector's."""
    model = mini_gpt()
    with torch.no_grad():
        normed, table, scores = model.normed(model.hidden(IDS))[0, 3], model.embed.table.detach(), model(IDS)[0, 3]
    cosines = dict(cosine_neighbours(torch.cat([table, normed[None]]), 64, 64))
    for row in range(64):
        expected = float(normed.norm() * table[row].norm()) * cosines[row]
        assert scores[row].item() == pytest.approx(expected, abs=1e-13)


def test_embedding_and_un_embedding_are_no_inverses():
    """A document calls the two operations inverses; E times its transpose is no identity, however large the table."""
    model = build(replace(gpt_spec(**SMALL, n_layers=0), final_norm=None), GPT2_INIT, seed=0, dtype=torch.float64)
    torch.nn.init.zeros_(model.embed.pos_table)
    scores, table = model(torch.arange(8)[None])[0], model.embed.table
    torch.testing.assert_close(scores, table[:8] @ table.T, rtol=1e-12, atol=1e-16)
    off_diagonal = scores[:, :8] - scores.diag().diag()
    assert off_diagonal.abs().max() > 0.1 * scores.diag().max()


# --- tying ------------------------------------------------------------------------------------------------


def test_gradient_of_a_tied_table_is_lookup_part_plus_projection_part():
    """dL/dE is the sum of what comes through the lookup and what comes through the projection, to float64 rounding."""
    model, recorder = mini_gpt(), Recorder(["embed.table", "unembed.table"])
    loss = next_token_loss(model(IDS, tap=recorder), TARGETS).mean()
    uses = [recorder.values["embed.table"], recorder.values["unembed.table"]]
    lookup, projection = torch.autograd.grad(loss, uses, retain_graph=True)
    loss.backward()
    whole = model.embed.table.grad
    assert (lookup + projection - whole).abs().max() <= 1e-15 * whole.abs().max()
    # the lookup reaches the rows that were read, the projection reaches every row
    was_read = torch.isin(torch.arange(64), IDS)
    assert torch.equal(lookup.abs().sum(-1) > 0, was_read)
    assert (projection.abs().sum(-1) > 0).all()


def test_copy_of_the_table_unties_without_a_word():
    """W_LM = E.copy() gives the same scores at first; but one matrix no longer follows the other, and training parts them."""
    tied = mini_gpt()
    copied = build(with_tying(tied.spec, False), GPT2_INIT, seed=1, dtype=torch.float64)
    copied.load_state_dict({**tied.state_dict(), "head.table": tied.embed.table.detach().clone()})
    assert torch.equal(tied(IDS), copied(IDS))
    assert tied.unembed_table() is tied.embed.table
    assert count(copied.spec).parameters - count(tied.spec).parameters == 4_096

    before, unused = copied(IDS), 63  # an id that the text does not hold: only the head can feel it
    assert unused not in IDS
    with torch.no_grad():
        tied.embed.table[unused] *= 2
        copied.embed.table[unused] *= 2
    assert torch.equal(copied(IDS), before)
    assert (tied(IDS) - before)[..., unused].abs().min() > 1e-6
    with torch.no_grad():
        copied.head.table[0] *= 2
    assert torch.equal(copied.embed.table[0], tied.embed.table[0])

    for model in (tied, copied):
        next_token_loss(model(IDS), TARGETS).mean().backward()
    assert not torch.allclose(copied.embed.table.grad, copied.head.table.grad)


# --- what a forward gives ---------------------------------------------------------------------------------


def test_mini_gpt_as_described():
    """Pre-LN, attention without bias, MLP with bias, exact GELU, tied, 103,680 numbers in the modules themselves."""
    model = mini_gpt()
    names = dict(model.named_parameters())
    assert sum(p.numel() for p in names.values()) == 103_680
    biased = {name.split(".")[-2] for name in names if name.endswith(".bias")}
    assert biased == {"attn_norm", "mlp_norm", "up", "down", "final_norm"}
    assert "head.table" not in names
    seen = taps_of(model, IDS)
    assert not {"pos_embed"} & set(seen)
    pre = seen["blocks.1.mlp_pre"]
    torch.testing.assert_close(seen["blocks.1.mlp_act"], pre * (1 + torch.erf(pre / math.sqrt(2))) / 2)


def test_forward_returns_logits_and_no_probabilities():
    """A row of scores for each position, [pos, vocab]; softmax has not been applied."""
    logits = mini_gpt()(IDS)[0]
    assert logits.shape == (8, 64)
    assert (logits < 0).any()
    assert (logits.exp().sum(-1) - 1).abs().min() > 1
    assert (logits.sum(-1) - 1).abs().min() > 1e-3


@pytest.mark.parametrize("is_tied", [True, False])
def test_lens_of_the_last_layer_is_the_models_answer(is_tied):
    """Final norm and head on a middle layer are a clue, and say so; on the last layer they are the logits, tied or not."""
    spec = with_tying(preset("mini-gpt").spec, is_tied)
    model = build(spec, Gpt2Init(std=0.2), seed=0, dtype=torch.float64)
    result = logit_lens(model, IDS[0], n_top=64)
    assert result.values["identity_error"] <= 1e-5
    assert result.notes == ("lens_is_a_clue",)
    seen = taps_of(model, IDS[:1])
    torch.testing.assert_close(model.unembed(seen["blocks.1.resid_post"]), seen["logits"], rtol=0, atol=1e-13)
    last = [row for row in result.tables["top"].rows() if row["layer"] == 2]
    for row in last:
        shares = seen["logits"][0, row["position"]].softmax(-1)[torch.as_tensor(row["ids"])]
        assert list(row["probabilities"]) == pytest.approx(shares.tolist(), rel=1e-12)
    early = model.unembed(seen["blocks.0.resid_pre"])
    assert (early - seen["logits"]).abs().max() > 0.1


# --- how tables start, and ANDREA's ancestor --------------------------------------------------------------


@pytest.mark.parametrize(("name", "init", "std"), [("andrea-120m", AndreaInit(), 768**-0.5), ("gpt2", GPT2_INIT, 0.02)])
def test_tables_start_normal_with_the_documents_deviation(name, init, std):
    """N(0, 1/d_model) for ANDREA, N(0, 0.02^2) for GPT-2; an untied head starts at the same scale as the embedding."""
    spec = with_tying(preset(name).spec, False)
    starts = {start.info.name: start.std for start in init_table(spec, init)}
    assert starts["embed.table"] == starts["embed.pos_table"] == starts["head.table"] == pytest.approx(std, rel=1e-15)
    few = replace(spec, blocks=(), embedding=replace(spec.embedding, vocab_size=300, position=None))
    model = build(few, init, seed=0, dtype=torch.float64)
    for table in (model.embed.table, model.head.table):
        assert table.std().item() == pytest.approx(std, rel=4 / math.sqrt(2 * table.numel()))
        assert abs(table.mean().item()) < 4 * std / math.sqrt(table.numel())


def test_microgpt_as_described():
    """RMSNorm without gain on the summed embedding and in the blocks, no final norm, no bias, squared ReLU, untied."""
    model = build(micro_spec(**SMALL, n_layers=2), AndreaInit(), seed=0, dtype=torch.float64)
    matrices = ["attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.o_proj", "mlp.up", "mlp.down"]
    expected = ["embed.table", "embed.pos_table"]
    expected += [f"blocks.{layer}.{name}.weight" for layer in range(2) for name in matrices] + ["head.table"]
    assert [name for name, _ in model.named_parameters()] == expected

    def rms(x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()

    seen = taps_of(model, IDS)
    close = {"rtol": 1e-13, "atol": 1e-15}
    torch.testing.assert_close(seen["blocks.0.resid_pre"], rms(seen["embed"] + seen["pos_embed"]), **close)
    torch.testing.assert_close(seen["blocks.1.attn_in"], rms(seen["blocks.1.resid_pre"]), **close)
    torch.testing.assert_close(seen["blocks.1.mlp_in"], rms(seen["blocks.1.resid_mid"]), **close)
    torch.testing.assert_close(seen["blocks.1.mlp_act"], seen["blocks.1.mlp_pre"].clamp(min=0) ** 2, **close)
    assert torch.equal(seen["final_norm"], seen["blocks.1.resid_post"])
    torch.testing.assert_close(seen["logits"], seen["blocks.1.resid_post"] @ model.head.table.T, **close)
