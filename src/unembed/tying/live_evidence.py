"""What a model in memory tells of its tie, beside the two matrices themselves: gradients, other uses, copies, wrappers, export.

Each function looks at one thing and gives checks; nothing is written. The next file to read is optimizer_evidence.py.
"""

import sys
from collections.abc import Iterator

from torch import Tensor, nn

from unembed.checkpoints.foreign.export import family_for, form_of
from unembed.errors import SpecError
from unembed.model.transformer import Transformer
from unembed.tying.evidence import Check, Meaning, count_of, is_sharded, joined, local, unwrapped
from unembed.tying.memory import sharing
from unembed.tying.quantised import fit, is_quantised
from unembed.tying.relation import Relation, compare
from unembed.tying.tables import Pair, TellsTables, Use, all_names, held_tensors

_FRESH = ("equal_copy", "transposed_copy", "cast_copy", "quantised_copy")
# Below this correlation whole numbers are of another matrix.
_LIKE = 0.5


def meaning_of(root: nn.Module, means_tied: bool | None) -> Meaning:
    """Whether the model is meant to be tied: what the caller says, the spec, or the config of a model of transformers."""
    if means_tied is not None:
        return Meaning(means_tied, "the caller")
    if isinstance(root, Transformer):
        return Meaning(root.spec.ties_embeddings, "the spec")
    config = getattr(root, "config", None)
    flag = getattr(config, "tie_word_embeddings", None)
    return Meaning(flag if isinstance(flag, bool) else None, "the config" if isinstance(flag, bool) else "")


def gradients(pair: Pair, relation: Relation | None) -> list[Check]:
    """Whether both uses teach the matrix."""
    head = pair.head
    if head is None or relation is None:
        return []
    if pair.computed is not None:
        if not pair.computed.moves or not pair.embed.tensor.requires_grad:
            return []
        told = "leads back to the table" if pair.computed.learns else "ends before it: scores teach the table nothing"
        told = f"the gradient of the scoring matrix {told}"
        return [Check("gradient", "ok" if pair.computed.learns else "broken", told)]
    if relation.kind == "detached_view":
        frozen = head if not head.tensor.requires_grad else pair.embed
        use = "scores teach" if frozen is head else "lookups teach"
        return [Check("gradient", "broken", f"{frozen.name} takes no gradient, so {use} the table nothing")]
    if relation.kind == "two_parameters":
        return [Check("gradient", "broken", "each of the two parameters gets the gradient of its own use alone")]
    learns = [use.name for use in (pair.embed, head) if use.tensor.requires_grad]
    told = (
        f"both uses reach {pair.embed.name}" if relation.moves else f"each use reaches its own matrix: {joined(learns)}"
    )
    return [Check("gradient", "ok", told if learns else "frozen: neither use takes a gradient")]


def uses(pair: Pair) -> list[Check]:
    """Every place of the model at which the table is held, where there are more than the two."""
    names = all_names(pair.root, pair.embed.tensor)
    known = {pair.embed.name} | ({pair.head.name} if pair.head is not None else set())
    more = [name for name in names if name not in known]
    return [Check("uses", "ok", f"the table is also {joined(more)}")] if more else []


def copies(pair: Pair) -> list[Check]:
    """Matrices elsewhere in the model that were made from the table or the head, and whether they still agree with it."""
    sources = [pair.embed, *([pair.head] if pair.head is not None and pair.computed is None else [])]
    known = {id(use.tensor) for use in sources}
    found: list[Check] = []
    for name, tensor in held_tensors(pair.root):
        if id(tensor) in known or tensor.ndim != 2:
            continue
        known.add(id(tensor))
        if (check := _copy_of(sources, name, tensor)) is not None:
            found.append(check)
    return found


def _copy_of(sources: list[Use], name: str, tensor: Tensor) -> Check | None:
    """The head's copies are looked for first: a table that decodes is made from what scores."""
    fitting = [use for use in reversed(sources) if tensor.shape in (use.tensor.shape, use.tensor.shape[::-1])]
    for use in fitting:
        shared = sharing(use.tensor, tensor).kind
        if shared in ("alias", "transposed"):
            return Check("copies", "ok", f"{name} is a view of {use.name} and follows it")
    stale: Check | None = None
    for use in fitting:
        if local(tensor).is_meta or local(use.tensor).is_meta:
            continue
        state = _state_of(local(use.tensor), local(tensor))
        if state is None:
            continue
        if isinstance(tensor, nn.Parameter):
            word = "an equal copy" if state == "fresh" else "like a copy that drifted apart"
            return Check("copies", "unknown", f"{name}, a parameter of its own, is {word} of {use.name}")
        if state == "fresh":
            return Check("copies", "ok", f"{name} is a copy of {use.name}, fresh now and stale after the next step")
        stale = stale or Check(
            "copies", "broken", f"{name} is a stale copy of {use.name}: make it anew after each step"
        )
    return stale


