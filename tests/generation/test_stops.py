"""Stop strings: found wherever tokens begin and end, nothing of them shown, and the text cut as by hand afterwards."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.specs import base, changed
from small import small_model
from unembed.errors import InputError, UsageError
from unembed.generation.sampling import GREEDY, Sampling
from unembed.generation.stops import StopMatcher
from unembed.generation.texts import Writing, continue_text, write
from unembed.tokenizers.characters import CharacterTokenizer
from unembed.tokenizers.training import train_bpe, train_bytes
from unembed.tokenizers.words import WordTokenizer

TEXT = "una niña ve 한국 y la niña come 🙂 pan. una niña ve pan y 한국 pan."


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The stated rule over a whole text: the first place where it ends with a stop string, and the longest one there."""
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not ends:
        return text, None
    end, _, stop = min(ends)
    return text[: end - len(stop)], stop


def pieces_of(text: str, sizes: list[int]) -> list[str]:
    found, at = [], 0
    for size in [*sizes, len(text)]:
        found.append(text[at : at + size])
        at += size
    return found


# --- the matcher alone ------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=400)
@given(
    text=st.text("ab한\n", max_size=24),
    stops=st.lists(st.text("ab한\n", min_size=1, max_size=5), max_size=4),
    sizes=st.lists(st.integers(0, 4), max_size=12),
)
def test_property_any_text_in_any_pieces_is_cut_as_by_hand(text, stops, sizes):
    """And what is shown at any moment stands in the final text: nothing has to be taken back."""
    expected, stop = cut(text, stops)
    matcher, shown = StopMatcher(stops), ""
    for piece in pieces_of(text, sizes):
        shown += matcher.feed(piece)
        assert expected.startswith(shown)
    assert (shown + matcher.finish(), matcher.found) == (expected, stop)


@pytest.mark.parametrize(
    ("stops", "text", "shown"),
    [
        (["aab"], "aaab", ["", "", "a", ""]),  # the second a may begin the stop string, when the first no longer can
        (["abcd", "bc"], "abce", ["", "", "a", ""]),
        (["abc", "b"], "abc", ["", "a", ""]),
        (["\n\n"], "a\nb\n\n", ["a", "", "\nb", "", ""]),
        ([], "ab", ["a", "b"]),
    ],
)
def test_what_is_held_back_character_by_character(stops, text, shown):
    matcher = StopMatcher(stops)
    assert [matcher.feed(c) for c in text] == shown


# --- in a text that a model writes ------------------------------------------------------------------------


def tokenizers():
    return {
        "characters": CharacterTokenizer.from_text(TEXT),
        "bytes": train_bytes(),
        "bpe": train_bpe(TEXT * 3, vocab_size=290),
        "words": WordTokenizer.from_text(TEXT),
    }


@pytest.fixture(scope="module")
def models():
    found = {}
    for name, tokenizer in tokenizers().items():
        found[name] = small_model(changed(base(), context_length=64, embedding__vocab_size=tokenizer.vocab_size))
        found[name].tokenizer = tokenizer
    return found


