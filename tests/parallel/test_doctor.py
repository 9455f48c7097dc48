"""The doctor on models that two processes share (A03): tied kept, a tie lost by sharding, a tie lost by filling too late.

What it says is held against what the model does: the table's rows are doubled on every process, and the scores looked at.
"""

import pytest

from parallel.ranks import Ranks

pytestmark = pytest.mark.slow
TIED = "Tied: one parameter, wte.weight, embeds and scores."
COPY = (
    "Not tied: lm_head.weight is an equal copy of wte.weight and will drift apart from it with the first training step, "
    "although the caller says tied."
)
TWO = "Not tied: wte.weight and lm_head.weight are two matrices"
PARTS = "two sharded parameters; compared are the parts of this process"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    with Ranks(tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks.call(2, "examined")


@pytest.mark.parametrize(
    ("case", "verdict", "sharded", "follows"),
    [
        ("whole", TIED, "one sharded parameter, of which [{rows}, 12] is here", True),
        ("apart", COPY, PARTS, False),
        ("late", TIED, "one sharded parameter, of which [{rows}, 12] is here", True),
        ("too late", f"{TWO}, although the caller says tied.", PARTS, False),
        ("untied", f"{TWO}.", PARTS, False),
        ("ddp", TIED, None, None),
        ("ddp, untied", f"{TWO}, although the caller says tied.", None, None),
    ],
)
def test_every_process_is_told_what_the_model_does(found, case, verdict, sharded, follows):
    for each, rows in zip(found, (7, 6), strict=True):
        expected = None if sharded is None else sharded.format(rows=rows)
        assert each[case] == {"verdict": verdict, "sharded": expected, "follows": follows}


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_our_own_model_in_training_is_tied_and_its_optimizer_steps_it_once(found, kind):
    for each in found:
        assert each[f"ours, {kind}"]["verdict"] == "Tied: one parameter, embed.table, embeds and scores."
        checks = {check["name"]: check for check in each[f"ours, {kind}"]["checks"]}
        assert checks["optimizer"]["detail"] == "embed.table is once in group 0 (weight decay 0.1)"
        assert not [check for check in checks.values() if check["status"] == "broken"]
