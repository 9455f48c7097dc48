"""English: a verb that agrees with a distant subject and with the time, and a reflexive that agrees with the subject.

    today  the girls  near the dog behind the man  see     themselves .
    tense  ^ head     distractors                  ^ tense, number
                                                           ^ person, number, gender

English shows person and number only in the present and in `be`, so reflexives carry the agreement in the other tenses.
lexicon_en.py holds the stems of the large grammar. Next: korean.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from unembed.corpora.grammar import lexicon_en
from unembed.corpora.grammar.automaton import Automaton
from unembed.corpora.grammar.builder import Builder, Cell, Ends, zipf
from unembed.corpora.grammar.forms_en import inflect, plural

TENSES = ("past", "present", "future")
NUMBERS = ("singular", "plural")
PRONOUNS = (
    ("I", "1", "singular", "-", "myself"),
    ("you", "2", "singular", "-", "yourself"),
    ("he", "3", "singular", "masculine", "himself"),
    ("she", "3", "singular", "feminine", "herself"),
    ("we", "1", "plural", "-", "ourselves"),
    ("they", "3", "plural", "-", "themselves"),
)
SELVES = {"masculine": ["himself"], "feminine": ["herself"], "neuter": ["itself"], "-": ["himself", "herself"]}
POSSESSIVES = {"myself": "my", "yourself": "your", "himself": "his", "herself": "her", "itself": "its"}
POSSESSIVES |= {"ourselves": "our", "themselves": "their"}
BE = {("1", "singular"): ("was", "am"), ("3", "singular"): ("was", "is")}


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of life: who acts in it (by number and gender), what they do, to what, and how they are."""

    heads: Mapping[tuple[str, str], Cell]
    adjectives: Cell
    verbs: Mapping[str, Cell]
    objects: Cell


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """The words of one size of the grammar, already inflected; verbs have the forms `base`, `s` and `past`.

    Shares: of pronouns among subjects; of one more phrase after each; of `be`, and of verbs with an object, among verbs;
    of possessives before objects.
    """

    times: Mapping[str, Cell]
    fields: Mapping[str, Field]
    prepositions: Cell
    degrees: Cell
    manners: Cell
    reflexive_verbs: Mapping[str, Cell]
    relatives: Mapping[str, Cell]
    pronoun_share: float
    more_share: float
    be_share: float
    transitive_share: float
    possessive_share: float


def mini() -> Lexicon:
    """At most 62 words: six nouns, three verbs besides `be`, and every pronoun."""
    nouns = {"masculine": ["boy", "man"], "feminine": ["girl", "woman"], "neuter": ["dog", "cat"]}
    moods = dict.fromkeys(("happy", "tired", "hungry"), 1.0)
    return Lexicon(
        times={"past": {"yesterday": 1.0}, "present": {"today": 1.0}, "future": {"tomorrow": 1.0}},
        fields={"-": Field(heads=_by_number(nouns), adjectives=moods, verbs={}, objects={})},
        prepositions={"with": 1.0, "near": 1.0, "behind": 1.0},
        degrees={"very": 1.0},
        manners={},
        reflexive_verbs=_by_form("see wash help"),
        relatives={},
        pronoun_share=0.3,
        more_share=0.4,
        be_share=0.2,
        transitive_share=0.0,
        possessive_share=0.0,
    )


def large() -> Lexicon:
    """About 1,000 words: six fields of life, each with its own people, moods, deeds and things."""
    fields = {}
    for name, (people, moods, deeds, things) in lexicon_en.FIELDS.items():
        single = zipf(things.split())
        fields[name] = Field(
            # A singer may be a man or a woman: what the reflexive says is then free.
            heads=_by_number({"-": people.split()}),
            adjectives=zipf(moods.split()),
            verbs=_by_form(deeds),
            objects={**single, **{plural(word): weight for word, weight in single.items()}},
        )
    walking = _by_form(lexicon_en.RELATIVES)
    return Lexicon(
        times={tense: zipf(words.split()) for tense, words in lexicon_en.TIMES.items()},
        fields=fields,
        prepositions=zipf(lexicon_en.PREPOSITIONS.split()),
        degrees=zipf(lexicon_en.DEGREES.split()),
        manners=zipf(lexicon_en.MANNERS.split()),
        reflexive_verbs=_by_form(lexicon_en.REFLEXIVE_VERBS),
        relatives={"singular": walking["s"], "plural": walking["base"]},
        pronoun_share=0.2,
        more_share=0.25,
        be_share=0.35,
        transitive_share=0.35,
        possessive_share=0.7,
    )


