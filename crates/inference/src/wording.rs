//! What is said to a model around a stage's own text, alike for every protocol.

use serde_json::{Value, json};

use crate::generator::GenerationRequest;

/// Stands for an answer without a word; some providers refuse to be shown an empty message.
const NO_ANSWER: &str = "(no text)";

/// The instructions with the schema in them, for endpoints that do not enforce one.
pub(crate) fn with_schema(request: &GenerationRequest<'_>) -> String {
    format!(
        "{}\n\nAnswer with one JSON object that satisfies this JSON schema:\n{}",
        request.instructions, request.schema
    )
}

/// The messages: the input, and after a refused answer that answer and what was wrong with it.
pub(crate) fn exchange(request: &GenerationRequest<'_>) -> Vec<Value> {
    let mut messages = vec![json!({ "role": "user", "content": request.input.to_string() })];
    if let Some(correction) = request.correction {
        let answer = if correction.answer.trim().is_empty() { NO_ANSWER } else { &correction.answer };
        messages.push(json!({ "role": "assistant", "content": answer }));
        messages.push(json!({
            "role": "user",
            "content": format!(
                "That answer was not accepted: {}. Give the complete corrected JSON object.",
                correction.problem
            ),
        }));
    }
    messages
}
