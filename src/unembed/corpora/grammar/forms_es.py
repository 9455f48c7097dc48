"""Spanish word forms by rule: verbs by tense and person, nouns and adjectives by gender and number.

The rules cover regular verbs, those whose stressed vowel changes, and the spelling changes that keep a sound; `ESTAR` is
the one verb that is listed. The grammar's network is in spanish.py, its stems in lexicon_es.py.

Source: Real Academia Española, Nueva gramática de la lengua española, chapters 2 and 3 (gender, number) and 4 (verbs).
"""

TENSES = ("past", "present", "future")
PERSONS = (("1", "singular"), ("2", "singular"), ("3", "singular"), ("1", "plural"), ("3", "plural"))
FORMS = (("masculine", "singular"), ("masculine", "plural"), ("feminine", "singular"), ("feminine", "plural"))
PRESENT = {
    "a": ("o", "as", "a", "amos", "an"),
    "e": ("o", "es", "e", "emos", "en"),
    "i": ("o", "es", "e", "imos", "en"),
}
PRETERITE = {"a": ("é", "aste", "ó", "amos", "aron"), "e": ("í", "iste", "ió", "imos", "ieron")}
FUTURE = ("é", "ás", "á", "emos", "án")
ESTAR = {
    "past": ("estuve", "estuviste", "estuvo", "estuvimos", "estuvieron"),
    "present": ("estoy", "estás", "está", "estamos", "están"),
    "future": ("estaré", "estarás", "estará", "estaremos", "estarán"),
}
ACCENTS = str.maketrans("áéíóú", "aeiou")


def conjugate(infinitive: str, change: str = "") -> dict[tuple[str, str, str], str]:
    """Gives the forms of a regular or stem-changing verb by (tense, person, number).

    `change` is what the stressed vowel becomes ("ie", "ue", "i"), or "zc" (conocer: conozco). Spelling changes that keep
    the sound are made by rule: busqué, llegué, empecé, leyó, escojo.

    >>> forms = conjugate("volver", "ue")
    >>> [forms[tense, "3", "plural"] for tense in ("past", "present", "future")]
    ['volvieron', 'vuelven', 'volverán']
    >>> conjugate("pedir", "i")["past", "3", "singular"], conjugate("leer")["past", "3", "singular"]
    ('pidió', 'leyó')
    """
    stem, vowel = infinitive[:-2], infinitive[-2].translate(ACCENTS)
    strong, past_strong = stem, stem
    if change in ("ie", "ue", "i"):
        old = {"ie": "e", "ue": "o", "i": "e"}[change]
        before, _, after = stem.rpartition(old)
        strong = before + change + after
        # Only verbs in -ir also change in the third persons of the past, and then to the plain vowel (durmió, pidió).
        past_strong = before + change[0] + after if vowel == "i" else stem
    present = [(stem if number + person == "plural1" else strong) for person, number in PERSONS]
    if change == "zc":
        present[0] = stem[:-1] + "zc"
    elif stem.endswith("g") and vowel != "a":
        present[0] = strong[:-1] + "j"
    past = [past_strong if person == "3" else stem for person, _ in PERSONS]
    endings = PRETERITE["a" if vowel == "a" else "e"]
    if vowel == "a":
        past[0] = _keep_sound(stem)
    elif stem[-1] in "aeo":
        endings = ("í", "íste", "yó", "ímos", "yeron")
    forms = {
        "past": [root + ending for root, ending in zip(past, endings, strict=True)],
        "present": [root + ending for root, ending in zip(present, PRESENT[vowel], strict=True)],
        "future": [infinitive + ending for ending in FUTURE],
    }
    return {(tense, *PERSONS[index]): form for tense in TENSES for index, form in enumerate(forms[tense])}


def _keep_sound(stem: str) -> str:
    for end, written in (("c", "qu"), ("g", "gu"), ("z", "c")):
        if stem.endswith(end):
            return stem[:-1] + written
    return stem


def plural(word: str) -> str:
    """Gives the plural of a noun or adjective.

    >>> [plural(word) for word in ("niña", "pintor", "lápiz", "canción", "feliz")]
    ['niñas', 'pintores', 'lápices', 'canciones', 'felices']
    """
    if word[-1] in "aeiouáéó":
        return word + "s"
    if word.endswith("z"):
        return word[:-1] + "ces"
    # A final syllable loses its written accent when the plural adds one after it (canción, canciones).
    return (word[:-2] + word[-2].translate(ACCENTS) + word[-1] if word[-1] in "ns" else word) + "es"


def genders(masculine: str) -> dict[tuple[str, str], str]:
    """Gives the four forms of a noun or adjective that has both genders, from its masculine singular.

    >>> list(genders("pintor").values()), genders("alegre")["feminine", "plural"]
    (['pintor', 'pintores', 'pintora', 'pintoras'], 'alegres')
    """
    feminine = masculine
    if masculine.endswith("o"):
        feminine = masculine[:-1] + "a"
    elif masculine.endswith(("or", "ón", "án", "ín", "és")):
        feminine = masculine[:-2] + masculine[-2].translate(ACCENTS) + masculine[-1] + "a"
    singulars = {"masculine": masculine, "feminine": feminine}
    return {(g, n): singulars[g] if n == "singular" else plural(singulars[g]) for g, n in FORMS}
