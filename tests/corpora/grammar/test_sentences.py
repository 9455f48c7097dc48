"""What the mini grammars write, read again by small parsers that know the three languages but not the automaton.

The parsers' word lists are written by hand. Next to read: test_grammar.py.
"""

import re

import pytest

from unembed.corpora.grammar import LANGUAGES, SIZES, Agreement, grammar

N_WORDS = 15_000

# Spanish ------------------------------------------------------------------------------------------------------------

ES_TIMES = {"ayer": "past", "hoy": "present", "mañana": "future"}
ES_PERSONS = ("yo", "tú", "one", "nosotros", "many")
ES_VERBS = {
    "past": "estuve estuviste estuvo estuvimos estuvieron volví volviste volvió volvimos volvieron",
    "present": "estoy estás está estamos están vuelvo vuelves vuelve volvemos vuelven",
    "future": "estaré estarás estará estaremos estarán volveré volverás volverá volveremos volverán",
}
ES_VERB = {
    verb: (tense, ES_PERSONS[i % 5]) for tense, verbs in ES_VERBS.items() for i, verb in enumerate(verbs.split())
}
ES_NOUN_PHRASE = r"(?:el (?:niño|gato)|los (?:niños|gatos)|la (?:niña|gata)|las (?:niñas|gatas))"
ES_PHRASE = rf"(?:con {ES_NOUN_PHRASE}|de (?!el ){ES_NOUN_PHRASE}|del (?:niño|gato))"
ES_SENTENCE = re.compile(
    rf"(\w+) (yo|tú|nosotros|nosotras|{ES_NOUN_PHRASE})((?: {ES_PHRASE})*) (\w+)(?: muy)? (?:cansad|content)(o|a|os|as) \."
)


def assert_spanish(sentence: str) -> None:
    match = ES_SENTENCE.fullmatch(sentence)
    assert match, sentence
    time, subject, _, verb, ending = match.groups()
    person = subject.replace("nosotras", "nosotros")
    if " " in subject:
        person = "many" if subject.endswith("s") else "one"
    assert ES_VERB[verb] == (ES_TIMES[time], person), sentence
    if subject in ("yo", "tú"):
        assert ending in ("o", "a"), sentence
    else:
        assert subject.endswith(ending), sentence


# English ------------------------------------------------------------------------------------------------------------

EN_NOUN = r"(?:boy|man|girl|woman|dog|cat|boys|men|girls|women|dogs|cats)"
EN_SENTENCE = re.compile(
    rf"(yesterday|today|tomorrow) (I|you|he|she|we|they|the {EN_NOUN})(?: (?:with|near|behind) the {EN_NOUN})* "
    r"(will |)(\w+) (?:(?:very |)(?:happy|tired|hungry)|(\w+(?:self|selves))) \."
)
EN_SELVES = {
    "I": "myself",
    "you": "yourself",
    "we": "ourselves",
    "they": "themselves",
    **dict.fromkeys(("he", "the boy", "the man"), "himself"),
    **dict.fromkeys(("she", "the girl", "the woman"), "herself"),
    **dict.fromkeys(("the dog", "the cat"), "itself"),
}


def assert_english(sentence: str) -> None:
    match = EN_SENTENCE.fullmatch(sentence)
    assert match, sentence
    time, subject, will, verb, itself = match.groups()
    is_third = subject in ("he", "she", "the boy", "the man", "the girl", "the woman", "the dog", "the cat")
    assert (will == "will ") == (time == "tomorrow"), sentence
    if itself:
        assert itself == EN_SELVES.get(subject, "themselves"), sentence
        present = ("sees", "washes", "helps") if is_third else ("see", "wash", "help")
        expected = {"yesterday": ("saw", "washed", "helped"), "today": present, "tomorrow": ("see", "wash", "help")}
        assert verb in expected[time], sentence
    else:
        present = "am" if subject == "I" else "is" if is_third else "are"
        past = "was" if subject == "I" or is_third else "were"
        assert verb == {"yesterday": past, "today": present, "tomorrow": "be"}[time], sentence


# Korean -------------------------------------------------------------------------------------------------------------

KO_HONOURED = r"(?:선생님|할머니|아버지)께서"
KO_CLAUSE = rf"(?:{KO_HONOURED} (?:쓰신|빌리신|좋아하시는)|(?:학생이|아이가|동생이) (?:쓴|빌린|좋아하는))"
KO_SENTENCE = re.compile(
    rf"(어제|오늘|내일) ({KO_HONOURED}는?|학생[은이]|아이[는가]|동생[은이])"
    rf"(?:(?: {KO_CLAUSE})? (?:학교|집|도서관)에서)?(?: {KO_CLAUSE})? (?:책을|편지를|시를|소설을)(?: 천천히| 다시)? "
    r"(\w+)( 것이다|) \."
)
KO_VERBS = {
    ("어제", False): "읽었다 찾았다 보냈다 골랐다",
    ("오늘", False): "읽는다 찾는다 보낸다 고른다",
    ("내일", False): "읽을 찾을 보낼 고를",
    ("어제", True): "읽으셨다 찾으셨다 보내셨다 고르셨다",
    ("오늘", True): "읽으신다 찾으신다 보내신다 고르신다",
    ("내일", True): "읽으실 찾으실 보내실 고르실",
}


