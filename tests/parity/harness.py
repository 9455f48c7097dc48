"""What a parity test needs: a tiny random model of transformers in float64 to the last digit, its folder, and ours of it.

A family's own file (llama.py, ...) is data: which config class, which values, which fields are excused. The tests that run
over all of them are test_forward.py, test_export.py and test_accounts.py. transformers is imported when the first model
is made, since that takes seconds.
"""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from unembed.checkpoints.families import FAMILIES
from unembed.checkpoints.families.base import Family

N_TOKENS = 37
TOLERANCE = 1e-10


class Parity(NamedTuple):
    """One family's tests.

    config, model  the names of transformers' classes
    base           a config in which every field that can be is off its default
    cases          by name, what a further case changes in `base`
    excused        fields of the config class that no case varies, and why
    equal          names of parameters that older files store once and transformers keeps twice in an untied model
    gain           about what a norm's stored gain is drawn: 1, or 0 where the model adds the 1
    optional       keys of a file whose absence means something else than what `base` says, and why that cannot be told
    null           keys for which null is a value like others
    """

    family: str
    config: str
    model: str
    base: Mapping[str, Any]
    cases: Mapping[str, Mapping[str, Any]]
    excused: Mapping[str, str] = {}
    equal: tuple[tuple[str, str], ...] = ()
    optional: Mapping[str, str] = {}
    null: tuple[str, ...] = ()
    gain: float = 1.0

    @property
    def is_causal(self) -> bool:
        """True for models that predict the next token."""
        return self.model.endswith("ForCausalLM") or self.model.endswith("LMHeadModel")

    def changed(self, case: str) -> dict[str, Any]:
        """The config of a case; a key changed to `...` is left out."""
        made = {**self.base, **self.cases.get(case, {})}
        return copy.deepcopy({key: value for key, value in made.items() if value is not ...})

    @property
    def all_cases(self) -> tuple[str, ...]:
        """`base` and the others."""
        return ("base", *self.cases)

    def ours(self) -> Family:
        """The family under test."""
        return next(family for family in FAMILIES if family.name == self.family)


class Reference(NamedTuple):
    """transformers' model of a case, and the folder that it saved itself to."""

    parity: Parity
    model: Any
    folder: Path


# Varied by no case of any family.
EXCUSED_EVERYWHERE = {
    "transformers_version": "written by the program",
    "architectures": "written by the program",
    "dtype": "each test names its own",
    "model_type": "is the family",
    "_name_or_path": "tells where a file came from",
    "output_hidden_states": "asked for in the call",
    "output_attentions": "what is returned, not what is computed",
    "return_dict": "what is returned, not what is computed",
    "is_encoder_decoder": "refused when true; test_refusals.py",
    "problem_type": "belongs to other heads",
    "add_cross_attention": "refused when true; test_refusals.py",
}

# In every base: they change nothing, and the load has to know that.
WITHOUT_EFFECT = {
    "initializer_range": 0.5,
    "use_cache": False,
    "bos_token_id": 4,
    "eos_token_id": 5,
    "chunk_size_feed_forward": 1,
    "id2label": {0: "a", 1: "b", 2: "c"},
    "label2id": {"a": 0, "b": 1, "c": 2},
}


class InFloat64(TorchFunctionMode):
    """Turns every request for float32 into one for float64, so that a float64 model is one in its tables and norms too."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if one is torch.float32 else one for one in args)
        kwargs = {key: torch.float64 if one is torch.float32 else one for key, one in (kwargs or {}).items()}
        return func(*args, **kwargs)


@contextlib.contextmanager
def exactly(dtype: torch.dtype) -> Iterator[None]:
    """Everything inside is computed in `dtype`, whatever it asks for, if that is float64; otherwise as it is written."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype if dtype == torch.float64 else torch.float32)
    try:
        with InFloat64() if dtype == torch.float64 else contextlib.nullcontext(), torch.no_grad():
            yield
    finally:
        torch.set_default_dtype(before)


def quiet_transformers() -> Any:
    """The module, with its log and its progress bars off."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def build(parity: Parity, case: str, dtype: torch.dtype, folder: Path) -> Reference:
    """A random model of a case, saved; the same numbers, rounded, for each dtype."""
    transformers = quiet_transformers()
    with exactly(torch.float64), torch.random.fork_rng():
        config = getattr(transformers, parity.config)(**parity.changed(case), attn_implementation="eager")
        model = getattr(transformers, parity.model)(config).eval().to(torch.float64)
        generator = torch.Generator().manual_seed(1)
        parameters = dict(model.named_parameters())
        for name in sorted(parameters):
            parameter = parameters[name]
            parameter.normal_(0.0, 0.3, generator=generator)
            if parameter.ndim == 1 and name.endswith("weight"):  # a norm's gain
                parameter.add_(parity.gain)
        for copied, original in parity.equal:
            if copied in parameters:
                parameters[copied].copy_(parameters[original])
    if dtype != torch.float64:
        with exactly(dtype):
            state = {name: tensor.to(dtype) for name, tensor in model.state_dict().items()}
            # built anew: the tables that transformers keeps as buffers have to be made in this dtype
            model = getattr(transformers, parity.model)(config).eval().to(dtype)
            model.load_state_dict(state, assign=False)
    model.save_pretrained(folder)
    return Reference(parity, model, folder)


def token_ids(vocab_size: int, *shape: int) -> torch.Tensor:
    """Random ids; none of the first four, which some models take for padding."""
    return torch.randint(4, vocab_size, shape, generator=torch.Generator().manual_seed(2))
