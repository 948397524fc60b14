"""Texts that break tokenisers, for hypothesis to draw from."""

from hypothesis import strategies as st

PIECES = [
    *("the cat", "Cat", "CAT", "a", "I", "x1", "_", "__a", "don't", "e-mail", "3.14"),
    *(
        "",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\x0b",
        "\x1c",
        "\x85",
        "\xa0",
        "\u2003",
        "\u200b",
        "\ufeff",
        "\0",
        "\x7f",
    ),
    *("ΟΔΟΣ", "Σ", "ΣΑΣ Σ", "σς", "İstanbul", "İ", "ıI", "straße", "STRASSE", "ẞ", "ǅ", "ﬃ"),
    *("Ⱥ", "ȺȾ", "K", "Å", "ÉCOLE", "e\u0301cole", "\u0301", "naïve", "ñ"),
    *(
        "北京大学",
        "東京 タワー",
        "한국어",
        "مرحبا بالعالم",
        "\u202eabc\u202c",
        "हिन्दी",
        "ไทย",
        "Ωmega",
        "Привет",
    ),
    *("😀", "👩‍👩‍👧‍👦", "🇩🇪", "a😀b", "𝒳𝒴", "𐐀𐐁", "𞤀", "²³", "½", "٣٤", "Ⅷ", "①②", "\U0010ffff", "\uffff"),
]

texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6), st.just(" ")), max_size=12).map(
    "".join
)
texts_with_surrogates = st.lists(
    st.one_of(st.sampled_from([*PIECES, "\ud800", "\udfff", "ab\udc00cd"]), st.just(" ")), max_size=12
).map("".join)
