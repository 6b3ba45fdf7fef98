//! The comparison rules, one by one, and the whole replay against a small server of its own.

use serde_json::{Value, json};

use super::compare::{Answer, compare};
use super::names::{Names, expand};
use super::outside::{Route, route};
use super::scenario::Step;
use super::*;

/// A step with an answer; `more` adds or replaces keys.
fn step(response: Value, more: Value) -> Step {
    let mut text =
        json!({"note": "n", "method": "GET", "path": "/v1/x", "status": 200, "response": response});
    for (key, value) in more.as_object().unwrap() {
        text[key] = value.clone();
    }
    serde_json::from_value(text).unwrap()
}

fn answer(body: Value) -> Answer {
    let headers = [("content-type", "application/json; charset=utf-8"), ("x-powercontext-request-id", "r")];
    Answer {
        status: 200,
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: body.to_string().into_bytes(),
    }
}

fn names() -> Names {
    Names::new("http://server")
}

/// The differences of a body alone.
fn differences(wanted: Value, found: Value) -> Vec<String> {
    compare(&step(wanted, json!({})), &answer(found), &mut names())
}

#[test]
fn every_field_name_and_value_is_fixed() {
    assert!(differences(json!({"a": 1, "b": null}), json!({"b": null, "a": 1})).is_empty());
    for found in [json!({"a": 1}), json!({"a": 1, "b": null, "c": 1}), json!({"a": 2, "b": null})] {
        assert_eq!(differences(json!({"a": 1, "b": null}), found.clone()).len(), 1, "{found}");
    }
    assert_eq!(differences(json!({"a": null}), json!({"a": false})).len(), 1);
    assert_eq!(differences(json!({"a": 1}), json!({"a": true})).len(), 1);
    assert_eq!(differences(json!({"a": "1"}), json!({"a": 1})).len(), 1);
}

#[test]
fn scores_may_differ_by_a_billionth_and_an_integer_stays_an_integer() {
    assert!(differences(json!(50.0), json!(50.000_000_000_1)).is_empty());
    assert!(differences(json!(50.0), json!(50)).is_empty());
    assert_eq!(differences(json!(50.0), json!(50.000_1)).len(), 1);
    assert_eq!(differences(json!(1), json!(1.0)).len(), 1);
}

#[test]
fn the_order_and_number_of_items_are_fixed() {
    assert_eq!(differences(json!([1, 2]), json!([1])).len(), 1);
    assert_eq!(differences(json!([1]), json!([1, 2])).len(), 1);
    assert_eq!(differences(json!([1, 2]), json!([2, 1])).len(), 2);
}

#[test]
fn an_unordered_list_is_compared_as_a_set() {
    let unordered = step(json!({"l": [1, 2, 2]}), json!({"unordered": ["/l"]}));
    assert!(compare(&unordered, &answer(json!({"l": [2, 1, 2]})), &mut names()).is_empty());
    assert_eq!(compare(&unordered, &answer(json!({"l": [2, 1, 1]})), &mut names()).len(), 1);
    assert_eq!(compare(&unordered, &answer(json!({"l": [2, 1, 2, 3]})), &mut names()).len(), 1);
}

#[test]
fn a_sorted_list_must_ascend_by_its_key_and_binds_the_right_names() {
    let wanted = json!({"l": [{"id": "{{scope.a}}", "t": "A"}, {"id": "{{scope.b}}", "t": "B"}]});
    let sorted = step(wanted, json!({"sorted_by": {"/l": "/id"}}));
    let mut bound = names();
    let found = json!({"l": [{"id": "s1", "t": "B"}, {"id": "s2", "t": "A"}]});
    assert!(compare(&sorted, &answer(found), &mut bound).is_empty());
    assert_eq!(bound.fill("{{scope.a}} {{scope.b}}").unwrap(), "s2 s1");
    let descending = json!({"l": [{"id": "s2", "t": "A"}, {"id": "s1", "t": "B"}]});
    assert_eq!(compare(&sorted, &answer(descending), &mut names()).len(), 1);
}

