//! OpenAI's embeddings protocol, for OpenAI itself and for compatible endpoints.
//!
//! The texts go out in as few requests as their number and size allow, one after the other. A vector
//! is used only after its place, its dimension and every number in it were checked.

use async_trait::async_trait;
use powercontext_core::endpoint::Normalization;
use reqwest::header::AUTHORIZATION;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::batch::{MAX_BATCH_TOKENS, batches};
use crate::config::ConfigurationError;
use crate::embedder::{
    Embedder, EmbeddingConfig, EmbeddingError, EmbeddingFailure, Embeddings, InvalidVectors, Spent,
};
use crate::error::GenerationError;
use crate::openai::BASE_URL;
use crate::settings::{EmbeddingSettings, Protocol};
use crate::transport::{Endpoint, EndpointParts, secret_header};

/// Bytes of a response around its numbers, and of one number, at most.
const RESPONSE_BYTES: (usize, usize) = (1024 * 1024, 40);

/// One embedding model behind one endpoint.
#[derive(Debug)]
pub(crate) struct OpenAiEmbeddings {
    model: String,
    name: String,
    dimension: usize,
    batch_size: usize,
    normalization: Normalization,
    settings: EmbeddingSettings,
    endpoint: Endpoint,
}

impl OpenAiEmbeddings {
    /// Checks the endpoint's settings and sets up its client; sends nothing.
    pub(crate) fn new(name: &str, config: &EmbeddingConfig) -> Result<Self, ConfigurationError> {
        if config.base_url.is_none() && config.api_key.is_none() {
            return Err(ConfigurationError::MissingKey { model: config.model.clone() });
        }
        let protocol = if config.base_url.is_none() { Protocol::OpenAi } else { Protocol::Compatible };
        let key = config.api_key.as_ref().map(|key| secret_header(&format!("Bearer {}", key.reveal())));
        let endpoint = Endpoint::new(EndpointParts {
            base_url: config.base_url.as_deref().unwrap_or(BASE_URL),
            path: &["embeddings"],
            headers: key.transpose()?.map(|key| (AUTHORIZATION, key)).into_iter().collect(),
            further: config.headers.as_ref(),
            timeout: config.timeout,
        })?;
        Ok(Self {
            model: config.model.clone(),
            name: name.to_owned(),
            dimension: config.dimension,
            batch_size: config.batch_size,
            normalization: config.normalization,
            settings: EmbeddingSettings::parse(config.settings.as_ref(), protocol, config.dimension)?,
            endpoint,
        })
    }

    fn body(&self, texts: &[String]) -> Value {
        let mut body = Map::new();
        body.insert("model".to_owned(), self.name.clone().into());
        body.insert("input".to_owned(), texts.into());
        body.insert("encoding_format".to_owned(), "float".into());
        body.extend(self.settings.body.clone());
        Value::Object(body)
    }

