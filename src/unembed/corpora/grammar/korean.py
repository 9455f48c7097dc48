"""Korean: a verb at the end that honours a distant subject, in the tense that the first word asked for.

    어제   할머니께서는   아이가 좋아하는 도서관에서   학생이 쓴 책을   읽으셨다 .
    tense  ^ subject      clauses about others                          ^ tense, honorific

A word is an eojeol, the particle attached: forms_ko.py gives the form that the noun's final sound asks for. Each clause
before a place or an object has a subject of its own, to be honoured or not, whose verb agrees at once; the main verb has to
remember the first subject. lexicon_ko.py holds the stems of the large grammar. Next: agreement.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from unembed.corpora.grammar import lexicon_ko
from unembed.corpora.grammar.automaton import Automaton
from unembed.corpora.grammar.builder import Builder, Cell, Ends, zipf
from unembed.corpora.grammar.forms_ko import conjugate, particle, respectful

TENSES = ("past", "present", "future")
RESPECTS = ("plain", "honoured")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of life: who acts in it (by respect), what they do (by tense and respect), and to what.

    `heads` open a sentence, with the topic particle or the subject's; `actors` stand in clauses, with the subject's.
    """

    heads: Mapping[str, Cell]
    actors: Mapping[str, Cell]
    verbs: Mapping[tuple[str, str], Cell]
    objects: Cell


@dataclass(frozen=True, kw_only=True)
class Lexicon:
    """The words of one size of the grammar, already inflected; clauses have verbs for places and for objects."""

    times: Mapping[str, Cell]
    fields: Mapping[str, Field]
    places: Cell
    place_verbs: Mapping[str, Cell]
    object_verbs: Mapping[str, Cell]
    manners: Cell


def subject(noun: str, respect: str) -> dict[str, float]:
    """A sentence's subject: as its topic more often than not, since it comes from afar.

    >>> subject("학생", "plain"), subject("할머니", "honoured")
    ({'학생은': 0.8, '학생이': 0.2}, {'할머니께서는': 0.8, '할머니께서': 0.2})
    """
    if respect == "honoured":
        return {noun + "께서는": 0.8, noun + "께서": 0.2}
    return {particle(noun, "은/는"): 0.8, particle(noun, "이/가"): 0.2}


def mini() -> Lexicon:
    """At most 62 words: three people of each rank, four things, four verbs in six forms each."""
    return Lexicon(
        times={"past": {"어제": 1.0}, "present": {"오늘": 1.0}, "future": {"내일": 1.0}},
        fields={"-": _field("학생 아이 동생", "선생님 할머니 아버지", "읽 찾 보내 고르*", "책 편지 시 소설")},
        places=_places("학교 집 도서관"),
        place_verbs={respect: _verbs("좋아하", "adnominal present", respect) for respect in RESPECTS},
        object_verbs={respect: _verbs("쓰 빌리", "adnominal past", respect) for respect in RESPECTS},
        manners={"천천히": 1.0, "다시": 1.0},
    )


def large() -> Lexicon:
    """About 1,000 words: six fields of life, each with its own people, deeds and things."""
    past, present = lexicon_ko.OBJECT_VERBS_PAST, lexicon_ko.OBJECT_VERBS_PRESENT
    return Lexicon(
        times={tense: zipf(words.split()) for tense, words in lexicon_ko.TIMES.items()},
        fields={name: _field(*words) for name, words in lexicon_ko.FIELDS.items()},
        places=_places(lexicon_ko.PLACES),
        place_verbs={respect: _verbs(lexicon_ko.PLACE_VERBS, "adnominal present", respect) for respect in RESPECTS},
        object_verbs={
            respect: {**_verbs(present, "adnominal present", respect), **_verbs(past, "adnominal past", respect)}
            for respect in RESPECTS
        },
        manners=zipf(lexicon_ko.MANNERS.split()),
    )


def _field(plain: str, honoured: str, verbs: str, objects: str) -> Field:
    people = {"plain": zipf(plain.split()), "honoured": zipf(honoured.split())}
    heads: dict[str, Cell] = {}
    actors: dict[str, Cell] = {}
    for respect, nouns in people.items():
        subjects = [(subject(noun, respect), weight) for noun, weight in nouns.items()]
        heads[respect] = {word: share * weight for forms, weight in subjects for word, share in forms.items()}
        actors[respect] = {list(forms)[1]: weight for forms, weight in subjects}
    return Field(
        heads=heads,
        actors=actors,
        verbs={(tense, respect): _verbs(verbs, tense, respect) for tense in TENSES for respect in RESPECTS},
        objects=zipf([particle(noun, "을/를") for noun in objects.split()]),
    )


def _verbs(verbs: str, form: str, respect: str) -> Cell:
    words = []
    for verb in verbs.split():
        stem, irregular = verb.rstrip("*"), verb.endswith("*")
        # What -(으)시- makes of a stem is regular again.
        forms = conjugate(respectful(stem, irregular)) if respect == "honoured" else conjugate(stem, irregular)
        words.append(forms[form])
    return zipf(words)


def _places(nouns: str) -> Cell:
    return zipf([noun + "에서" for noun in nouns.split()])


def automaton(size: str) -> Automaton:
    """Makes the automaton of the module's drawing in a size, "mini" or "large"."""
    return build(mini() if size == "mini" else large())


def build(lexicon: Lexicon) -> Automaton:
    """Makes the automaton of a lexicon: time, subject, place, object and verb, clauses about others between them."""
    b = Builder()
    future = Ends()
    for tense in TENSES:
        time = b.time(tense, lexicon.times[tense], 1 / len(TENSES))
        for topic, field in lexicon.fields.items():
            for respect in RESPECTS:
                features = {"tense": tense, "honorific": respect, "topic": topic}
                ends = b.word(
                    time * (1 / len(RESPECTS) / len(lexicon.fields)),
                    field.heads[respect],
                    part="noun",
                    controls=("honorific", "topic"),
                    features=features,
                )
                clause = _clause(b, lexicon, ends * 0.3, lexicon.place_verbs, features)
                place = b.word(ends * 0.2 + clause, lexicon.places, part="place", features=features)
                ends = ends * 0.5 + place
                clause = _clause(b, lexicon, ends * 0.75, lexicon.object_verbs, features)
                thing = b.word(ends * 0.25 + clause, field.objects, part="object", features=features)
                manner = b.word(thing * 0.3, lexicon.manners, part="manner", features=features)
                verb = b.word(
                    thing * 0.7 + manner,
                    field.verbs[tense, respect],
                    part="verb",
                    agrees=("tense", "honorific"),
                    features=features,
                )
                if tense == "future":
                    future += verb
                else:
                    b.stop(verb)
    b.stop(b.word(future, ["것이다"], part="auxiliary", features={"tense": "future"}))
    return b.build()


def _clause(b: Builder, lexicon: Lexicon, ends: Ends, verbs: Mapping[str, Cell], features: Mapping[str, str]) -> Ends:
    """A clause before a noun: someone else, honoured or not, and a verb that says which."""
    out = Ends()
    for respect in RESPECTS:
        actors: dict[str, float] = {}
        for field in lexicon.fields.values():
            actors |= field.actors[respect]
        actor = b.word(ends * (1 / len(RESPECTS)), actors, part="distractor", features=features)
        out += b.word(actor, verbs[respect], part="inner verb", features=features)
    return out
