"""Spanish: a verb that agrees with a distant subject in person and number, an adjective that agrees in gender.

    ayer   las niñas   con el gato de los niños   volvieron   muy cansadas .
    tense  ^ head      distractors                ^ tense, person, number
                                                              ^ gender, number

The head noun comes first; prepositional phrases with nouns of any gender and number lie between it and the verb, and the
time word that decides the tense stands at the very beginning. Inflection is by rule; lexicon_es.py holds the stems of the
large grammar. The written Spanish is that of Latin America: five persons, no `vosotros`. Next: english.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from unembed.corpora.grammar import lexicon_es
from unembed.corpora.grammar.automaton import Automaton
from unembed.corpora.grammar.builder import Builder, Cell, Ends, zipf
from unembed.corpora.grammar.forms_es import ESTAR, FORMS, PERSONS, TENSES, conjugate, genders, plural

ARTICLES = dict(zip(FORMS, ("el", "los", "la", "las"), strict=True))
PRONOUNS = (
    ("yo", "1", "singular", "-"),
    ("tú", "2", "singular", "-"),
    ("nosotros", "1", "plural", "masculine"),
    ("nosotras", "1", "plural", "feminine"),
)
Gendered = Mapping[tuple[str, str], Cell]


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of life: who acts in it, what they do, to what, and how they are while doing it."""

    heads: Gendered
    adjectives: Gendered
    verbs: Mapping[tuple[str, str, str], Cell]
    objects: Gendered


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """The words of one size of the grammar, already inflected; `copulas` take an adjective."""

    times: Mapping[str, Cell]
    copulas: Mapping[tuple[str, str, str], Cell]
    fields: Mapping[str, Field]
    prepositions: Cell
    degrees: Cell
    manners: Cell
    relatives: Mapping[str, Cell]
    transitive_share: float


def mini() -> Lexicon:
    """At most 62 words: two nouns, two adjectives and two verbs in all their forms."""
    people = Field(heads=_by_form("niño gato"), adjectives=_by_form("cansado contento"), verbs={}, objects={})
    return Lexicon(
        times={"past": {"ayer": 1.0}, "present": {"hoy": 1.0}, "future": {"mañana": 1.0}},
        copulas=_by_tense("volver:ue"),
        fields={"-": people},
        prepositions={"con": 1.0},
        degrees={"muy": 1.0},
        manners={},
        relatives={},
        transitive_share=0.0,
    )


def large() -> Lexicon:
    """About 1,000 words: six fields of life, each with its own people, moods, deeds and things."""
    fields = {}
    for name, (people, moods, deeds, masculine, feminine) in lexicon_es.FIELDS.items():
        things = {"masculine": masculine.split(), "feminine": feminine.split()}
        fields[name] = Field(
            heads=_by_form(people),
            adjectives=_by_form(moods),
            verbs=_by_tense(deeds, with_estar=False),
            objects={(g, n): zipf([plural(w) if n == "plural" else w for w in things[g]]) for g, n in FORMS},
        )
    walking = _by_tense(lexicon_es.RELATIVES, with_estar=False)
    return Lexicon(
        times={tense: zipf(words.split()) for tense, words in lexicon_es.TIMES.items()},
        copulas=_by_tense(lexicon_es.COPULAS),
        fields=fields,
        prepositions={"con": 2.0, "sin": 1.0},
        degrees=zipf(lexicon_es.DEGREES.split()),
        manners=zipf(lexicon_es.MANNERS.split()),
        relatives={number: walking["present", "3", number] for number in ("singular", "plural")},
        transitive_share=0.5,
    )


def _by_form(words: str) -> Gendered:
    inflected = [genders(word) for word in words.split()]
    return {form: zipf([forms[form] for forms in inflected]) for form in FORMS}


def _by_tense(verbs: str, with_estar: bool = True) -> Mapping[tuple[str, str, str], Cell]:
    inflected = [conjugate(*verb.split(":")) for verb in verbs.split()]
    if with_estar:
        inflected.insert(0, {(tense, *PERSONS[i]): form for tense in TENSES for i, form in enumerate(ESTAR[tense])})
    return {key: zipf([forms[key] for forms in inflected]) for key in inflected[0]}


def automaton(size: str) -> Automaton:
    """Makes the automaton of the module's drawing in a size, "mini" or "large"."""
    return build(mini() if size == "mini" else large())


def build(lexicon: Lexicon) -> Automaton:
    """Makes the automaton of a lexicon: time, subject, modifiers, verb, and what the verb asks for."""
    b = Builder()
    predicates: dict[tuple[str, str, str], Ends] = {}
    for tense in TENSES:
        time = b.time(tense, lexicon.times[tense], 1 / len(TENSES))
        for pronoun, person, number, gender in PRONOUNS:
            features = {"tense": tense, "person": person, "number": number, "gender": gender, "topic": "-"}
            decided = ("person", "number") if gender == "-" else ("person", "number", "gender")
            head = b.word(time * (0.4 / len(PRONOUNS)), [pronoun], part="pronoun", controls=decided, features=features)
            _predicate(b, lexicon, _modifiers(b, lexicon, head, features), features, predicates)
        for gender, number in FORMS:
            features = {"tense": tense, "person": "3", "number": number, "gender": gender}
            article = b.word(time * (0.6 / len(FORMS)), [ARTICLES[gender, number]], part="article", features=features)
            for topic, field in lexicon.fields.items():
                features = {**features, "topic": topic}
                head = b.word(
                    article * (1 / len(lexicon.fields)),
                    field.heads[gender, number],
                    part="noun",
                    controls=("person", "number", "gender", "topic"),
                    features=features,
                )
                _predicate(b, lexicon, _modifiers(b, lexicon, head, features), features, predicates)
    _complements(b, lexicon, predicates)
    return b.build()


