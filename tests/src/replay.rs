//! Replays recorded exchanges against a running server and reports every difference.
//!
//! What is fixed and what is free is decided in [`compare`]; placeholders in [`names`]; which steps
//! this release does not offer in [`outside`]. Starting the server, and publishing Topics through
//! the store where the recording wrote them by HTTP, are left to the test. The server must be unused
//! and without a generation model, as the recorded one was.

pub mod compare;
pub mod names;
pub mod outside;
pub mod scenario;
pub mod through_store;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use powercontext_core::content;
use powercontext_core::topic::{FAMILY, TopicContent};
use reqwest::Method;
use serde_json::{Value, json};

use self::compare::{Answer, compare};
use self::names::Names;
use self::outside::Route;
use self::scenario::Step;

/// Publishes a Topic the way a worker would: one Source as evidence, one publish transaction (TM-018).
#[async_trait]
pub trait Publisher: Send + Sync {
    /// Creates or evolves one Topic and says what was published; the text of an error is reported.
    async fn publish(&self, publication: Publication) -> Result<Published, String>;
}

/// A Topic that the recording wrote by HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct Publication {
    /// The Scope, as our server named it.
    pub scope_id: String,
    /// The complete content.
    pub content: TopicContent,
    /// The Topic's identity and the Revision to evolve; `None` makes a new Topic.
    pub replaces: Option<(String, i64)>,
}

/// What came of a [`Publication`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The Topic's identity.
    pub artifact_id: String,
    /// The new Revision.
    pub revision: i64,
    /// The Sources that the Revision cites.
    pub source_ids: Vec<String>,
}

/// Where something happened: a scenario file and a step of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// `area/file` without the extension.
    pub scenario: String,
    /// 1-based number, note and request of the step.
    pub step: String,
}

/// What a replay found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Scenarios without a difference.
    pub passed: usize,
    /// Scenarios with one or more.
    pub failed: usize,
    /// Steps whose answer, or published Topic, was compared.
    pub compared: usize,
    /// Every difference.
    pub problems: Vec<(Place, String)>,
    /// Steps that were left out, with the reason.
    pub skipped: Vec<(Place, &'static str)>,
}

impl Report {
    /// Whether something was compared and nothing differed.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.compared > 0 && self.problems.is_empty() && self.failed == 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in &self.problems {
            writeln!(out, "{}: {}: {problem}", place.scenario, place.step)?;
        }
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        for (_, reason) in &self.skipped {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, count)) => *count += 1,
                None => reasons.push((reason, 1)),
            }
        }
        for (reason, count) in reasons {
            writeln!(out, "{count} steps left out: {reason}")?;
        }
        write!(out, "{} steps compared; {} passed, {} failed", self.compared, self.passed, self.failed)
    }
}

/// Replays every scenario under `dir`, one after another, those that need an unused server first.
///
/// Unreadable scenarios and requests that get no answer are reported as problems, so that the
/// report alone decides a test.
pub async fn replay(base_url: &str, dir: &Path, publisher: &dyn Publisher) -> Report {
    let mut report = Report::default();
    let mut loaded = Vec::new();
    for file in scenario::files(dir) {
        match scenario::load(&file) {
            Ok(steps) => loaded.push((scenario_name(&file), steps)),
            Err(problem) => report.fail(scenario_name(&file), String::new(), problem),
        }
    }
    loaded.sort_by_key(|(_, steps)| !steps.iter().any(Step::needs_a_fresh_server));
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .expect("a client without special settings");
    let base_url = base_url.trim_end_matches('/');
    for (name, steps) in loaded {
        let before = report.problems.len();
        let mut run = Run { client: &client, base_url, publisher, names: Names::new(base_url) };
        for (number, step) in (1..).zip(&steps) {
            let place = Place { scenario: name.clone(), step: format!("step {number} ({})", step.title()) };
            match run.step(step).await {
                Done::Skipped(reason) => report.skipped.push((place, reason)),
                Done::Sent => {}
                Done::Compared(problems) => {
                    report.compared += 1;
                    report.problems.extend(problems.into_iter().map(|problem| (place.clone(), problem)));
                }
            }
        }
        if report.problems.len() == before { report.passed += 1 } else { report.failed += 1 }
    }
    report
}

impl Report {
    fn fail(&mut self, scenario: String, step: String, problem: String) {
        self.failed += 1;
        self.problems.push((Place { scenario, step }, problem));
    }
}

fn scenario_name(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let area = file.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    format!("{area}/{stem}")
}

/// What became of one step.
enum Done {
    Skipped(&'static str),
    /// Sent without comparing the answer.
    Sent,
    Compared(Vec<String>),
}

/// One scenario under way.
struct Run<'a> {
    client: &'a reqwest::Client,
    base_url: &'a str,
    publisher: &'a dyn Publisher,
    names: Names,
}

