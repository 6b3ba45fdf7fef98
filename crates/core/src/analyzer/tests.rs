#![cfg(test)]

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn texts(text: &str) -> Vec<String> {
    terms(text).into_iter().map(|term| term.text).collect()
}

fn finds(query: &str, document: &str) -> bool {
    let have: HashSet<String> = texts(document).into_iter().collect();
    Query::parse(query).is_some_and(|query| {
        query.terms().iter().filter(|term| have.contains(*term)).count() >= query.required()
    })
}

// B-32
#[test]
fn words_are_folded_and_split_at_everything_but_an_underscore() {
    assert_eq!(texts("The Quick-Brown FOX's v1.2.3"), ["the", "quick", "brown", "fox", "s", "v1", "2", "3"]);
    assert_eq!(texts("foo_bar __init__ _em_ ___"), ["foo_bar", "init", "em"]);
    assert_eq!(texts("Straße KÖLN İstanbul"), ["strasse", "köln", "i\u{307}stanbul"]);
    assert_eq!(texts("ＦＵＬＬ cafe\u{301} ﬁne co\u{AD}op"), ["full", "café", "fine", "coop"]);
}

// B-32
#[test]
fn han_gives_every_character_and_every_adjacent_pair() {
    assert_eq!(texts("数据库"), ["数", "数据", "据", "据库", "库"]);
    assert_eq!(texts("用v2版"), ["用", "v2", "版"]);
    assert_eq!(texts("库 备"), ["库", "备"]);
}

// B-32
#[test]
fn kana_and_hangul_give_the_run_and_its_adjacent_pairs() {
    assert_eq!(texts("한국어"), ["한국어", "한국", "국어"]);
    assert_eq!(texts("검색"), ["검색"]);
    assert_eq!(texts("カメラと食べる"), ["カメラ", "カメ", "メラ", "と", "食", "べる"]);
    assert_eq!(texts("らーめん"), ["らーめん", "らー", "ーめ", "めん"]);
    assert_eq!(texts("ｶﾞｽ"), ["ガス"]);
    assert_eq!(texts("\u{1100}\u{1161}\u{1112}"), ["가\u{1112}"]);
}

// B-32
#[test]
fn emoji_and_punctuation_give_no_term() {
    for text in [
        "🙂",
        "👨‍👩‍👧",
        "🇩🇪",
        "1\u{FE0F}\u{20E3}",
        "\u{24C2}\u{FE0F}",
        "🈚",
        "。",
        "!!! ???",
        "\0",
        "\u{200B}",
        "",
        "___",
    ] {
        assert_eq!(texts(text), Vec::<String>::new(), "{text:?}");
        assert_eq!(Query::parse(text), None);
        assert_eq!(bounded_queries(text), []);
    }
}

// B-32
#[test]
fn offsets_name_bytes_of_the_text_as_given() {
    let text = "🙂 Straße ＦＵ e\u{301}té 数据";
    let spans: Vec<&str> = terms(text).iter().map(|term| &text[term.start..term.end]).collect();
    assert_eq!(spans, ["Straße", "ＦＵ", "e\u{301}té", "数", "数据", "据"]);
}

// B-32
#[test]
fn a_long_word_is_one_term_of_its_first_64_characters() {
    let word = format!("{}b", "a".repeat(64));
    assert_eq!(texts(&word), ["a".repeat(64)]);
    assert_eq!(texts(&"ö".repeat(9000)), ["ö".repeat(64)]);
}

// TM-145
#[test]
fn a_query_keeps_distinct_terms_in_order_without_function_words() {
    let query = Query::parse("How do we deploy this with the helm deploy").unwrap();
    assert_eq!(query.terms(), ["deploy", "helm"]);
    assert_eq!(Query::parse("the and of").unwrap().terms(), ["the", "and", "of"]);
    let many: String = (0..200).map(|n| format!("w{n} ")).collect();
    assert_eq!(Query::parse(&many).unwrap().terms().len(), MAX_QUERY_TERMS);
    assert_eq!(Query::parse(&many).unwrap().terms()[0], "w0");
    let late = format!("early {} late", " ".repeat(MAX_QUERY_CHARS));
    assert_eq!(Query::parse(&late).unwrap().terms(), ["early"]);
}

#[test]
fn a_query_requires_one_of_two_terms_and_otherwise_a_quarter() {
    for (terms, required) in [(1, 1), (2, 1), (3, 2), (8, 2), (9, 3), (12, 3), (13, 4), (64, 16)] {
        let text: String = (0..terms).map(|n| format!("w{n} ")).collect();
        assert_eq!(Query::parse(&text).unwrap().required(), required, "{terms}");
    }
}