def _modifiers(b: Builder, lexicon: Lexicon, head: Ends, features: Mapping[str, str]) -> Ends:
    """Phrases of preposition, article and noun after the head, none (1 in 5) or any number: `con` and `de` take turns."""
    # One loop rather than a count: what comes next then depends on the last phrase alone, not on how many there were.
    # A pronoun takes no `de` (nosotros del gato).
    de_share = 0.4 if features["person"] == "3" else 0.0
    preposition = {
        "con": b.word(head * (0.8 - de_share), lexicon.prepositions, part="preposition", features=features),
        "de": b.word(head * (de_share * 0.75), ["de"], part="preposition", features=features),
        "del": b.word(head * (de_share * 0.25), ["del"], part="preposition", features=features),
    }
    ends = head * 0.2
    for kind, other in (("con", "de"), ("de", "con")):
        nouns = {"singular": Ends(), "plural": Ends()}
        for gender, number in FORMS:
            article = preposition[kind]
            if kind == "de" and (gender, number) == FORMS[0]:
                article = preposition["del"]
            else:
                share = 1 / 4 if kind == "con" else 1 / 3
                article = b.word(
                    article * share, [ARTICLES[gender, number]], part="distractor article", features=features
                )
            cell = {word: w for field in lexicon.fields.values() for word, w in field.heads[gender, number].items()}
            nouns[number] += b.word(article, cell, part="distractor", features=features)
        for number, noun in nouns.items():
            if lexicon.relatives:
                that = b.word(noun * 0.15, ["que"], part="that", features=features)
                noun = noun * 0.85 + b.word(that, lexicon.relatives[number], part="inner verb", features=features)
            more = noun * 0.4
            if other == "con":
                b.join(more, preposition["con"])
            else:
                b.join(more * 0.75, preposition["de"])
                b.join(more * 0.25, preposition["del"])
            ends += noun * 0.6
    return ends


def _predicate(
    b: Builder,
    lexicon: Lexicon,
    ends: Ends,
    features: Mapping[str, str],
    predicates: dict[tuple[str, str, str], Ends],
) -> None:
    """The verb; what may follow it depends on less than the verb did, so it is collected and written once."""
    key = (features["tense"], features["person"], features["number"])
    shown = {name: features[name] for name in ("tense", "person", "number")}
    agrees = ("tense", "person", "number")
    topics = list(lexicon.fields) if features["topic"] == "-" else [features["topic"]]
    copula = b.word(
        ends * (1 - lexicon.transitive_share),
        lexicon.copulas[key],
        part="verb",
        # The verb tells the adjective the number; only the gender still comes from afar.
        controls=("person", "number"),
        agrees=agrees,
        features=features,
    )
    sexes = ["masculine", "feminine"] if features["gender"] == "-" else [features["gender"]]
    for topic in topics:
        for gender in sexes:
            slot = ("adjective " + gender, features["number"], topic)
            predicates[slot] = predicates.get(slot, Ends()) + copula * (1 / len(topics) / len(sexes))
        if lexicon.transitive_share:
            share = lexicon.transitive_share / len(topics)
            verbs = lexicon.fields[topic].verbs[key]
            verb = b.word(ends * share, verbs, part="verb", agrees=agrees, features={**shown, "topic": topic})
            predicates["object", "-", topic] = predicates.get(("object", "-", topic), Ends()) + verb


def _complements(b: Builder, lexicon: Lexicon, predicates: Mapping[tuple[str, str, str], Ends]) -> None:
    """What follows the verb: an adjective that agrees with the subject, or an object with its own article."""
    for (kind, number, topic), ends in predicates.items():
        field = lexicon.fields[topic]
        if kind == "object":
            for gender, count in FORMS:
                article = b.word(
                    ends * (1 / 4), [ARTICLES[gender, count]], part="object article", features={"topic": topic}
                )
                noun = b.word(article, field.objects[gender, count], part="object", features={"topic": topic})
                b.stop(noun * 0.7 + b.word(noun * 0.3, lexicon.manners, part="manner"))
        else:
            gender = kind.removeprefix("adjective ")
            features = {"gender": gender, "number": number, "topic": topic}
            degree = b.word(ends * 0.5, lexicon.degrees, part="degree", features=features)
            cell = field.adjectives[gender, number]
            b.stop(b.word(ends * 0.5 + degree, cell, part="adjective", agrees=("number", "gender"), features=features))