impl Run<'_> {
    async fn step(&mut self, step: &Step) -> Done {
        let done = match outside::route(step) {
            Route::NotOffered(reason) => Done::Skipped(reason),
            Route::Publish => {
                Done::Compared(self.publish(step).await.unwrap_or_else(|problem| vec![problem]))
            }
            Route::Send => match self.send(step).await {
                Err(problem) => Done::Compared(vec![problem]),
                Ok(_) if step.informative.is_some() => Done::Sent,
                Ok(answer) => Done::Compared(compare(step, &answer, &mut self.names)),
            },
        };
        // Ids also change places after a step that was left out: later answers rely on it.
        match (self.names.sort_rows(&step.sort_after), done) {
            (Err(problem), Done::Compared(mut problems)) => {
                problems.push(problem);
                Done::Compared(problems)
            }
            (Err(problem), _) => Done::Compared(vec![problem]),
            (Ok(()), done) => done,
        }
    }

    async fn send(&mut self, step: &Step) -> Result<Answer, String> {
        let method = Method::from_bytes(step.method.as_bytes()).map_err(|problem| problem.to_string())?;
        let url = format!("{}{}", self.base_url, self.names.fill(&step.path)?);
        let mut request = self.client.request(method, url);
        for (name, value) in &step.headers {
            request = request.header(name, self.names.fill(value)?);
        }
        if let Some(body) = &step.body {
            if !step.headers.contains_key("content-type") {
                request = request.header("content-type", "application/json");
            }
            request = request.body(self.names.fill_json(body)?.to_string());
        } else if let Some(body) = &step.raw_body {
            request = request.body(self.names.fill(body)?);
        }
        let response = request.send().await.map_err(|problem| format!("no answer: {problem:?}"))?;
        let status = response.status().as_u16();
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| {
                (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect();
        let body = response.bytes().await.map_err(|problem| format!("half an answer: {problem:?}"))?.to_vec();
        Ok(Answer { status, headers, body })
    }

    /// Publishes the step's content through the store and compares what came of it with the answer
    /// that the recording has.
    async fn publish(&mut self, step: &Step) -> Result<Vec<String>, String> {
        let path = self.names.fill(&step.path)?;
        let body = self.names.fill_json(step.body.as_ref().unwrap_or(&Value::Null))?;
        let parts: Vec<&str> = path.split('/').collect();
        let scope_id = parts.get(3).copied().unwrap_or_default().to_owned();
        let replaces = match (parts.get(6), step.headers.get("if-match")) {
            (Some(artifact_id), Some(tag)) => {
                let revision =
                    tag.trim_matches('"').strip_prefix("revision:").and_then(|text| text.parse().ok());
                Some(((*artifact_id).to_owned(), revision.ok_or("the entity tag names no revision")?))
            }
            _ => None,
        };
        let content: TopicContent =
            serde_json::from_value(body["content"].clone()).map_err(|problem| problem.to_string())?;
        let publication = Publication { scope_id, content, replaces };
        let published = self.publisher.publish(publication.clone()).await?;
        let answer = as_recorded(step, &publication, &published);
        // The headers of an operation that was never called cannot be compared.
        let step =
            Step { response_headers: HashMap::new(), contract_headers: HashMap::new(), ..step.clone() };
        Ok(compare(&step, &answer, &mut self.names))
    }
}

/// The answer an HTTP write of the same content would have had.
fn as_recorded(step: &Step, publication: &Publication, published: &Published) -> Answer {
    let artifact =
        |id: &str, revision: i64| json!({"family": FAMILY, "artifact_id": id, "revision": revision});
    let mut body = artifact(&published.artifact_id, published.revision);
    let sources: Vec<Value> = published
        .source_ids
        .iter()
        .map(|source_id| json!({"source_type": "content", "source_id": source_id}))
        .collect();
    body["scope_id"] = json!(publication.scope_id);
    body["sources"] = json!(sources);
    body["artifacts"] =
        publication.replaces.iter().map(|(id, revision)| artifact(id, *revision)).collect::<Vec<_>>().into();
    if publication.replaces.is_some() {
        let content = json!(publication.content);
        let canonical = content::canonical(&content).expect("three texts have a canonical form");
        body["content_digest"] = json!(content::digest(&canonical));
        body["content"] = content;
        body["memory_citations"] = json!([]);
    }
    let headers = HashMap::from([("x-powercontext-request-id".to_owned(), "published".to_owned())]);
    Answer { status: step.status, headers, body: body.to_string().into_bytes() }
}

/// The committed recordings, all areas of them.
#[must_use]
pub fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("exchanges")
}

#[cfg(test)]
mod tests;
