//! Decides which runs of a sentence are names of several parts: settings, programs, paths.
//!
//! An index cuts them into their parts; two texts that share the whole name share more than those. What a
//! shared name is worth is decided in `cluster`.

use super::words::is_function_word;

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
    use super::*;

    #[test]
    fn code_names_stay_whole_and_plain_words_joined_by_a_hyphen_with_function_words_do_not_count() {
        assert_eq!(
            compounds("Raised `pm.max_children` for php-fpm at /api/orders, day-to-day 1.2.3 and 9:40."),
            ["pm.max_children", "php-fpm", "api/orders"]
        );
    }
}
