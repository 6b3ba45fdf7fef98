//! The model settings that may be sent, with their bounds: scalars for sampling, output, time and
//! service tier (TM-081, B-22). Everything else is refused before anything is sent (TM-082).
//!
//! Which setting a protocol has, and under which name it travels, is one table here. A value outside
//! its bounds is a mistake; a name that is not allowed is a configuration we do not support.

use std::time::Duration;

use powercontext_core::secret::Secret;
use serde_json::{Map, Value};

use crate::config::ConfigurationError;
use crate::json;

/// Whose protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// OpenAI itself.
    OpenAi,
    /// Another server with OpenAI's protocol.
    Compatible,
    /// Anthropic, or a server with its protocol.
    Anthropic,
    /// None: the built-in models have no settings.
    BuiltIn,
}

impl Protocol {
    const fn without(self) -> &'static str {
        match self {
            Self::OpenAi | Self::Compatible => "`openai` models have no such setting",
            Self::Anthropic => "`anthropic` models have no such setting",
            Self::BuiltIn => "built-in models have no settings",
        }
    }
}

#[derive(Clone, Copy)]
enum Bound {
    Integer(i64, i64),
    Number(f64, f64),
    Word(&'static [&'static str]),
}

impl Bound {
    fn allows(self, value: &Value) -> bool {
        match self {
            Self::Integer(least, most) => value.as_i64().is_some_and(|n| (least..=most).contains(&n)),
            Self::Number(least, most) => value.as_f64().is_some_and(|n| (least..=most).contains(&n)),
            Self::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        }
    }

    fn rule(self) -> String {
        match self {
            Self::Integer(i64::MIN, _) => "a whole number".to_owned(),
            Self::Integer(least, most) => format!("a whole number from {least} to {most}"),
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Word(words) => format!("one of {}", words.join(", ")),
        }
    }
}

/// Where a setting ends up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A field of the request.
    Body(&'static str),
    /// A field of the request's `output_config`.
    OutputConfig(&'static str),
    /// A bound on the answer; never raises the worker's own.
    MaxTokens,
    /// A bound on the call's time; never raises the configured one.
    Timeout,
}

struct Rule {
    name: &'static str,
    protocols: &'static [Protocol],
    place: Place,
    bound: Bound,
}

const ALL: &[Protocol] = &[Protocol::OpenAi, Protocol::Compatible, Protocol::Anthropic];
const CHAT: &[Protocol] = &[Protocol::OpenAi, Protocol::Compatible];
const ANTHROPIC: &[Protocol] = &[Protocol::Anthropic];
const OPENAI_TIERS: Bound = Bound::Word(&["auto", "default", "flex", "priority", "scale"]);
const ANTHROPIC_TIERS: Bound = Bound::Word(&["auto", "standard_only"]);

const fn rule(name: &'static str, protocols: &'static [Protocol], place: Place, bound: Bound) -> Rule {
    Rule { name, protocols, place, bound }
}

const RULES: &[Rule] = &[
    rule("max_tokens", ALL, Place::MaxTokens, Bound::Integer(1, 1_000_000)),
    rule("timeout", ALL, Place::Timeout, Bound::Number(0.001, 3600.0)),
    rule("temperature", CHAT, Place::Body("temperature"), Bound::Number(0.0, 2.0)),
    rule("temperature", ANTHROPIC, Place::Body("temperature"), Bound::Number(0.0, 1.0)),
    rule("top_p", ALL, Place::Body("top_p"), Bound::Number(0.0, 1.0)),
    rule(
        "top_k",
        &[Protocol::Compatible, Protocol::Anthropic],
        Place::Body("top_k"),
        Bound::Integer(1, 10_000),
    ),
    rule("seed", CHAT, Place::Body("seed"), Bound::Integer(i64::MIN, i64::MAX)),
    rule("presence_penalty", CHAT, Place::Body("presence_penalty"), Bound::Number(-2.0, 2.0)),
    rule("frequency_penalty", CHAT, Place::Body("frequency_penalty"), Bound::Number(-2.0, 2.0)),
    rule(
        "openai_reasoning_effort",
        CHAT,
        Place::Body("reasoning_effort"),
        Bound::Word(&["none", "minimal", "low", "medium", "high", "xhigh"]),
    ),
    rule("openai_text_verbosity", CHAT, Place::Body("verbosity"), Bound::Word(&["low", "medium", "high"])),
    rule("service_tier", CHAT, Place::Body("service_tier"), OPENAI_TIERS),
    rule("service_tier", ANTHROPIC, Place::Body("service_tier"), ANTHROPIC_TIERS),
    rule("openai_service_tier", CHAT, Place::Body("service_tier"), OPENAI_TIERS),
    rule("anthropic_service_tier", ANTHROPIC, Place::Body("service_tier"), ANTHROPIC_TIERS),
    rule(
        "anthropic_effort",
        ANTHROPIC,
        Place::OutputConfig("effort"),
        Bound::Word(&["low", "medium", "high", "xhigh", "max"]),
    ),
];

/// The settings of one generation model, checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ModelSettings {
    /// Tokens of an answer at most.
    pub(crate) max_tokens: Option<u64>,
    /// The limit of one call.
    pub(crate) timeout: Option<Duration>,
    /// Fields of the request.
    pub(crate) body: Map<String, Value>,
    /// Fields of the request's `output_config`.
    pub(crate) output_config: Map<String, Value>,
}

