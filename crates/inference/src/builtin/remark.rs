//! Decides which words of a text are said between people and name nothing: who speaks, thanks,
//! acknowledgements, agreements.
//!
//! Such a remark is no text of its own and begins no title. It stays where the detail quotes it.

use super::words::{is_function_word, is_wide};

/// What stands before a colon and is not part of what is said.
const LABELS: [&str; 34] = [
    "user",
    "assistant",
    "human",
    "system",
    "ai",
    "bot",
    "agent",
    "model",
    "me",
    "you",
    "q",
    "a",
    "question",
    "answer",
    "note",
    "notes",
    "note to self",
    "reminder",
    "fyi",
    "update",
    "correction",
    "found it",
    "edit",
    "ps",
    "用户",
    "助手",
    "系统",
    "问",
    "答",
    "更正",
    "补充",
    "备注",
    "更新",
    "提醒",
];
const CHATTER_EN: &str = "agreed agree ah alright amazing aha awesome brilliant bye cheers congrats cool correct done excellent \
exactly fantastic fine glad good got gotcha great haha hahaha hah hey hm hmm k kk lgtm lmao lol love lovely morning nah \
nice night noted np oh ooh oops perfect pls problem right roger rofl see sorry sounds super sure ta thx ty understood \
welcome whoa works wow wonderful xd yay yea yep yup day evening afternoon guys all later soon";
/// Longer ones first.
const CHATTER_ZH: [&str; 56] = [
    "没有问题",
    "没问题",
    "不客气",
    "辛苦了",
    "知道了",
    "明白了",
    "了解了",
    "太好了",
    "谢谢你",
    "多谢了",
    "早上好",
    "晚上好",
    "下午好",
    "对不起",
    "不好意思",
    "好的",
    "谢谢",
    "多谢",
    "感谢",
    "收到",
    "明白",
    "了解",
    "知道",
    "可以",
    "你好",
    "您好",
    "大家",
    "同意",
    "再见",
    "晚安",
    "早安",
    "辛苦",
    "哈哈",
    "嘿嘿",
    "呵呵",
    "厉害",
    "不错",
    "是的",
    "对的",
    "行的",
    "好",
    "嗯",
    "哦",
    "噢",
    "哈",
    "行",
    "对",
    "是",
    "了",
    "的",
    "吧",
    "啊",
    "呀",
    "呢",
    "嘛",
    "哇",
];
/// Beginnings of a clause that only says that people agreed.
const AGREEMENTS_EN: [&str; 14] = [
    "agreed with",
    "talked to",
    "talked with",
    "spoke to",
    "spoke with",
    "checked with",
    "discussed with",
    "as agreed",
    "as discussed",
    "sounds good",
    "good news",
    "good point",
    "quick update",
    "just to confirm",
];
const AGREED_ZH: [&str; 12] = [
    "商量好了",
    "商量过了",
    "说好了",
    "约好了",
    "讨论过了",
    "讨论好了",
    "定好了",
    "谈好了",
    "确认过了",
    "沟通过了",
    "问过了",
    "聊过了",
];
/// The most characters of a clause that is only an agreement.
const MAX_AGREEMENT_CHARS: usize = 30;

/// The text behind the labels it begins with.
pub(super) fn unlabelled(text: &str) -> &str {
    let mut rest = text;
    while let Some((label, said)) = rest.split_once([':', '：']) {
        let known = label.chars().count() <= 16 && LABELS.contains(&label.trim().to_lowercase().as_str());
        let apart = said.starts_with([' ', '\n']) || rest[label.len()..].starts_with('：');
        if !known || !apart || said.trim().is_empty() {
            break;
        }
        rest = said.trim_start();
    }
    rest
}

/// Whether a sentence holds nothing but function words and small talk.
pub(super) fn is_chatter(sentence: &str) -> bool {
    let sentence = sentence.to_lowercase();
    let words = sentence.split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '’'));
    words.filter(|word| !word.is_empty()).all(|word| {
        if word.starts_with(is_wide) {
            return is_chatter_zh(word);
        }
        is_function_word(word)
            || CHATTER_EN.split_whitespace().any(|known| known == word)
            || !word.contains(char::is_alphabetic)
    })
}

fn is_chatter_zh(word: &str) -> bool {
    let mut rest = word;
    while let Some(known) = CHATTER_ZH.iter().find(|known| rest.starts_with(**known)) {
        rest = &rest[known.len()..];
    }
    rest.is_empty()
}

/// The text behind a clause at its beginning that only says that people agreed or were heard; the whole text
/// where nothing follows.
pub(super) fn to_the_point(text: &str) -> &str {
    let mut rest = unlabelled(text);
    while let Some(at) = rest.find(['，', ',', '。', '！', '；', ':', '：', '!']) {
        let (clause, behind) = rest.split_at(at);
        let behind = behind.trim_start_matches(['，', ',', '。', '！', '；', ':', '：', '!', ' ']);
        if behind.is_empty() || !(is_chatter(clause) || is_agreement(clause)) {
            break;
        }
        rest = behind;
    }
    rest
}

/// Whether a clause only says that people agreed.
pub(super) fn is_agreement(clause: &str) -> bool {
    let clause = clause.trim().to_lowercase();
    let short = clause.chars().nth(MAX_AGREEMENT_CHARS).is_none();
    short
        && (AGREEMENTS_EN.iter().any(|start| clause.starts_with(start))
            || AGREED_ZH.iter().any(|end| clause.ends_with(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_talk_is_told_from_a_short_note() {
        for text in
            ["ok thanks", "lol 👍", "好的", "收到，谢谢！", "Sounds good!", "嗯嗯好的", "thx, got it", "👍"]
        {
            assert!(is_chatter(text), "{text}");
        }
        for text in ["lease", "租约", "ok, thanks for the wiki link", "好的，成都见", "リース"] {
            assert!(!is_chatter(text), "{text}");
        }
    }

    #[test]
    fn labels_and_agreements_are_not_the_point() {
        for (text, point) in [
            ("User: our wiki is down", "our wiki is down"),
            ("Assistant: Correction: set to 12", "set to 12"),
            ("和小安商量好了，成都第二天去看大熊猫", "成都第二天去看大熊猫"),
            ("好的，租约改成十秒", "租约改成十秒"),
            ("Agreed with Ann, the lease is ten seconds", "the lease is ten seconds"),
            ("和小安商量好了", "和小安商量好了"),
            ("Hotel: near the metro", "Hotel: near the metro"),
        ] {
            assert_eq!(to_the_point(text), point, "{text}");
        }
    }
}
