"""The functions behind `import unembed` that go on with texts: one call for each thing that a notebook wants.

They are told apart from the others in models.py only because they have so many options in common. The next file to read is
generation/texts.py.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from unembed.arguments import refuse_both, refuse_no_flag
from unembed.results import Result

if TYPE_CHECKING:
    from torch import Tensor

    from unembed.model.transformer import Transformer


def generate(
    model: "Transformer",
    prompt: str = "",
    *,
    tokens: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    stop: str | Sequence[str] = (),
    seed: int = 0,
    past_context: str = "slide",
    ids: "Sequence[int] | Tensor | None" = None,
    weights: str | None = None,
    lookup: int = 0,
    parse_specials: bool = False,
) -> Result:
    """Continues a text. Values: `prompt_ids`, `ids`, `text`, `logprobs` (nats, unfiltered), `stopped`, `n_slides`.

    temperature 0 is greedy. The text ends before a `stop` string; the tokens that spell it stay among the ids. Instead of a
    text, `ids` may be given, which are read as they are: with them a model needs no tokenizer, and `text` is None.
    `weights` makes a model by `with_weights` for this one text; for several texts, make it once. `lookup` > 0 guesses so many
    tokens at a time out of the text itself when temperature is 0: the same ids, sooner where a text repeats itself.
    `parse_specials` reads the names of special tokens in the text (`<|im_start|>`) as those tokens, not as letters.
    Raises: InputError when the model has no tokenizer; UsageError for impossible options.
    """
    from unembed.generation.checks import check_past_context
    from unembed.generation.sampling import Sampling
    from unembed.generation.texts import continue_text

    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty
    )
    refuse_both("generate", prompt, ids)
    refuse_no_flag("generate", "parse_specials", parse_specials)
    return continue_text(
        model if weights is None else with_weights(model, weights),
        prompt,
        n_tokens=tokens,
        sampling=sampling,
        seed=seed,
        past_context=check_past_context(past_context),
        stops=stop,
        ids=ids,
        lookup=lookup,
        parse_specials=parse_specials,
    )


def generate_many(
    model: "Transformer",
    prompts: Sequence[str],
    *,
    tokens: int = 100,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    stop: str | Sequence[str] = (),
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    past_context: str = "slide",
    parse_specials: bool = False,
) -> Result:
    """Continues many texts side by side: the table `samples` has a row for each prompt, with what `generate` gives.

    Prompt n has the seed `seed` + n unless `seeds` holds one for each: the same seed gives the same text as alone.
    Raises: as `generate` does.
    """
    from unembed.generation.checks import check_past_context, check_prompts, check_seed, check_seeds, seed_of
    from unembed.generation.sampling import Sampling
    from unembed.generation.texts import Writing, table_of, write_all

    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty
    )
    refuse_no_flag("generate_many", "parse_specials", parse_specials)
    texts, first = check_prompts(prompts), check_seed(seed)
    chosen = check_seeds(seeds, len(texts)) if seeds is not None else [seed_of(first, n) for n in range(len(texts))]
    writings = [Writing(model, text, stops=stop, parse_specials=parse_specials) for text in texts]
    write_all(
        model, writings, n_tokens=tokens, sampling=sampling, seeds=chosen, past_context=check_past_context(past_context)
    )
    return table_of(list(zip(texts, chosen, strict=True)), writings)


def candidates(
    model: "Transformer",
    prompt: str = "",
    *,
    tokens: int = 1,
    top: int = 10,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    stop: str | Sequence[str] = (),
    seed: int = 0,
    past_context: str = "slide",
    ids: "Sequence[int] | Tensor | None" = None,
    parse_specials: bool = False,
) -> Result:
    """Continues a text as `generate` does, and shows the `top` candidates of each draw: what was cut, by which rule.

    See generation/candidates.py for the columns of its tables `candidates` and `steps`. Raises: as `generate` does.
    """
    from unembed.generation.candidates import look
    from unembed.generation.checks import check_past_context
    from unembed.generation.sampling import Sampling
    from unembed.generation.texts import Writing

    sampling = Sampling(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty
    )
    refuse_both("candidates", prompt, ids)
    refuse_no_flag("candidates", "parse_specials", parse_specials)
    writing = Writing(model, prompt, ids=ids, stops=stop, parse_specials=parse_specials)
    return look(
        model,
        writing,
        n_top=top,
        n_tokens=tokens,
        sampling=sampling,
        seed=seed,
        past_context=check_past_context(past_context),
    )


def with_weights(model: "Transformer", weights: str) -> "Transformer":
    """A model that writes the same text sooner, or nearly the same: `weights` is float32, bfloat16, float16 or int8.

    It goes wherever a model does and shares the given one's parameters, which stay as they are; what a single text's new
    tokens are computed with lies beside them. For float32 that is the blocks' own numbers, as many bytes again; the others
    round it, at half and a quarter of the memory: `rounding_error` of generation/weights/rounding.py tells what that does to
    the scores. See docs/decoding.md. Once the given model is changed (trained, other weights loaded) a rounded one refuses
    its next token: make it again; a float32 one goes on with the new numbers, as slowly as the model itself.
    Raises: UsageError for another kind of weights, or one that cannot be had here.
    """
    from unembed.generation.checks import check_model
    from unembed.generation.weights import copies, packing

    return copies.with_weights(check_model(model), packing.check_kind(weights))