def assert_korean(sentence: str) -> None:
    match = KO_SENTENCE.fullmatch(sentence)
    assert match, sentence
    time, subject, verb, thing = match.groups()
    assert verb in KO_VERBS[time, "께서" in subject].split(), sentence
    assert (thing == " 것이다") == (time == "내일"), sentence


CHECKS = {"es": assert_spanish, "en": assert_english, "ko": assert_korean}


def sentences_of(text: str) -> list[str]:
    """Each sentence with its full stop, the cut one at the end left out."""
    return [sentence + " ." for sentence in text.split(" . ")[:-1]]


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_is_correct(language):
    mini = grammar(language, "mini")
    found = sentences_of(mini.text(seed=11, n_words=N_WORDS))
    assert len(found) > 1_000
    for sentence in found:
        CHECKS[language](sentence)


@pytest.mark.parametrize(
    ("language", "sentence"),
    [
        ("es", "ayer las niñas con el gato volvió muy cansado ."),
        ("es", "hoy las niñas con el gato estuvieron cansadas ."),
        ("es", "hoy las niñas con el gato están cansados ."),
        ("es", "hoy las niñas de el gato están cansadas ."),
        ("en", "today the girls near the dog sees themselves ."),
        ("en", "yesterday the girls near the dog saw itself ."),
        ("en", "tomorrow the girl was happy ."),
        ("ko", "어제 할머니께서는 학생이 쓴 책을 읽었다 ."),
        ("ko", "내일 학생은 편지를 읽는다 ."),
        ("ko", "어제 학생은 아버지께서 쓴 책을 읽었다 ."),
    ],
)
def test_seeded_faults_are_caught_and_are_impossible(language, sentence):
    with pytest.raises(AssertionError):
        CHECKS[language](sentence)
    words = sentence.split()
    mini = grammar(language, "mini")
    if set(words) <= set(mini.words):
        assert mini.log_probabilities(words).sum() == -float("inf")


# Questions ----------------------------------------------------------------------------------------------------------


def controller_of(item: Agreement, language: str) -> int:
    """Where the word stands that decides the asked feature: the time word, or the head of the subject."""
    if item.feature == "tense":
        return 0
    if language == "ko":
        return 1
    return 2 if item.prefix[1] in ("el", "la", "los", "las", "the") else 1


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", SIZES)
def test_questions_have_possible_right_forms_and_impossible_wrong_ones(language, size):
    rules = grammar(language, size)
    items = rules.long_agreements(seed=3, n=80)
    index = {word: i for i, word in enumerate(rules.words)}
    assert len({(item.prefix, item.feature) for item in items}) == 80
    for item in items:
        chances = rules.next_probabilities(item.prefix)
        assert item.right
        assert item.wrong
        assert not set(item.right) & set(item.wrong)
        assert all(chances[index[word]] > 0 for word in item.right), item
        assert all(chances[index[word]] == 0 for word in item.wrong), item
        assert 4 <= item.distance == len(item.prefix) - controller_of(item, language) - 1, item
        assert len(item.prefix) <= 31
    features = {"es": {"tense", "person", "number", "gender"}, "ko": {"tense", "honorific"}}
    assert {item.feature for item in items} == features.get(language, features["es"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_are_answered_in_sentences_that_the_parser_accepts(language):
    """The right form goes on to a correct sentence, the wrong one to a faulty one, whatever comes after."""
    mini = grammar(language, "mini")
    endings = {"es": ("", "cansado", "cansada", "cansados", "cansadas"), "ko": ("", "것이다")}
    endings["en"] = ("", "happy", "be happy", "see themselves", *(f"see {word}" for word in EN_SELVES.values()))
    endings["en"] += (*EN_SELVES.values(), "themselves")

    def is_correct(words: str) -> bool:
        try:
            CHECKS[language](words)
        except (AssertionError, KeyError):
            return False
        return True

    for item in mini.long_agreements(seed=4, n=40):
        for forms, expected in ((item.right, True), (item.wrong, False)):
            for form in forms:
                ways = [" ".join([*item.prefix, form, *ending.split(), "."]) for ending in endings[language]]
                assert any(is_correct(way) for way in ways) == expected, (item, form)


def test_worked_example_of_a_question():
    es = grammar("es", "mini")
    item = next(found for found in es.long_agreements(seed=0, n=50) if found.feature == "gender")
    assert item.prefix[-1] in ("muy", *ES_VERB)
    assert {word[-1] if word[-1] != "s" else word[-2:] for word in item.right + item.wrong} <= {"o", "a", "os", "as"}
    assert len(item.right) == len(item.wrong) == 2
