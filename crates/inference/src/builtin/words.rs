//! How much a term can say about a subject before any text was read.
//!
//! A closed list of function words and one of words that are frequent in every engineering note,
//! for English and Chinese. Everything else counts in full; the texts at hand decide the rest.

use std::collections::HashMap;
use std::sync::OnceLock;

const FUNCTION_EN: &str = "a about above after again against all almost alone along already also although always am \
among an and another any anyone anything are around as at away back be became because become been before behind \
being below between both but by came can cannot could did do does doing done down during each either else enough \
even ever every everyone everything few for from further gave get gets getting go goes going gone got had has have \
having he her here hers him his how however i if in instead into is it its itself just keep kept least less let like \
made make makes making many may me might more most much must my myself near neither never no nor not nothing now of \
off often ok okay on once one only onto or other others our ours out over own per perhaps please put quite rather \
really same see seen shall she should since so some someone something soon still such take taken than thank thanks \
that the their theirs them themselves then there therefore these they thing things this those though through thus to \
together too took toward two under until up upon us very via was we well went were what whatever when where whether \
which while who whom whose why will with within without would yes yet you your yours hi hello hey nope yeah don doesn \
didn isn wasn won can't don't doesn't didn't isn't wasn't won't it's that's we're i'm i've we've you're let's";

const GENERIC_EN: &str = "able action add added allow allowed answer answered ask asked available average bad begin \
best better big bug call called case cases change changed changes check checked clear code come common complete count \
counted current data date day days decide decided default different difficult early end ends error errors exact \
example existing expect explicit fail failed fails fast fewer file files find finish first five fix fixed follow \
found four full general give given good great half hour hours idea important improve include incident increase issue \
issues kind know large last late later left level like limit line list little long longer look lot low lower main \
mark match matter mean meant measure measured message minute minutes moment month morning move moved name need needed \
needs new next night note notes number numbers old older open option order part pass percent place plan point \
possible previous problem problems project quarter question questions read reading ready real reason report request \
requests result results right row rule rules run running runs same sample second seconds send sent server set \
setting shorter shorten show shows side similar simple single size slow small sort start started starts state step \
steps still stop stopped support switch system task team tell ten term test tested tests text third three time times \
today tomorrow try tuesday turn type update updated use used user users uses using usual value values version want \
wants way week weeks word words work worked working works wrong write written year years yesterday zero monday \
wednesday release releases released releasing restart restarts rolling roll rolled upgrade deploy deployed thursday friday saturday sunday content conclusion background summary overview todo";

const COMMON_ZH: &str = "我们 你们 他们 可以 需要 如果 因为 所以 但是 然后 现在 这个 那个 这些 那些 一个 没有 问题 时候 进行 使用 \
已经 应该 不能 不会 以及 或者 这样 那样 之后 之前 以后 以前 同时 由于 并且 其中 方式 情况 通过 什么 怎么 为什么 多少 一些 一下 一直 \
一次 一种 可能 必须 不再 不是 还是 就是 只有 只是 只要 而且 而是 并在 改为 改成 改到 设为 放到 目前 其他 其余 任何 任意 原因 原来 \
处理 办法 步骤 建议 决定 注意 主要 大约 总体 比较 时间 今天 昨天 明天 昨晚 上周 每周 每天 每条 每个 同一 同一个 个月 分钟 秒钟 小时 \
左右 以内 之内 之外 至少 至多 超过 增加 减少 降到 降级 百分 分之 之五 之二 十五 二十 三十 五十 四百 多条 一百 百千 数量 最近 最大 \
最小 最早 真正 明显 所有 全部 完成 开始 结束 继续 保持 当前 默认 出现 发现 看到 测试 环境 同学 用户 版本 服务 系统 功能 代码 项目 \
工作 事情 方法 内容 结果 说明 支持 提供 实现 检查 要求 有些 很多 更多 更大 更小 更快 更慢 太早 太晚 太多 太慢 太碎 反而 否则 避免 \
影响 单独 直接 自动 常用 好的 谢谢 收到 你好 多长 长达 那么 这么 怎样 多数 多半 某个";

