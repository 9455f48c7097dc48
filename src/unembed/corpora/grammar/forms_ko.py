"""Korean word forms by rule: the particle that fits a final sound, and the forms of a verb.

A Hangul syllable is one code point, 0xAC00 + (initial * 21 + vowel) * 28 + final, so sound rules are arithmetic. The
grammar's network is in korean.py.

Source: The Unicode Standard, section 3.12 (conjoining jamo); 한글 맞춤법 (rules of spelling), articles 15 to 18 and 34 to 36.
"""

FIRST, N_VOWELS, N_FINALS = 0xAC00, 21, 28
VOWELS = "ㅏㅐㅑㅒㅓㅔㅕㅖㅗㅘㅙㅚㅛㅜㅝㅞㅟㅠㅡㅢㅣ"
FINALS: tuple[str, ...] = ("", *"ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ")
# What a stem's last vowel and the vowel of 아/어 become together; other vowels stay apart (뛰었다).
CONTRACTIONS = {
    "ㅏ": "ㅏ",
    "ㅓ": "ㅓ",
    "ㅗ": "ㅘ",
    "ㅜ": "ㅝ",
    "ㅣ": "ㅕ",
    "ㅐ": "ㅐ",
    "ㅔ": "ㅔ",
    "ㅚ": "ㅙ",
    "ㅕ": "ㅕ",
}
# Verbs whose respectful stem is another word.
RESPECTFUL = {"먹": "드시", "마시": "드시", "자": "주무시", "있": "계시"}


def final_sound(word: str) -> str:
    """Gives the consonant that closes the word's last syllable, "" if it ends in a vowel.

    >>> final_sound("책"), final_sound("편지")
    ('ㄱ', '')
    """
    return FINALS[(ord(word[-1]) - FIRST) % N_FINALS]


def particle(noun: str, pair: str) -> str:
    """Attaches the particle of a pair "after a consonant/after a vowel" that the noun's final sound asks for.

    >>> particle("책", "을/를"), particle("편지", "을/를"), particle("학생", "이/가"), particle("누나", "은/는")
    ('책을', '편지를', '학생이', '누나는')
    >>> particle("서울", "으로/로"), particle("집", "으로/로")
    ('서울로', '집으로')
    """
    after_consonant, after_vowel = pair.split("/")
    closed = final_sound(noun)
    # 으로 is the one particle that takes ㄹ for a vowel.
    if not closed or (closed == "ㄹ" and after_consonant == "으로"):
        return noun + after_vowel
    return noun + after_consonant


def close(syllables: str, final: str) -> str:
    """Puts a closing consonant under an open last syllable, or takes it away (`final` is "").

    >>> close("가", "ㄴ"), close("살", "")
    ('간', '사')
    """
    code = ord(syllables[-1]) - FIRST
    return syllables[:-1] + chr(FIRST + code - code % N_FINALS + FINALS.index(final))


def _vowel(syllable: str) -> str:
    return VOWELS[(ord(syllable) - FIRST) // N_FINALS % N_VOWELS]


def _with_vowel(syllables: str, vowel: str) -> str:
    code = ord(syllables[-1]) - FIRST
    initial = code // (N_VOWELS * N_FINALS)
    return syllables[:-1] + chr(FIRST + (initial * N_VOWELS + VOWELS.index(vowel)) * N_FINALS + code % N_FINALS)


def _before_vowel(stem: str, irregular: bool) -> str:
    """The stem as it stands before 으: 걷 -> 걸으, 돕 -> 도우, 짓 -> 지으, 살 -> 사; open stems stay."""
    closed = final_sound(stem)
    if not closed:
        return stem
    if closed == "ㄹ":
        return close(stem, "")
    if irregular and closed == "ㄷ":
        return close(stem, "ㄹ") + "으"
    if irregular and closed == "ㅂ":
        return close(stem, "") + "우"
    if irregular and closed == "ㅅ":
        return close(stem, "") + "으"
    return stem + "으"


def infinitive(stem: str, irregular: bool = False) -> str:
    """Gives the stem with 아/어, contracted: the base of the past.

    `irregular` says that a final ㄷ, ㅂ or ㅅ changes before a vowel (걷다, 돕다, 짓다), or 르 doubles its ㄹ (고르다).

    >>> [infinitive(stem) for stem in ("가", "보", "읽", "쓰", "하", "보내", "마시")]
    ['가', '봐', '읽어', '써', '해', '보내', '마셔']
    >>> [infinitive(stem, irregular=True) for stem in ("고르", "걷", "돕", "굽", "짓")]
    ['골라', '걸어', '도와', '구워', '지어']
    """
    last = stem[-1]
    if last == "하":
        return stem[:-1] + "해"
    if irregular and last == "르":
        before = close(stem[:-1], "ㄹ")
        return before + ("라" if _vowel(stem[-2]) in "ㅏㅗ" else "러")
    if irregular and final_sound(stem):
        softened = _before_vowel(stem, irregular)
        if softened[-1] == "우":
            # Only 돕다 and 곱다 keep the bright vowel (도와); all others take 워 (구워, 고마워).
            return softened[:-1] + ("와" if stem in ("돕", "곱") else "워")
        return softened[:-1] + ("아" if _vowel(stem[-1]) in "ㅏㅗ" else "어")
    if final_sound(stem):
        return stem + ("아" if _vowel(last) in "ㅏㅗ" else "어")
    if _vowel(last) == "ㅡ":
        bright = len(stem) > 1 and _vowel(stem[-2]) in "ㅏㅗ"
        return _with_vowel(stem, "ㅏ" if bright else "ㅓ")
    contracted = CONTRACTIONS.get(_vowel(last))
    return stem + "어" if contracted is None else _with_vowel(stem, contracted)


def respectful(stem: str, irregular: bool = False) -> str:
    """Gives the stem with -(으)시-, which honours the subject.

    >>> respectful("읽"), respectful("가"), respectful("살"), respectful("걷", irregular=True), respectful("먹")
    ('읽으시', '가시', '사시', '걸으시', '드시')
    """
    return RESPECTFUL.get(stem) or _before_vowel(stem, irregular) + "시"


def conjugate(stem: str, irregular: bool = False) -> dict[str, str]:
    """Gives the written plain style of a verb stem, and its forms before a noun.

    `future` is the first word of -(으)ㄹ 것이다. `adnominal past` and `adnominal present` stand before a noun (쓴 편지).

    >>> list(conjugate("읽").values())
    ['읽었다', '읽는다', '읽을', '읽은', '읽는']
    >>> list(conjugate(respectful("읽")).values())
    ['읽으셨다', '읽으신다', '읽으실', '읽으신', '읽으시는']
    >>> list(conjugate("만들").values())
    ['만들었다', '만든다', '만들', '만든', '만드는']
    """
    softened = _before_vowel(stem, irregular)
    open_stem = close(stem, "") if final_sound(stem) == "ㄹ" else stem
    return {
        "past": close(infinitive(stem, irregular), "ㅆ") + "다",
        "present": open_stem + "는다" if final_sound(open_stem) else close(open_stem, "ㄴ") + "다",
        "future": close(softened, "ㄹ"),
        "adnominal past": close(softened, "ㄴ"),
        "adnominal present": open_stem + "는",
    }