def _state_of(table: Tensor, other: Tensor) -> str | None:
    """fresh or stale where the other was made from the table, None where it is another matrix."""
    if is_quantised(table):
        return None
    if is_quantised(other):
        turned = other if other.shape == table.shape else other.T
        found = fit(table, turned)
        return "fresh" if found.is_fresh else "stale" if found.correlation > _LIKE else None
    if not other.is_floating_point():
        return None
    kind = compare(table, other).kind
    return "fresh" if kind in _FRESH else "stale" if kind == "drifted" else None


def wrappers(module: nn.Module, pair: Pair, relation: Relation | None) -> list[Check]:
    """The compiled and the sharded model, held against the one inside."""
    return [*_compiled(module), *_sharded(pair, relation)]


def _compiled(module: nn.Module) -> Iterator[Check]:
    dynamo = sys.modules.get("torch._dynamo.eval_frame")
    if dynamo is None:
        return
    inside = [name for name, one in module.named_modules() if isinstance(one, dynamo.OptimizedModule)]
    if not inside:
        return
    original = {id(one) for one in unwrapped(module).parameters()}
    n_other = sum(id(one) not in original for one in module.parameters())
    where = "the model" if inside[0] == "" else joined(inside)
    told = f"{where} is compiled and uses the original's {count_of(len(original), 'parameter')}"
    yield Check(
        "compiled", "ok" if not n_other else "broken", told if not n_other else f"{n_other} are not the original's"
    )


def _sharded(pair: Pair, relation: Relation | None) -> list[Check]:
    tensors = [use.tensor for use in (pair.embed, pair.head) if use is not None]
    parts = [is_sharded(one) for one in tensors]
    if not any(parts):
        return []
    if len(tensors) == 1 or relation is None or relation.kind == "same_parameter":
        return [Check("sharded", "ok", f"one sharded parameter, of which {list(local(tensors[0]).shape)} is here")]
    if not all(parts):
        which = pair.embed.name if parts[0] else pair.head.name if pair.head is not None else ""
        return [Check("sharded", "unknown", f"{which} is sharded and the other matrix is not")]
    told = "two sharded parameters; compared are the parts of this process"
    return [Check("sharded", "unknown", told)]


def export(pair: Pair, relation: Relation | None, meaning: Meaning) -> list[Check]:
    """What a file for transformers would hold."""
    if isinstance(pair.root, Transformer):
        return [_own_export(pair.root, relation)]
    if pair.head is None or relation is None or pair.computed is not None or relation.moves is None:
        return []
    if isinstance(pair.root, TellsTables):
        return _their_export(pair.root, pair.head, relation, meaning)
    if relation.kind == "same_parameter" and len(names := all_names(pair.root, pair.embed.tensor)) > 1:
        told = f"state_dict() lists the one table as {joined(names)}; safetensors takes it under one name alone"
        return [Check("export", "ok", told)]
    return []


def _own_export(model: Transformer, relation: Relation | None) -> Check:
    # asked of the spec alone: the parameters may be no longer those it names
    try:
        spec, family, why = form_of(model.spec, family_for)
    except SpecError:
        tables = "one table" if model.spec.ties_embeddings else "two tables"
        return Check(
            "export", "unknown", f"no family of transformers describes this model; our own file holds {tables}"
        )
    names = [rule.theirs for rule in family.rules(spec) if rule.theirs in (family.embed, family.head)]
    told = f"a file for transformers ({family.name}) would hold {joined(names)}" + (f"; {why}" if why else "")
    if model.spec.ties_embeddings and relation is not None and relation.moves is False:
        return Check("export", "broken", f"{told}; the head's own matrix would be lost")
    is_right = len(names) == (1 if model.spec.ties_embeddings else 2)
    return Check("export", "ok" if is_right else "broken", told)


def _their_export(root: nn.Module, head: Use, relation: Relation, meaning: Meaning) -> list[Check]:
    if not relation.moves:
        if meaning.tied and relation.kind == "equal_copy":
            return [Check("export", "unknown", "both matrices are written, and become one when they are loaded")]
        if meaning.tied:
            told = f"both matrices are written, and a loader that believes the config throws {head.name} away"
            return [Check("export", "unknown", told)]
        return [Check("export", "ok", "save_pretrained writes both matrices")]
    if meaning.tied is False:
        told = "save_pretrained writes the table alone, and loading that gives a head at random values"
        return [Check("export", "broken", told)]
    keys = getattr(root, "_tied_weights_keys", None) or ()
    if meaning.tied and head.name in keys:
        return [Check("export", "ok", f"save_pretrained writes the table once and leaves {head.name} out")]
    return [Check("export", "unknown", f"save_pretrained was not told that {head.name} may be left out")]
