"""English word forms by rule: plurals of nouns, and the three forms of a verb.

What no rule gives is listed as far as the grammars need it. The grammar's network is in english.py, its stems in
lexicon_en.py.
"""

VOWELS = "aeiou"
IRREGULAR_PLURALS = {"man": "men", "woman": "women", "child": "children", "shelf": "shelves"}
IRREGULAR_PLURALS |= {"helmsman": "helmsmen", "boatman": "boatmen"}
IRREGULAR_PASTS = {"see": "saw", "hurt": "hurt", "write": "wrote", "read": "read", "sell": "sold", "sing": "sang"}
IRREGULAR_PASTS |= {"eat": "ate", "grow": "grew", "sink": "sank", "hear": "heard", "build": "built", "bring": "brought"}
IRREGULAR_PASTS |= {"hold": "held", "sleep": "slept", "run": "ran"}


def plural(noun: str) -> str:
    """Gives the plural of a noun.

    >>> [plural(noun) for noun in ("dog", "fox", "baby", "boy", "woman")]
    ['dogs', 'foxes', 'babies', 'boys', 'women']
    """
    return IRREGULAR_PLURALS.get(noun) or _with_s(noun)


def _with_s(word: str) -> str:
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "x", "z", "ch", "sh")) or word in ("potato", "tomato") else "s")


def inflect(verb: str) -> dict[str, str]:
    """Gives the three forms of a verb; a last consonant after one short, stressed vowel is doubled (one syllable only).

    >>> inflect("wash"), inflect("stir")["past"], inflect("carry")["past"]
    ({'base': 'wash', 's': 'washes', 'past': 'washed'}, 'stirred', 'carried')
    """
    if verb in IRREGULAR_PASTS:
        past = IRREGULAR_PASTS[verb]
    elif verb.endswith("e"):
        past = verb + "d"
    elif verb.endswith("y") and verb[-2] not in VOWELS:
        past = verb[:-1] + "ied"
    elif _doubles(verb):
        past = verb + verb[-1] + "ed"
    else:
        past = verb + "ed"
    return {"base": verb, "s": _with_s(verb), "past": past}


def _doubles(verb: str) -> bool:
    vowels = [letter in VOWELS for letter in verb]
    return len(verb) > 2 and vowels[-3:] == [False, True, False] and sum(vowels) == 1 and verb[-1] not in "wxy"