impl ModelSettings {
    /// Reads the settings of a model that is asked over this protocol.
    pub(crate) fn parse(text: Option<&Secret>, protocol: Protocol) -> Result<Self, ConfigurationError> {
        let mut settings = Self::default();
        for (name, value) in read(text)? {
            let rule = rule_of(&name, protocol)?;
            if !rule.bound.allows(&value) {
                return Err(invalid(&name, format!("must be {}", rule.bound.rule())));
            }
            let taken = match rule.place {
                Place::Body(field) => settings.body.insert(field.to_owned(), value).is_some(),
                Place::OutputConfig(field) => {
                    settings.output_config.insert(field.to_owned(), value).is_some()
                }
                Place::MaxTokens => std::mem::replace(&mut settings.max_tokens, value.as_u64()).is_some(),
                Place::Timeout => {
                    let time = value.as_f64().and_then(|n| Duration::try_from_secs_f64(n).ok());
                    std::mem::replace(&mut settings.timeout, time).is_some()
                }
            };
            if taken {
                return Err(invalid(&name, "is set a second time under another name".to_owned()));
            }
        }
        Ok(settings)
    }
}

/// The settings of one embedding model, checked: `dimensions` and `truncate` alone (TM-081).
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EmbeddingSettings {
    /// Fields of the request.
    pub(crate) body: Map<String, Value>,
}

impl EmbeddingSettings {
    /// Reads the settings of a model whose vectors have `dimension` numbers.
    pub(crate) fn parse(
        text: Option<&Secret>,
        protocol: Protocol,
        dimension: usize,
    ) -> Result<Self, ConfigurationError> {
        let mut body = Map::new();
        for (name, value) in read(text)? {
            let problem = match name.as_str() {
                "dimensions" | "truncate" if protocol == Protocol::BuiltIn => {
                    return Err(unsupported(&name, protocol.without()));
                }
                "dimensions" if value.as_u64() == u64::try_from(dimension).ok() => None,
                "dimensions" => Some(format!("must be the embedding dimension, {dimension}")),
                "truncate" if protocol != Protocol::Compatible => {
                    return Err(unsupported(&name, "OpenAI has no such parameter; a compatible server may"));
                }
                "truncate" if value.is_boolean() => None,
                "truncate" => Some("must be true or false".to_owned()),
                _ => return Err(unsupported(&name, "only dimensions and truncate are")),
            };
            if let Some(problem) = problem {
                return Err(invalid(&name, problem));
            }
            body.insert(name, value);
        }
        Ok(Self { body })
    }
}

fn read(text: Option<&Secret>) -> Result<Vec<(String, Value)>, ConfigurationError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    json::fields(text.reveal()).ok_or(ConfigurationError::InvalidSettings)
}

fn rule_of(name: &str, protocol: Protocol) -> Result<&'static Rule, ConfigurationError> {
    let mut named = RULES.iter().filter(|rule| rule.name == name).peekable();
    if named.peek().is_none() {
        let reason = if is_unmetered(name) {
            "it would be work that no budget counts"
        } else {
            "only bounded settings of sampling, output, time and service tier are"
        };
        return Err(unsupported(name, reason));
    }
    named.find(|rule| rule.protocols.contains(&protocol)).ok_or_else(|| unsupported(name, protocol.without()))
}

/// The settings that are known to start, continue or keep work outside the one counted request.
fn is_unmetered(name: &str) -> bool {
    const ROOTS: [&str; 11] = [
        "extra_body",
        "extra_headers",
        "tool",
        "parallel_tool_calls",
        "function",
        "background",
        "conversation",
        "previous_response",
        "store",
        "stream",
        "mcp",
    ];
    let name = name.strip_prefix("openai_").or_else(|| name.strip_prefix("anthropic_")).unwrap_or(name);
    name == "n" || name == "container" || ROOTS.iter().any(|root| name.starts_with(root))
}

fn invalid(name: &str, problem: String) -> ConfigurationError {
    ConfigurationError::InvalidSetting { name: json::shown(name), problem }
}

