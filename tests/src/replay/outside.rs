//! Which recorded steps are not sent to the server, each with its reason.

use super::scenario::Step;

/// What to do with a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Send it and compare the answer.
    Send,
    /// Publish its content through the store: a Topic cannot be written by HTTP (TM-018).
    Publish,
    /// Leave it out.
    NotOffered(&'static str),
}

/// Operations that are not offered yet, by the start of the path behind the Scope if it has one.
const NOT_OFFERED: [(&str, &str); 4] = [
    ("/v1/scope-bindings", "scope bindings are not offered yet"),
    ("/v1/scopes/selection/resolve", "resolving a selection of scopes is not offered yet"),
    ("/v1/scopes/*/artifacts", "reading and writing artifacts by HTTP is not offered yet"),
    ("/v1/context/prepare", "preparing context is not offered yet"),
];

/// Decides one step by its method, path, body and recorded status.
#[must_use]
pub fn route(step: &Step) -> Route {
    if writes_a_topic(step) {
        return Route::Publish;
    }
    let path = step.path.split('?').next().unwrap_or_default();
    NOT_OFFERED
        .iter()
        .find(|(pattern, _)| starts_with(path, pattern))
        .map_or(Route::Send, |(_, reason)| Route::NotOffered(reason))
}

/// Whether the recording created or replaced a Topic with this step.
fn writes_a_topic(step: &Step) -> bool {
    let family = || step.body.as_ref().and_then(|body| body["family"].as_str()) == Some("topic-memory");
    match (step.method.as_str(), step.status) {
        ("POST", 201) => starts_with(&step.path, "/v1/scopes/*/artifacts") && family(),
        ("PUT", 200) => starts_with(&step.path, "/v1/scopes/*/artifacts/topic-memory/*"),
        _ => false,
    }
}

/// Whether a path begins with the parts of a pattern, where `*` is any one part.
fn starts_with(path: &str, pattern: &str) -> bool {
    let mut parts = path.split('/');
    pattern.split('/').all(|wanted| parts.next().is_some_and(|part| wanted == "*" || part == wanted))
}