def _by_number(nouns: Mapping[str, list[str]]) -> dict[tuple[str, str], Cell]:
    singular: dict[tuple[str, str], Cell] = {("singular", gender): zipf(words) for gender, words in nouns.items()}
    return singular | {("plural", gender): zipf([plural(word) for word in words]) for gender, words in nouns.items()}


def _by_form(verbs: str) -> dict[str, Cell]:
    inflected = [inflect(verb) for verb in verbs.split()]
    return {form: zipf([forms[form] for forms in inflected]) for form in ("base", "s", "past")}


def automaton(size: str) -> Automaton:
    """Makes the automaton of the module's drawing in a size, "mini" or "large"."""
    return build(mini() if size == "mini" else large())


def build(lexicon: Lexicon) -> Automaton:
    """Makes the automaton of a lexicon: time, subject, modifiers, verb, and what the verb asks for."""
    b = Builder()
    rest = _Rest(b, lexicon)
    for tense in TENSES:
        time = b.time(tense, lexicon.times[tense], 1 / len(TENSES))
        for pronoun, person, number, gender, itself in PRONOUNS:
            features = {"tense": tense, "person": person, "number": number, "gender": gender, "topic": "-"}
            decided = ("person", "number", "gender") if gender != "-" else ("person", "number")
            head = b.word(
                time * (lexicon.pronoun_share / len(PRONOUNS)),
                [pronoun],
                part="pronoun",
                controls=decided,
                features=features,
            )
            rest.predicate(_modifiers(b, lexicon, head, features), features, [itself])
        article = b.word(time * (1 - lexicon.pronoun_share), ["the"], part="article", features={"tense": tense})
        forms = [(topic, *form) for topic, field in lexicon.fields.items() for form in field.heads]
        for topic, number, gender in forms:
            features = {"tense": tense, "person": "3", "number": number, "gender": gender, "topic": topic}
            head = b.word(
                article * (1 / len(forms)),
                lexicon.fields[topic].heads[number, gender],
                part="noun",
                controls=("person", "number", "topic") + (() if gender == "-" else ("gender",)),
                features=features,
            )
            itself_or = SELVES[gender] if number == "singular" else ["themselves"]
            rest.predicate(_modifiers(b, lexicon, head, features), features, itself_or)
    rest.finish()
    return b.build()


def _modifiers(b: Builder, lexicon: Lexicon, head: Ends, features: Mapping[str, str]) -> Ends:
    """Phrases of preposition and noun after the head: none (1 in 10) or any number, each with its own number."""
    preposition = b.word(head * 0.9, lexicon.prepositions, part="preposition", features=features)
    article = b.word(preposition, ["the"], part="distractor article", features=features)
    ends = head * 0.1
    for number in NUMBERS:
        cells = [field.heads[form] for field in lexicon.fields.values() for form in field.heads if form[0] == number]
        nouns = {word: weight for cell in cells for word, weight in cell.items()}
        noun = b.word(article * 0.5, nouns, part="distractor", features=features)
        if lexicon.relatives:
            that = b.word(noun * 0.1, ["that"], part="that", features=features)
            noun = noun * 0.9 + b.word(that, lexicon.relatives[number], part="inner verb", features=features)
        b.join(noun * lexicon.more_share, preposition)
        ends += noun * (1 - lexicon.more_share)
    return ends


# The reflexives that fit a subject, and the features that they show.
_Owner = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