fn unsupported(name: &str, reason: &'static str) -> ConfigurationError {
    ConfigurationError::UnsupportedSetting { name: json::shown(name), reason }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(settings: &Value, protocol: Protocol) -> Result<ModelSettings, ConfigurationError> {
        ModelSettings::parse(Some(&Secret::new(settings.to_string())), protocol)
    }

    #[test]
    fn every_allowed_setting_travels_under_the_name_of_its_protocol() {
        // TM-081, B-22
        let chat = json!({
            "max_tokens": 900, "timeout": 1.5, "temperature": 2, "top_p": 0.5, "seed": -7,
            "presence_penalty": -2, "frequency_penalty": 2, "openai_reasoning_effort": "low",
            "openai_text_verbosity": "high", "openai_service_tier": "flex",
        });
        let read = parse(&chat, Protocol::OpenAi).unwrap();
        assert_eq!((read.max_tokens, read.timeout), (Some(900), Some(Duration::from_millis(1500))));
        let body = json!({
            "temperature": 2, "top_p": 0.5, "seed": -7, "presence_penalty": -2, "frequency_penalty": 2,
            "reasoning_effort": "low", "verbosity": "high", "service_tier": "flex",
        });
        assert_eq!(Value::Object(read.body), body);
        let claude = json!({
            "temperature": 1, "top_p": 1, "top_k": 3, "anthropic_effort": "max", "service_tier": "standard_only",
        });
        let read = parse(&claude, Protocol::Anthropic).unwrap();
        let body = json!({ "temperature": 1, "top_p": 1, "top_k": 3, "service_tier": "standard_only" });
        assert_eq!(Value::Object(read.body), body);
        assert_eq!(Value::Object(read.output_config), json!({ "effort": "max" }));
        assert!(parse(&json!({ "top_k": 3 }), Protocol::Compatible).is_ok());
        assert_eq!(ModelSettings::parse(None, Protocol::OpenAi).unwrap(), ModelSettings::default());
    }

    #[test]
    fn whatever_is_not_on_the_list_is_not_supported() {
        // TM-081, TM-082
        for name in [
            "extra_body",
            "extra_headers",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "background",
            "conversation",
            "previous_response_id",
            "openai_previous_response_id",
            "store",
            "stream",
            "n",
            "anthropic_container",
            "stop",
            "logit_bias",
            "metadata",
            "thinking",
            "MAX_TOKENS",
            "",
        ] {
            for protocol in [Protocol::OpenAi, Protocol::Compatible, Protocol::Anthropic] {
                let error = parse(&json!({ name: 1 }), protocol).unwrap_err();
                assert!(matches!(error, ConfigurationError::UnsupportedSetting { .. }), "{name}: {error}");
            }
        }
        for (name, value, protocol) in [
            ("anthropic_effort", json!("low"), Protocol::OpenAi),
            ("top_k", json!(3), Protocol::OpenAi),
            ("seed", json!(3), Protocol::Anthropic),
            ("openai_service_tier", json!("auto"), Protocol::Anthropic),
        ] {
            let error = parse(&json!({ name: value }), protocol).unwrap_err();
            assert!(matches!(error, ConfigurationError::UnsupportedSetting { .. }), "{name}: {error}");
        }
    }

    #[test]
    fn a_value_outside_its_bounds_is_a_mistake() {
        // TM-081
        for (name, value) in [
            ("max_tokens", json!(0)),
            ("max_tokens", json!(1.5)),
            ("max_tokens", json!("9")),
            ("timeout", json!(0)),
            ("timeout", json!(3601)),
            ("temperature", json!(2.1)),
            ("temperature", json!(null)),
            ("temperature", json!([1])),
            ("top_p", json!(-0.1)),
            ("seed", json!({})),
            ("openai_reasoning_effort", json!("huge")),
            ("service_tier", json!(true)),
        ] {
            let error = parse(&json!({ name: value }), Protocol::OpenAi).unwrap_err();
            assert!(matches!(error, ConfigurationError::InvalidSetting { .. }), "{name} {value}: {error}");
        }
        let twice = json!({ "service_tier": "auto", "openai_service_tier": "auto" });
        let error = parse(&twice, Protocol::OpenAi).unwrap_err();
        assert!(matches!(error, ConfigurationError::InvalidSetting { .. }), "{error}");
        for text in ["", "[]", r#"{"seed":1,"seed":2}"#] {
            let error = ModelSettings::parse(Some(&Secret::new(text)), Protocol::OpenAi).unwrap_err();
            assert!(matches!(error, ConfigurationError::InvalidSettings), "{text}: {error}");
        }
    }

    #[test]
    fn every_allowed_setting_is_documented() {
        let page = include_str!("../../../docs/providers.md");
        for rule in RULES {
            assert!(page.contains(&format!("`{}`", rule.name)), "{}", rule.name);
        }
    }

    #[test]
    fn an_embedding_has_two_settings_and_no_other() {
        // TM-081
        let read = |text: &str, protocol| EmbeddingSettings::parse(Some(&Secret::new(text)), protocol, 8);
        let both = r#"{"dimensions":8,"truncate":true}"#;
        let body = read(both, Protocol::Compatible).unwrap().body;
        assert_eq!(Value::Object(body), json!({ "dimensions": 8, "truncate": true }));
        for text in [r#"{"dimensions":9}"#, r#"{"dimensions":"8"}"#, r#"{"truncate":1}"#] {
            let error = read(text, Protocol::Compatible).unwrap_err();
            assert!(matches!(error, ConfigurationError::InvalidSetting { .. }), "{text}: {error}");
        }
        for text in [r#"{"truncate":true}"#, r#"{"user":"x"}"#, r#"{"extra_body":{}}"#] {
            let error = read(text, Protocol::OpenAi).unwrap_err();
            assert!(matches!(error, ConfigurationError::UnsupportedSetting { .. }), "{text}: {error}");
        }
    }
}
