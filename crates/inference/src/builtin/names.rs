//! Decides which words of a sentence are written as names: of a place, a product, a setting, a subject.
//!
//! A name that two texts share says more than another word they share. There is no dictionary: the
//! writing alone shows a name. What a shared name is worth is decided in `cluster`.

use super::words::{is_function_han, is_function_word, is_han};

/// Names of days and months, which are written as names and name no subject.
const CALENDAR: &str = "monday tuesday wednesday thursday friday saturday sunday january february march april may june \
july august september october november december mon tue wed thu fri sat sun jan feb mar apr jun jul aug sep sept oct \
nov dec";
/// The fewest letters of a capitalised name.
const MIN_LETTERS: usize = 3;
/// A sentence with more capitals than one word in so many is a headline, or German.
const ONE_CAPITAL_IN: usize = 2;

/// Whether the term at `start..end` is written as a name: a capital inside a sentence, a word with an
/// underscore, or Han characters that open a clause or follow a function character.
pub(super) fn is_name(sentence: &str, start: usize, end: usize) -> bool {
    let (before, term) = (&sentence[..start], &sentence[start..end]);
    if term.starts_with(is_han) {
        let border = before.chars().next_back();
        return term.chars().count() == 2 && border.is_none_or(|c| !is_han(c) || is_function_han(c));
    }
    if term.contains('_') {
        return term.chars().any(char::is_alphabetic);
    }
    let mut letters = term.chars();
    let capital =
        letters.next().is_some_and(char::is_uppercase) && letters.next().is_some_and(char::is_lowercase);
    let opens = before.trim_end_matches([' ', '"', '\'', '(', '“', '[']).chars().next_back();
    let inside = opens.is_some_and(|c| c.is_alphanumeric() || matches!(c, ',' | '/' | '-' | '&'));
    capital
        && inside
        && term.chars().count() >= MIN_LETTERS
        && !CALENDAR.split(' ').any(|name| name.eq_ignore_ascii_case(term))
        && !is_headline(sentence)
}

fn is_headline(sentence: &str) -> bool {
    let words = sentence.split(' ').count();
    let capitals = sentence.split(' ').filter(|word| word.starts_with(char::is_uppercase)).count();
    words > 3 && capitals * ONE_CAPITAL_IN > words
}

/// The names of several parts (`pm.max_children`, `php-fpm`, `/api/orders`), in lower case.
pub(super) fn compounds(sentence: &str) -> Vec<String> {
    let joins = |c: char| matches!(c, '.' | '-' | '_' | '/' | ':');
    let belongs = |c: char| c.is_ascii_alphanumeric() || joins(c);
    let runs = sentence.split(|c: char| !belongs(c)).map(|run| run.trim_matches(joins));
    let telling = |run: &&str| {
        let parts: Vec<&str> = run.split(joins).collect();
        let lettered = |part: &&str| part.len() > 1 && part.bytes().any(|b| b.is_ascii_alphabetic());
        parts.len() > 1
            && run.len() <= 64
            && !run.contains("//")
            && parts.iter().all(|part| !part.is_empty() && !is_function_word(part))
            && parts.iter().filter(|part| lettered(part)).count() > 1
    };
    runs.filter(telling).map(str::to_ascii_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use powercontext_core::analyzer;

    use super::*;

    fn names(sentence: &str) -> Vec<String> {
        let terms = analyzer::terms(sentence).into_iter();
        terms.filter(|term| is_name(sentence, term.start, term.end)).map(|term| term.text).collect()
    }

    #[test]
    fn capitals_inside_a_sentence_are_names_and_its_first_word_is_none() {
        assert_eq!(names("Flights to Lisbon are booked for 14 May."), ["lisbon"]);
        assert_eq!(names("Rooms are quiet near the Rato metro, HTTP."), ["rato"]);
        assert!(names("The Heizung im Keller meldet Fehler des Sensors der Anlage Nord").len() < 3);
        assert!(names("Deploy The New Thing Today").is_empty());
    }

    #[test]
    fn han_pairs_are_names_where_a_clause_or_a_function_character_parts_them() {
        let found = names("阳台的番茄苗细，成都见");
        assert!(
            ["阳台", "番茄", "成都"].iter().all(|name| found.iter().any(|known| known == name)),
            "{found:?}"
        );
        assert!(!found.iter().any(|known| known == "茄苗"));
    }

    #[test]
    fn code_names_stay_whole_and_plain_words_joined_by_a_hyphen_with_function_words_do_not_count() {
        assert_eq!(
            compounds("Raised `pm.max_children` for php-fpm at /api/orders, day-to-day 1.2.3 and 9:40."),
            ["pm.max_children", "php-fpm", "api/orders"]
        );
    }
}