    async fn batch(&self, texts: &[String], spent: &mut Spent) -> Result<Vec<Vec<f32>>, EmbeddingFailure> {
        let numbers = texts.len().saturating_mul(self.dimension);
        let limit = numbers.saturating_mul(RESPONSE_BYTES.1).saturating_add(RESPONSE_BYTES.0);
        spent.requests = spent.requests.saturating_add(1);
        let reply = self.endpoint.ask(&self.body(texts), limit).await.map_err(EmbeddingFailure::Endpoint)?;
        let usage = reply.usage();
        let (sum, own) = (&mut spent.usage, usage.unwrap_or_default());
        sum.input_tokens = sum.input_tokens.saturating_add(own.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(own.output_tokens);
        if let Some(failure) = reply.failure() {
            return Err(EmbeddingFailure::Endpoint(failure));
        }
        let Ok(Answer { data }) = serde_json::from_slice(&reply.body) else {
            return Err(EmbeddingFailure::Endpoint(GenerationError::Unreadable { usage }));
        };
        let vectors = in_order(data, texts.len()).map_err(EmbeddingFailure::Vectors)?;
        let checked = vectors.iter().map(|vector| numbers_of(vector, self.dimension, self.normalization));
        checked.collect::<Result<_, _>>().map_err(EmbeddingFailure::Vectors)
    }
}

#[async_trait]
impl Embedder for OpenAiEmbeddings {
    fn model(&self) -> &str {
        &self.model
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    async fn embed(&self, texts: &[String]) -> Result<Embeddings, EmbeddingError> {
        let mut spent = Spent::default();
        if let Some(place) = texts.iter().position(|text| text.trim().is_empty()) {
            return Err(EmbeddingError { spent, cause: EmbeddingFailure::BlankText { place } });
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for range in batches(texts, self.batch_size, MAX_BATCH_TOKENS) {
            let texts = texts.get(range).unwrap_or_default();
            match self.batch(texts, &mut spent).await {
                Ok(batch) => vectors.extend(batch),
                Err(cause) => return Err(EmbeddingError { spent, cause }),
            }
        }
        Ok(Embeddings { vectors, spent })
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    index: Option<Value>,
    #[serde(default)]
    embedding: Value,
}

/// The vectors in the order of the texts: each index there exactly once, in whatever order.
fn in_order(items: Vec<Item>, texts: usize) -> Result<Vec<Value>, InvalidVectors> {
    if items.len() != texts {
        return Err(InvalidVectors::Count { given: items.len(), texts });
    }
    let mut places: Vec<Option<Value>> = vec![None; texts];
    for Item { index, embedding } in items {
        let index = index.as_ref().and_then(Value::as_u64).and_then(|index| usize::try_from(index).ok());
        let place = index.and_then(|index| places.get_mut(index)).ok_or(InvalidVectors::Order)?;
        *place = Some(embedding);
    }
    // As many as there are texts: one that is repeated leaves another one out.
    places.into_iter().collect::<Option<Vec<_>>>().ok_or(InvalidVectors::Order)
}

/// The numbers of one vector, checked and normalised.
fn numbers_of(
    vector: &Value,
    dimension: usize,
    normalization: Normalization,
) -> Result<Vec<f32>, InvalidVectors> {
    let entries = vector.as_array().ok_or(InvalidVectors::NotFinite)?;
    if entries.len() != dimension {
        return Err(InvalidVectors::Dimension { given: entries.len(), dimension });
    }
    #[allow(clippy::cast_possible_truncation, reason = "what is too large becomes infinite and is refused")]
    let finite = |number: f64| Some(number as f32).filter(|number| number.is_finite());
    let numbers: Vec<f64> = entries
        .iter()
        .map(|entry| entry.as_f64().filter(|number| finite(*number).is_some()))
        .collect::<Option<_>>()
        .ok_or(InvalidVectors::NotFinite)?;
    let length = numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    let divisor = match normalization {
        Normalization::Unit => length,
        Normalization::None => 1.0,
    };
    let scaled = numbers.iter().map(|number| finite(number / divisor));
    // What is too small for the stored numbers is as good as zero.
    let vector: Vec<f32> = scaled.collect::<Option<_>>().ok_or(InvalidVectors::Zero)?;
    if vector.iter().all(|number| *number == 0.0) { Err(InvalidVectors::Zero) } else { Ok(vector) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items(indexes: &[Value]) -> Vec<Item> {
        let item = |(at, index): (usize, &Value)| Item { index: Some(index.clone()), embedding: json!(at) };
        indexes.iter().enumerate().map(item).collect()
    }

    #[test]
    fn a_permutation_is_put_in_order_and_anything_else_is_refused() {
        let order = |indexes: &[Value], texts| in_order(items(indexes), texts);
        assert_eq!(order(&[json!(2), json!(0), json!(1)], 3), Ok(vec![json!(1), json!(2), json!(0)]));
        assert_eq!(order(&[], 0), Ok(vec![]));
        assert_eq!(order(&[json!(0)], 2), Err(InvalidVectors::Count { given: 1, texts: 2 }));
        assert_eq!(order(&[json!(0), json!(1)], 1), Err(InvalidVectors::Count { given: 2, texts: 1 }));
        for wrong in [json!(0), json!(2), json!(-1), json!("1"), json!(null), json!(1.5)] {
            assert_eq!(order(&[json!(0), wrong.clone()], 2), Err(InvalidVectors::Order), "{wrong}");
        }
        let unnamed = vec![Item { index: None, embedding: json!([]) }];
        assert_eq!(in_order(unnamed, 1), Err(InvalidVectors::Order));
    }

    #[test]
    fn only_finite_vectors_of_the_dimension_that_are_not_zero_are_used() {
        let unit = |vector: Value| numbers_of(&vector, 2, Normalization::Unit);
        assert_eq!(unit(json!([3, 4])), Ok(vec![0.6, 0.8]));
        assert_eq!(numbers_of(&json!([3, 4.5]), 2, Normalization::None), Ok(vec![3.0, 4.5]));
        for vector in [json!([1]), json!([1, 2, 3]), json!([])] {
            assert!(matches!(unit(vector), Err(InvalidVectors::Dimension { dimension: 2, .. })));
        }
        for vector in [
            json!([1, null]),
            json!([1, "2"]),
            json!([1, [2]]),
            json!([1, true]),
            json!([1e300, 1]),
            json!("AAAA"),
            json!(null),
            json!({ "0": 1 }),
        ] {
            assert_eq!(unit(vector.clone()), Err(InvalidVectors::NotFinite), "{vector}");
        }
        assert_eq!(unit(json!([0, -0.0])), Err(InvalidVectors::Zero));
        assert_eq!(unit(json!([1e-300, 0])), Err(InvalidVectors::Zero));
        assert_eq!(numbers_of(&json!([1e-60, 0]), 2, Normalization::None), Err(InvalidVectors::Zero));
    }
}
