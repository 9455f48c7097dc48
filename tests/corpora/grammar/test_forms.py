"""Word forms against tables written by hand, and Korean particles against Unicode's own decomposition."""

import unicodedata

import pytest

from unembed.corpora.grammar import LANGUAGES, grammar
from unembed.corpora.grammar.forms_en import inflect
from unembed.corpora.grammar.forms_en import plural as english_plural
from unembed.corpora.grammar.forms_es import conjugate as spanish
from unembed.corpora.grammar.forms_es import genders
from unembed.corpora.grammar.forms_es import plural as spanish_plural
from unembed.corpora.grammar.forms_ko import conjugate as korean
from unembed.corpora.grammar.forms_ko import particle, respectful

SPANISH = {
    ("hablar", ""): "hablé hablaste habló hablamos hablaron hablo hablas habla hablamos hablan "
    "hablaré hablarás hablará hablaremos hablarán",
    ("leer", ""): "leí leíste leyó leímos leyeron leo lees lee leemos leen leeré leerás leerá leeremos leerán",
    ("volver", "ue"): "volví volviste volvió volvimos volvieron vuelvo vuelves vuelve volvemos vuelven "
    "volveré volverás volverá volveremos volverán",
    ("dormir", "ue"): "dormí dormiste durmió dormimos durmieron duermo duermes duerme dormimos duermen "
    "dormiré dormirás dormirá dormiremos dormirán",
    (
        "corregir",
        "i",
    ): "corregí corregiste corrigió corregimos corrigieron corrijo corriges corrige corregimos corrigen "
    "corregiré corregirás corregirá corregiremos corregirán",
    ("empezar", "ie"): "empecé empezaste empezó empezamos empezaron empiezo empiezas empieza empezamos empiezan "
    "empezaré empezarás empezará empezaremos empezarán",
    ("parecer", "zc"): "parecí pareciste pareció parecimos parecieron parezco pareces parece parecemos parecen "
    "pareceré parecerás parecerá pareceremos parecerán",
    ("regar", "ie"): "regué regaste regó regamos regaron riego riegas riega regamos riegan "
    "regaré regarás regará regaremos regarán",
    ("recoger", ""): "recogí recogiste recogió recogimos recogieron recojo recoges recoge recogemos recogen "
    "recogeré recogerás recogerá recogeremos recogerán",
}


@pytest.mark.parametrize(("verb", "change"), SPANISH)
def test_spanish_verbs(verb, change):
    assert " ".join(spanish(verb, change).values()) == SPANISH[verb, change]


def test_spanish_nouns():
    forms = {word: " ".join(genders(word).values()) for word in ("bailarín", "cantor", "gato", "violinista")}
    assert forms == {
        "bailarín": "bailarín bailarines bailarina bailarinas",
        "cantor": "cantor cantores cantora cantoras",
        "gato": "gato gatos gata gatas",
        "violinista": "violinista violinistas violinista violinistas",
    }
    assert [spanish_plural(word) for word in ("vals", "luz", "red", "sofá")] == ["valses", "luces", "redes", "sofás"]


def test_english_words():
    verbs = "wash copy play stir open fix bake see visit"
    expected = {
        "s": "washes copies plays stirs opens fixes bakes sees visits",
        "past": "washed copied played stirred opened fixed baked saw visited",
    }
    for form, words in expected.items():
        assert " ".join(inflect(verb)[form] for verb in verbs.split()) == words
    plurals = [english_plural(word) for word in ["bus", "lady", "day", "helmsman", "potato", "bench", "human"]]
    assert " ".join(plurals) == "buses ladies days helmsmen potatoes benches humans"


KOREAN = {
    ("가", False): "갔다 간다 갈 간 가는 가셨다 가신다 가실 가신 가시는",
    ("읽", False): "읽었다 읽는다 읽을 읽은 읽는 읽으셨다 읽으신다 읽으실 읽으신 읽으시는",
    ("만들", False): "만들었다 만든다 만들 만든 만드는 만드셨다 만드신다 만드실 만드신 만드시는",
    ("고르", True): "골랐다 고른다 고를 고른 고르는 고르셨다 고르신다 고르실 고르신 고르시는",
    ("부르", True): "불렀다 부른다 부를 부른 부르는 부르셨다 부르신다 부르실 부르신 부르시는",
    ("듣", True): "들었다 듣는다 들을 들은 듣는 들으셨다 들으신다 들으실 들으신 들으시는",
    ("돕", True): "도왔다 돕는다 도울 도운 돕는 도우셨다 도우신다 도우실 도우신 도우시는",
    ("굽", True): "구웠다 굽는다 구울 구운 굽는 구우셨다 구우신다 구우실 구우신 구우시는",
    ("짓", True): "지었다 짓는다 지을 지은 짓는 지으셨다 지으신다 지으실 지으신 지으시는",
    ("쓰", False): "썼다 쓴다 쓸 쓴 쓰는 쓰셨다 쓰신다 쓰실 쓰신 쓰시는",
    ("모으", False): "모았다 모은다 모을 모은 모으는 모으셨다 모으신다 모으실 모으신 모으시는",
    ("하", False): "했다 한다 할 한 하는 하셨다 하신다 하실 하신 하시는",
    ("먹", False): "먹었다 먹는다 먹을 먹은 먹는 드셨다 드신다 드실 드신 드시는",
    ("뛰", False): "뛰었다 뛴다 뛸 뛴 뛰는 뛰셨다 뛰신다 뛰실 뛰신 뛰시는",
}


@pytest.mark.parametrize(("stem", "irregular"), KOREAN)
def test_korean_verbs(stem, irregular):
    forms = [*korean(stem, irregular).values(), *korean(respectful(stem, irregular)).values()]
    assert " ".join(forms) == KOREAN[stem, irregular]


@pytest.mark.parametrize(
    ("noun", "expected"),
    [
        ("책", "책이 책은 책을 책과 책으로"),
        ("편지", "편지가 편지는 편지를 편지와 편지로"),
        ("물", "물이 물은 물을 물과 물로"),
        ("할머니", "할머니가 할머니는 할머니를 할머니와 할머니로"),
        ("값", "값이 값은 값을 값과 값으로"),
        ("의자", "의자가 의자는 의자를 의자와 의자로"),
    ],
)
def test_korean_particles(noun, expected):
    pairs = ("이/가", "은/는", "을/를", "과/와", "으로/로")
    assert " ".join(particle(noun, pair) for pair in pairs) == expected


def has_final_consonant(word: str) -> bool:
    """By Unicode's decomposition: a closed syllable falls into three letters, an open one into two."""
    return len(unicodedata.normalize("NFD", word[-1])) == 3


@pytest.mark.parametrize("size", ["mini", "large"])
def test_every_particle_of_the_korean_grammars_fits(size):
    ko = grammar("ko", size)
    checked = 0
    for state in ko.automaton.states:
        if state.part not in ("noun", "distractor", "object"):
            continue
        for i in ko.automaton.cells[state.cell].nonzero()[0]:
            word = ko.words[i]
            if not word.endswith(("께서", "께서는")):
                assert has_final_consonant(word[:-1]) == (word[-1] in "이은을"), word
                checked += word[-1] in "이은을가는를"
    assert checked > 10


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("size", ["mini", "large"])
def test_words_are_composed_and_hold_no_space(language, size):
    words = grammar(language, size).words
    assert words[0] == "."
    assert len(set(words)) == len(words)
    assert all(word == unicodedata.normalize("NFC", word) and word == "".join(word.split()) for word in words)
    low, high = (40, 62) if size == "mini" else (800, 1_200)
    assert low <= len(words) <= high