class Scripted:
    """Lets a model of random weights write a given text: the sampling draws these ids, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ids: list[int]) -> None:
        left = iter(ids)
        monkeypatch.setattr("unembed.generation.decode.draw", lambda probs, uniform: next(left))
        monkeypatch.setattr("unembed.generation.decode.greedy", lambda scores: next(left))


@pytest.mark.parametrize("kind", ["characters", "bytes", "bpe", "words"])
@pytest.mark.parametrize(
    "stops", [["niña"], ["한국 pan"], ["🙂"], ["e p", "국"], ["pan.", "un"], ["zebra"], ["ñ", "ña co"]]
)
def test_oracle_generate_everything_and_cut(models, monkeypatch, kind, stops):
    """Stop strings across tokens, pieces of bytes and characters of several bytes; the rule for ids is the stated one."""
    model, tokenizer = models[kind], models[kind].tokenizer
    ids = [int(i) for i in tokenizer.encode(TEXT).ids][:60]
    whole = tokenizer.decode(ids)
    expected, stop = cut(whole, stops)
    Scripted(monkeypatch, ids)
    writing, shown = Writing(model, ids=[0], stops=stops), ""
    for (news,) in write(model, [writing], n_tokens=len(ids), sampling=Sampling(), seeds=[0]):
        shown += news
        assert (" " * (kind == "words") + expected).startswith(shown)
    assert shown == writing.text
    assert writing.text.lstrip(" ") == expected  # words after a prompt begin with the space between them
    made = writing.continuation
    assert made.stopped == ("length" if stop is None else "stop")
    assert len(made.ids) == len(made.logprobs)
    # every token drawn is there, the last being the first with which the text holds the stop string
    assert made.ids == ids[: len(made.ids)]
    if stop is not None:
        assert stop in tokenizer.decode(made.ids)
        assert stop not in tokenizer.decode(made.ids[:-1])


def test_texts_stop_one_by_one_in_a_batch_and_as_they_do_alone(models):
    model = models["characters"]
    options = {"n_tokens": 30, "sampling": Sampling(temperature=2.0)}
    prompts, stops = ["una ", "pan", "niña ve"], ["a", " 한"]
    together = [Writing(model, prompt, stops=stops) for prompt in prompts]
    steps = list(write(model, together, seeds=[5, 6, 7], **options))
    assert {writing.continuation.stopped for writing in together} & {"stop"}
    for row, (prompt, seed) in enumerate(zip(prompts, (5, 6, 7), strict=True)):
        alone = continue_text(model, prompt, seed=seed, stops=stops, **options).values
        free = continue_text(model, prompt, seed=seed, **options).values
        assert together[row].values()["ids"] == alone["ids"] == free["ids"][: len(alone["ids"])]
        assert "".join(step[row] for step in steps) == together[row].text == alone["text"]
        assert alone["text"] == cut(free["text"], stops)[0]


def test_a_stop_string_in_the_prompt_does_not_count(models):
    values = continue_text(models["characters"], "una", n_tokens=3, sampling=GREEDY, seed=0, stops=["una"]).values
    assert (len(values["ids"]), values["stopped"]) == (3, "length")


def test_a_stop_string_on_the_last_token_is_told_as_stop(models, monkeypatch):
    tokenizer = models["characters"].tokenizer
    Scripted(monkeypatch, [int(i) for i in tokenizer.encode("pan").ids])
    values = continue_text(models["characters"], "y", n_tokens=3, sampling=GREEDY, seed=0, stops="an").values
    assert (values["text"], values["stopped"]) == ("p", "stop")


def test_what_was_held_back_comes_at_the_end(models, monkeypatch):
    tokenizer = models["characters"].tokenizer
    Scripted(monkeypatch, [int(i) for i in tokenizer.encode("pan").ids])
    writing = Writing(models["characters"], "y", stops=["ano"])
    steps = list(write(models["characters"], [writing], n_tokens=3, sampling=GREEDY, seeds=[0]))
    assert [news for (news,) in steps] == ["p", "", "", "an"]
    assert writing.continuation.stopped == "length"


def test_half_a_character_at_the_end_is_one_mark_and_can_be_a_stop_string(models, monkeypatch):
    ids = [int(i) for i in models["bytes"].tokenizer.encode("a한").ids][:3]
    for stops, expected in (([], ("a\ufffd", "length")), (["\ufffd"], ("a", "stop"))):
        Scripted(monkeypatch, ids)
        values = continue_text(models["bytes"], "b", n_tokens=3, sampling=GREEDY, seed=0, stops=stops).values
        assert (values["text"], values["stopped"]) == expected


def test_the_name_of_a_special_token_stops_at_that_token_too(models, monkeypatch):
    """It has no text of its own, so no text ever holds its name; spelled in letters it is an ordinary stop string."""
    tokenizer = models["words"].tokenizer
    Scripted(monkeypatch, [0, tokenizer.unknown_id, 1])
    values = continue_text(models["words"], "pan.", n_tokens=3, sampling=GREEDY, seed=0, stops=["<unk>"]).values
    assert (values["ids"], values["stopped"]) == ([0, tokenizer.unknown_id], "stop")
    assert "<unk>" not in values["text"]


@pytest.mark.parametrize(
    ("stops", "message"),
    [
        ([""], r"stop is ''; a stop string is a text of at least one character"),
        ("", r"stop is ''; a stop string"),
        ([3], r"stop is 3; a stop string"),
        (None, r"stop is None; a stop string"),
        ([b"a"], r"stop is b'a' \(bytes\); a stop string"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_messages(models, stops, message):
    with pytest.raises(UsageError, match=message):
        continue_text(models["words"], "pan.", n_tokens=1, sampling=GREEDY, seed=0, stops=stops)


def test_stop_strings_need_a_tokenizer():
    with pytest.raises(InputError, match="this model has no tokenizer, so text has no ids"):
        continue_text(small_model(), ids=[1], n_tokens=1, sampling=GREEDY, seed=0, stops=["a"])