#[test]
fn recorded_searches_find_what_they_found() {
    let cases = [
        ("数", "数据库备份每天执行", true),
        ("猫", "数据库备份每天执行", false),
        ("存缓", "缓存过期策略", true),
        ("备猫", "数据库备份每天执行", false),
        ("备份猫", "数据库备份每天执行", true),
        ("数据库！", "数据库索引需要在夜间重新构建并且通知值班人员", true),
        ("库 备份", "数据库备份每天执行", true),
        ("库 备份", "数据库索引需要在夜间重新构建并且通知值班人员", false),
        ("缓存策略应该怎么设计才好", "缓存过期策略", true),
        ("今天天气怎么样", "数据库备份每天执行", false),
        ("검색", "한국어 검색 테스트 문장", true),
        ("\u{1100}\u{1165}\u{11B7}\u{1109}\u{1162}\u{11A8}", "검색", true),
        ("한", "한국어", false),
        ("검색은", "한국어 검색 테스트 문장", false),
        ("🙂 release", "release v1.2.3 of C++ and C# is out 🙂", true),
        ("C++", "release v1.2.3 of C++ and C# is out 🙂", true),
        ("1.2.3", "release v1.2.3 of C++ and C# is out 🙂", true),
        ("v1", "release v1.2.3 of C++ and C# is out 🙂", true),
        ("foo_bar", "foo bar", false),
        ("foo", "foo_bar baz", false),
        ("don't", "don't stop", true),
        ("dont", "don't stop", false),
        ("STRASSE", "Straße nach Köln", true),
        ("koln", "Straße nach Köln", false),
        ("cafe", "café au lait", false),
        ("cafe\u{301}", "café au lait", true),
        ("istanbul", "İstanbul", false),
        ("İSTANBUL", "İstanbul", true),
        ("deploy banana", "deploy helm chart", true),
        ("deploy banana cherry", "deploy helm chart", false),
        ("deploy helm c3 c4 c5 c6 c7 c8", "deploy helm chart", true),
        ("deploy helm c3 c4 c5 c6 c7 c8 c9", "deploy helm chart", false),
        ("what is the deploy", "deploy helm chart", true),
        ("the and", "the and of", true),
        ("deploy deploy deploy banana cherry", "deploy helm chart", false),
    ];
    for (query, document, expected) in cases {
        assert_eq!(finds(query, document), expected, "{query:?} in {document:?}");
    }
}

#[test]
fn a_very_large_text_is_analysed_in_one_pass() {
    let unit = "Deploy 数据库 한국어 e\u{301}té ";
    let text = unit.repeat((4 << 20) / unit.len());
    assert_eq!(terms(&text).len(), 10 * (text.len() / unit.len()));
    assert_eq!(texts(&format!("a{}", "\u{301}".repeat(1 << 20))).len(), 1);
}

/// Characters that normalisation, folding and segmentation treat in unusual ways.
fn texts_of_any_script() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(
        "aZ9_ \n.'-ßŉǰΐᾳΣςİıſﬁﷺ½①㍿㎏Ⅷ´ﾞｶﾊㄱㅏㅋㅠㅤ가각数据々ー〜らラらーไทยကខក🙂🇩1\u{300}\u{301}\u{345}\u{34F}\u{3099}\u{309A}\u{FE0F}\u{20E3}\u{200B}\u{200C}\u{200D}\u{AD}\u{1100}\u{1161}\u{11A8}\u{9C7}\u{9BE}\u{F73}\u{1F1E6}\u{1F21A}\u{1D400}\u{0}"
            .chars()
            .collect::<Vec<_>>(),
    );
    prop::collection::vec(prop_oneof![4 => odd, 1 => any::<char>()], 0..80)
        .prop_map(|chars| chars.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    // B-32
    #[test]
    fn terms_are_bounded_and_their_offsets_valid_and_increasing(text in texts_of_any_script()) {
        let mut before = 0;
        for term in terms(&text) {
            prop_assert!(term.start >= before && term.start < term.end);
            prop_assert!(text.get(term.start..term.end).is_some());
            prop_assert!((1..=MAX_TERM_CHARS).contains(&term.text.chars().count()));
            prop_assert!(!term.text.chars().any(|c| c.is_whitespace() || c.is_control()));
            before = term.start;
        }
    }

    // B-32
    #[test]
    fn folding_again_changes_nothing(text in texts_of_any_script()) {
        for term in texts(&text) {
            prop_assert_eq!(normalise(&term), term.clone());
            prop_assert!(texts(&term).contains(&term), "{:?} gives {:?}", term, texts(&term));
        }
    }

    // B-32
    #[test]
    fn every_term_of_a_text_finds_the_text(text in texts_of_any_script()) {
        for term in texts(&text) {
            prop_assert!(finds(&term, &text), "{:?}", term);
        }
        if let Some(query) = Query::parse(&text) {
            prop_assert!(finds(&query.terms().join(" "), &text));
        }
    }

    // B-32
    #[test]
    fn the_composed_and_the_decomposed_text_have_the_same_terms(text in texts_of_any_script()) {
        prop_assert_eq!(index_text(&text.nfc().collect::<String>()), index_text(&text.nfd().collect::<String>()));
    }

    // TM-145
    #[test]
    fn bounded_queries_cover_every_term_within_both_limits(words in prop::collection::vec("[a-z]{1,4}|[a-z]{3}|[a-z]{4}|the|数据", 0..400)) {
        let text = words.join(" ");
        let queries = bounded_queries(&text);
        let covered: Vec<&String> = queries.iter().flat_map(Query::terms).collect();
        let distinct: HashSet<&String> = covered.iter().copied().collect();
        prop_assert_eq!(distinct.len(), covered.len());
        let only_function_words = texts(&text).iter().all(|term| FUNCTION_WORDS.contains(term.as_str()));
        for term in texts(&text) {
            let skipped = !only_function_words && FUNCTION_WORDS.contains(term.as_str());
            prop_assert!(skipped || distinct.contains(&term));
        }
        for query in &queries {
            prop_assert!(query.terms().len() <= MAX_QUERY_TERMS);
            prop_assert!(query.terms().join(" ").chars().count() <= MAX_QUERY_CHARS);
        }
        if let [first, .., last] = queries.as_slice() {
            prop_assert!(last.terms().len() * 2 >= first.terms().len());
        }
    }
}