#[test]
fn a_placeholder_is_bound_at_first_sight_and_fixed_from_then_on() {
    let mut bound = names();
    let first = step(json!({"id": "{{scope.a}}"}), json!({}));
    assert_eq!(compare(&first, &answer(json!({"id": ""})), &mut bound).len(), 1, "empty");
    assert!(compare(&first, &answer(json!({"id": "x"})), &mut bound).is_empty());
    assert_eq!(compare(&first, &answer(json!({"id": "y"})), &mut bound).len(), 1);
    let inside = step(json!("see {{scope.a}}!"), json!({}));
    assert!(compare(&inside, &answer(json!("see x!")), &mut bound).is_empty());
    assert_eq!(compare(&inside, &answer(json!("see y!")), &mut bound).len(), 1);
    let unseen = step(json!("see {{scope.b}}!"), json!({}));
    assert_eq!(compare(&unseen, &answer(json!("see y!")), &mut bound).len(), 1);
    let any = step(json!("{{any.id}}"), json!({}));
    for id in ["1", "2"] {
        assert!(compare(&any, &answer(json!(id)), &mut bound).is_empty());
    }
}

#[test]
fn a_fresh_text_is_made_up_once_and_a_server_value_never() {
    let mut bound = names();
    let key = bound.fill("{{fresh.key-a}}").unwrap();
    assert_eq!(bound.fill("{{fresh.key-a}}").unwrap(), key);
    assert_ne!(bound.fill("{{fresh.key-b}}").unwrap(), key);
    assert_ne!(names().fill("{{fresh.key-a}}").unwrap(), key);
    assert!(key.len() <= 64 && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
    assert!(bound.fill("{{scope.a}}").is_err());
    assert_eq!(bound.fill("{{config.base_url}}/{{x}} {").unwrap(), "http://server/{{x}} {");
}

#[test]
fn the_repeat_macro_is_written_out_before_placeholders() {
    assert_eq!(expand("a{{repeat:3:xy}}b{{repeat:2: }}c"), "axyxyxyb  c");
    assert_eq!(expand("{{repeat:x:y}}{{scope.a}}"), "{{repeat:x:y}}{{scope.a}}");
    assert!(differences(json!("{{repeat:4:漢}}"), json!("漢漢漢漢")).is_empty());
}

#[test]
fn rows_are_sorted_by_their_first_column_and_bound_again_from_the_top() {
    let mut bound = names();
    let pair = json!(["{{entry.1}}", "{{version.1}}", "{{entry.2}}", "{{version.2}}"]);
    assert!(compare(&step(pair, json!({})), &answer(json!(["e9", "v1", "e1", "v2"])), &mut bound).is_empty());
    let row = |entry: &str, version: &str| vec![entry.to_owned(), version.to_owned()];
    bound.sort_rows(&[row("entry.1", "version.1"), row("entry.2", "version.2")]).unwrap();
    let filled = bound.fill("{{entry.1}} {{version.1}} {{entry.2}} {{version.2}}").unwrap();
    assert_eq!(filled, "e1 v2 e9 v1");
    assert!(bound.sort_rows(&[row("entry.3", "version.1")]).is_err());
}

#[test]
fn what_a_step_frees_needs_only_be_present() {
    let free = step(json!({"a": {"b": 1}, "c": 1}), json!({"free": ["/a"]}));
    assert!(compare(&free, &answer(json!({"a": [], "c": 1})), &mut names()).is_empty());
    assert_eq!(compare(&free, &answer(json!({"c": 1})), &mut names()).len(), 1);
    let everything =
        step(json!({"a": 1}), json!({"free": [""], "response_headers": {"content-type": "x/y"}}));
    assert!(compare(&everything, &answer(json!(7)), &mut names()).is_empty());
}

#[test]
fn wording_is_free_and_error_codes_are_not() {
    let error = |code: &str, message: Value, details: Value| json!({"error": {"code": code, "message": message, "details": details}});
    let conflict = error("conflict", json!("Recorded."), json!({"reason": "one", "field": "f"}));
    let reworded = error("conflict", json!("Ours."), json!({"reason": "two", "field": "f"}));
    assert!(differences(conflict.clone(), reworded).is_empty());
    let other_field = error("conflict", json!("Ours."), json!({"reason": "two", "field": "g"}));
    assert_eq!(differences(conflict.clone(), other_field).len(), 1);
    let other_code = error("gone", json!("Ours."), json!({"reason": "two", "field": "f"}));
    assert_eq!(differences(conflict.clone(), other_code).len(), 1);
    let wordless = error("conflict", json!(""), json!({"reason": "two", "field": "f"}));
    assert_eq!(differences(conflict, wordless).len(), 1);

    let invalid = error("invalid_request", json!("Recorded."), json!({"errors": []}));
    for details in [json!(null), json!({"field": "x"})] {
        assert!(differences(invalid.clone(), error("invalid_request", json!("Ours."), details)).is_empty());
    }
    assert_eq!(differences(invalid, error("invalid_request", json!("Ours."), json!([]))).len(), 1);
}

#[test]
fn the_status_and_the_contract_headers_are_fixed_and_framework_bodies_free() {
    let mut gone = answer(json!({}));
    gone.status = 410;
    assert_eq!(compare(&step(json!({}), json!({})), &gone, &mut names()).len(), 1);

    let media = |value: &str| step(json!({}), json!({"response_headers": {"content-type": value}}));
    assert!(compare(&media("Application/JSON"), &answer(json!({})), &mut names()).is_empty());
    assert_eq!(compare(&media("text/plain"), &answer(json!({})), &mut names()).len(), 1);

    let tag = step(json!({}), json!({"contract_headers": {"etag": "\"revision:1\"", "allow": "GET"}}));
    let problems = compare(&tag, &answer(json!({})), &mut names());
    assert_eq!(problems, ["header etag: missing"], "`allow` is free");

    let mut framework = answer(json!("anything"));
    let detail = step(json!({"detail": "Not Found"}), json!({"response_headers": {"content-type": "a/b"}}));
    assert!(compare(&detail, &framework, &mut names()).is_empty());
    framework.headers.clear();
    assert_eq!(compare(&detail, &framework, &mut names()).len(), 1, "the request id is always there");
}

#[test]
fn a_body_that_is_not_json_is_compared_as_text() {
    let plain = step(json!(null), json!({"response_text": "ok"}));
    let mut found = answer(json!(null));
    found.body = b"ok".to_vec();
    assert!(compare(&plain, &found, &mut names()).is_empty());
    found.body = b"no".to_vec();
    assert_eq!(compare(&plain, &found, &mut names()).len(), 1);
    assert_eq!(compare(&step(json!({}), json!({})), &found, &mut names()), ["/: the body is not JSON"]);
}

#[test]
fn writes_of_topics_are_published_and_operations_outside_the_release_left_out() {
    let at = |method: &str, path: &str, status: u16, family: &str| {
        route(&step(
            json!(null),
            json!({"method": method, "path": path, "status": status, "body": {"family": family}}),
        ))
    };
    let artifacts = "/v1/scopes/{{scope.a}}/artifacts";
    let topic = "/v1/scopes/{{scope.a}}/artifacts/topic-memory/{{artifact.1}}";
    // TM-018
    assert_eq!(at("POST", artifacts, 201, "topic-memory"), Route::Publish);
    assert_eq!(at("PUT", topic, 200, ""), Route::Publish);
    for (method, path, status, family) in [
        ("POST", artifacts, 201, "memory"),
        ("PUT", topic, 412, ""),
        ("GET", topic, 200, ""),
        ("GET", "/v1/scopes/{{scope.a}}/artifacts/topic-memory?limit=1", 200, ""),
        ("POST", "/v1/scope-bindings/resolve", 200, ""),
        ("POST", "/v1/scopes/selection/resolve", 200, ""),
        ("POST", "/v1/context/prepare", 200, ""),
    ] {
        assert!(matches!(at(method, path, status, family), Route::NotOffered(_)), "{method} {path}");
    }
    for path in ["/health/live", "/v1/scopes", "/v1/scopes/selection", "/v1/scopes/{{scope.a}}/sources"] {
        assert_eq!(at("GET", path, 200, ""), Route::Send, "{path}");
    }
}

#[test]
fn every_committed_scenario_can_be_read_and_most_steps_are_replayed() {
    let mut routes = HashMap::new();
    let files = scenario::files(&recordings());
    for file in &files {
        for step in scenario::load(file).unwrap_or_else(|problem| panic!("{}: {problem}", file.display())) {
            let kind = match route(&step) {
                Route::Send => "send",
                Route::Publish => "publish",
                Route::NotOffered(_) => "left out",
            };
            *routes.entry(kind).or_insert(0) += 1;
        }
    }
    assert_eq!(files.len(), 28);
    assert_eq!((routes["publish"], routes["left out"]), (8, 14), "{routes:?}");
    assert!(routes["send"] > 200, "{routes:?}");
}

/// Publishes nothing real: answers what a store would.
struct Canned;

#[async_trait]
impl Publisher for Canned {
    async fn publish(&self, publication: Publication) -> Result<Published, String> {
        assert_eq!(publication.scope_id, "s-1");
        let revision = publication.replaces.as_ref().map_or(1, |(_, revision)| revision + 1);
        Ok(Published { artifact_id: "t-1".to_owned(), revision, source_ids: vec![format!("src-{revision}")] })
    }
}

/// Serves one answer for every request and replays `steps` against it.
async fn replayed(steps: Value, body: Value) -> Report {
    use axum::http::header::HeaderName;

    let answer = move || {
        let body = body.to_string();
        async move {
            let id = (HeaderName::from_static("x-powercontext-request-id"), "r");
            ([id, (axum::http::header::CONTENT_TYPE, "application/json")], body)
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base_url = format!("http://{}", listener.local_addr().unwrap());
    let server =
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("01-scenario.json"), steps.to_string()).unwrap();
    let report = replay(&base_url, folder.path(), &Canned).await;
    server.abort();
    report
}

#[tokio::test]
async fn a_scenario_passes_when_every_answer_is_like_the_recorded_one() {
    let topic = json!({"title": "T", "summary": "S", "detail": "D"});
    let digest = content::digest(&content::canonical(&topic).unwrap());
    let reference = |revision: i64| json!({"family": "topic-memory", "artifact_id": "{{artifact.1}}", "revision": revision});
    let written = |revision: i64, artifacts: Value| {
        let mut body = reference(revision);
        body["scope_id"] = json!("{{scope.a}}");
        body["sources"] =
            json!([{"source_type": "content", "source_id": format!("{{{{source.{revision}}}}}")}]);
        body["artifacts"] = artifacts;
        body
    };
    let mut replaced = written(2, json!([reference(1)]));
    replaced["content"] = topic.clone();
    replaced["memory_citations"] = json!([]);
    replaced["content_digest"] = json!(digest);
    let steps = json!([
        {"note": "scope", "method": "POST", "path": "/v1/scopes", "body": {"k": "{{fresh.k}}"}, "status": 200,
         "response": {"scope_id": "{{scope.a}}"}},
        {"note": "not binding", "method": "GET", "path": "/v1/scopes", "status": 404, "informative": "why not"},
        {"note": "create", "method": "POST", "path": "/v1/scopes/{{scope.a}}/artifacts", "status": 201,
         "body": {"family": "topic-memory", "content": topic}, "response": written(1, json!([])),
         "contract_headers": {"etag": "\"revision:1\""}},
        {"note": "replace", "method": "PUT", "status": 200,
         "path": "/v1/scopes/{{scope.a}}/artifacts/topic-memory/{{artifact.1}}",
         "headers": {"if-match": "\"revision:1\""}, "body": {"content": topic}, "response": replaced},
        {"note": "bindings", "method": "GET", "path": "/v1/scope-bindings", "status": 200, "response": null},
    ]);
    let report = replayed(steps, json!({"scope_id": "s-1"})).await;
    assert!(report.is_clean(), "{report}");
    assert_eq!((report.passed, report.compared, report.skipped.len()), (1, 3, 1), "{report}");
}

#[tokio::test]
async fn a_scenario_fails_by_its_first_different_answer_and_by_an_unknown_rule() {
    let steps = json!([
        {"note": "scope", "method": "GET", "path": "/v1/scopes", "status": 200, "response": {"scope_id": 1}},
    ]);
    let report = replayed(steps, json!({"scope_id": "s-1"})).await;
    assert!(!report.is_clean());
    assert_eq!((report.failed, report.problems.len()), (1, 1), "{report}");
    assert!(report.to_string().ends_with("1 steps compared; 0 passed, 1 failed"), "{report}");

    let unknown = json!([{"note": "n", "method": "GET", "path": "/", "status": 200, "tolerate": ["/a"]}]);
    assert_eq!(replayed(unknown, json!({})).await.failed, 1);
    assert!(!replayed(json!([]), json!({})).await.is_clean(), "nothing compared is nothing proven");
}