/// Han characters that hold sentences together; a pair with one of them seldom names anything.
const FUNCTION_HAN: &str = "的了是在我你他她它们这那有和就不会也都要把被从到对与为中上下个时后前以之其而且或但如若因所则很更最太\
又再还只才已将让给向着过得地等及并于由跟比每各某同些么什怎吗呢吧啊哦一二三四五六七八九十百千万两多少几次条先看没能可该请想说做用去来";

/// The share of a term's full weight that it keeps; zero for function words.
pub(super) fn prior(term: &str) -> f32 {
    let mut characters = term.chars();
    let (Some(first), second) = (characters.next(), characters.next()) else { return 0.0 };
    if is_han(first) {
        return match second {
            None => 0.08,
            Some(second) => {
                if let Some(worth) = listed(term) {
                    return worth;
                }
                let holding = [first, second].into_iter().filter(|c| FUNCTION_HAN.contains(*c)).count();
                [1.0, 0.18, 0.05][holding]
            }
        };
    }
    if !term.chars().any(char::is_alphabetic) {
        return 0.05;
    }
    if term.is_ascii() && second.is_none() {
        return 0.0;
    }
    if let Some(worth) = listed(term) {
        return worth;
    }
    if term.contains('_') {
        return 1.6;
    }
    let named = term.chars().any(|c| c.is_ascii_digit());
    match (named, term.chars().count()) {
        (true, _) => 1.1,
        (false, ..=2) => 0.6,
        (false, 3) => 0.8,
        (false, _) => 1.0,
    }
}

/// Whether an English word only holds others together.
pub(super) fn is_function_word(word: &str) -> bool {
    listed(&word.to_lowercase()) == Some(0.0)
}

/// Whether a character is written in Han script (the common blocks).
pub(super) fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}' | '々')
}

/// A character after or before which no space is written.
pub(super) fn is_wide(c: char) -> bool {
    is_han(c) || matches!(c, '\u{3000}'..='\u{30ff}' | '\u{ff00}'..='\u{ffef}' | '“' | '”' | '…')
}

/// The form under which the endings of an English word are the same word.
pub(super) fn stem(term: &str) -> &str {
    if let (Some(start), 4) = (term.strip_suffix('s'), term.len())
        && start.bytes().all(|b| b.is_ascii_lowercase())
        && !start.ends_with(['s', 'u', 'i', 'w', 'a'])
    {
        return start; // `pots` and `pot`
    }
    if !term.is_ascii() || term.len() < 5 || term.bytes().any(|b| !b.is_ascii_lowercase()) {
        return term;
    }
    for (ending, rest) in [
        ("ations", 4),
        ("ation", 4),
        ("ings", 4),
        ("ing", 4),
        ("ies", 3),
        ("ers", 4),
        ("ed", 4),
        ("es", 4),
        ("er", 4),
        ("al", 4),
        ("s", 4),
        ("e", 4),
        ("y", 4),
    ] {
        if let Some(start) = term.strip_suffix(ending)
            && start.len() >= rest
            && !(ending == "s" && start.ends_with('s'))
        {
            return undouble(start);
        }
    }
    term
}

/// `stopp` to `stop`, so that `stopped` and `stop` meet.
fn undouble(start: &str) -> &str {
    let bytes = start.as_bytes();
    match bytes {
        [.., a, b] if a == b && !matches!(a, b's' | b'l' | b'e' | b'o') => &start[..start.len() - 1],
        _ => start,
    }
}

/// What the closed lists say about a word; `None` when it is on none of them.
fn listed(term: &str) -> Option<f32> {
    static WORDS: OnceLock<HashMap<&'static str, f32>> = OnceLock::new();
    let words = WORDS.get_or_init(|| {
        // A function word stays one when another list names it too, so its list comes last.
        let lists = [(COMMON_ZH, 0.12), (GENERIC_EN, 0.25), (FUNCTION_EN, 0.0)];
        lists
            .iter()
            .flat_map(|(list, worth)| list.split_whitespace().map(move |word| (word, *worth)))
            .collect()
    });
    words.get(term).copied()
}