class _Rest:
    """The sentence from the verb on. What may follow depends on less than the verb did: it is collected, written once."""

    def __init__(self, b: Builder, lexicon: Lexicon) -> None:
        self.b, self.lexicon = b, lexicon
        self.moods: dict[str, Ends] = {}
        self.selves: dict[_Owner, Ends] = {}
        self.acts: dict[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]], Ends] = {}

    def predicate(self, ends: Ends, features: Mapping[str, str], itself: list[str]) -> None:
        """`be` and an adjective, a verb and its reflexive, or a verb and its object, in the tense of `features`."""
        b, lexicon = self.b, self.lexicon
        person, number, tense = features["person"], features["number"], features["tense"]
        be, form, part = "be", "base", "infinitive"
        # What the form shows, and what it tells a reflexive that follows: past and future say nothing of the subject.
        agrees: tuple[str, ...] = ()
        be_agrees, told = agrees, agrees
        if tense == "future":
            ends = b.word(ends, ["will"], part="verb", agrees=("tense",), features=features)
        else:
            be, part = BE.get((person, number), ("were", "are"))[TENSES.index(tense)], "verb"
            be_agrees = ("tense", "person", "number")
            form, agrees = "past", ("tense",)
            if tense == "present":
                form = "s" if (person, number) == ("3", "singular") else "base"
                agrees, told = be_agrees, ("person", "number")
        topics = list(lexicon.fields) if features["topic"] == "-" else [features["topic"]]
        state = b.word(ends * lexicon.be_share, [be], part=part, agrees=be_agrees, features=features)
        act_share = 1 - lexicon.be_share - lexicon.transitive_share
        verb = b.word(
            ends * act_share, lexicon.reflexive_verbs[form], part=part, agrees=agrees, controls=told, features=features
        )
        itself_features = tuple((name, features[name]) for name in ("person", "number", "gender"))
        owner = (tuple(itself), itself_features)
        self.selves[owner] = self.selves.get(owner, Ends()) + verb
        for topic in topics:
            self.moods[topic] = self.moods.get(topic, Ends()) + state * (1 / len(topics))
            if lexicon.transitive_share:
                act = b.word(
                    ends * (lexicon.transitive_share / len(topics)),
                    lexicon.fields[topic].verbs[form],
                    part=part,
                    agrees=agrees,
                    controls=told,
                    features={**features, "topic": topic},
                )
                self.acts[topic, *owner] = self.acts.get((topic, *owner), Ends()) + act

    def finish(self) -> None:
        """Writes reflexives, adjectives and objects, each after everything that leads to it."""
        b, lexicon = self.b, self.lexicon
        for (itself, features), ends in self.selves.items():
            b.stop(b.word(ends, list(itself), part="reflexive", agrees=_shown(features), features=dict(features)))
        for topic, ends in self.moods.items():
            degree = b.word(ends * 0.4, lexicon.degrees, part="degree", features={"topic": topic})
            b.stop(
                b.word(
                    ends * 0.6 + degree, lexicon.fields[topic].adjectives, part="adjective", features={"topic": topic}
                )
            )
        plain: dict[str, Ends] = {}
        owned: dict[str, Ends] = {}
        for (topic, itself, features), ends in self.acts.items():
            whose = b.word(
                ends * lexicon.possessive_share,
                [POSSESSIVES[word] for word in itself],
                part="possessive",
                agrees=_shown(features),
                features={**dict(features), "topic": topic},
            )
            owned[topic] = owned.get(topic, Ends()) + whose
            plain[topic] = plain.get(topic, Ends()) + ends * (1 - lexicon.possessive_share)
        for topic, ends in plain.items():
            article = b.word(ends, ["the"], part="object article", features={"topic": topic})
            noun = b.word(
                article + owned[topic], lexicon.fields[topic].objects, part="object", features={"topic": topic}
            )
            b.stop(noun * 0.8 + b.word(noun * 0.2, lexicon.manners, part="manner"))


def _shown(features: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """What a reflexive or possessive shows: the gender too where the subject is one person or thing that has one."""
    known = dict(features)
    is_gendered = known["number"] == "singular" and known["gender"] != "-"
    return ("person", "number", "gender") if is_gendered else ("person", "number")
