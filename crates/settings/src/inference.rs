//! The settings of the models, put together: which model, where, with which key and headers.
//!
//! Whether a model is known and its settings may be sent is decided by the providers.

use std::path::{Path, PathBuf};

use powercontext_core::endpoint::{Normalization, OutputLimit};
use powercontext_core::secret::Secret;
use powercontext_core::stages::StructuredOutput;

use crate::values::{Embedding, Inference};
use crate::{Reader, SettingsError};

const SECTION: &str = "inference";

impl Reader<'_> {
    pub(crate) fn inference(&self) -> Result<Inference, SettingsError> {
        let (key, key_file) = self.key("generation_api_key", "generation_api_key_file")?;
        let (headers, headers_file) = self.headers("generation_headers", "generation_headers_file")?;
        let structured = self.text(SECTION, "generation_structured_output");
        let limit = self.text(SECTION, "generation_output_limit_field");
        Ok(Inference {
            generation_model: self.text(SECTION, "generation_model"),
            generation_base_url: self.base_url("generation_base_url")?,
            generation_api_key: key,
            generation_api_key_file: key_file,
            generation_headers: headers,
            generation_headers_file: headers_file,
            generation_model_settings: self.text(SECTION, "generation_model_settings").map(Secret::new),
            generation_timeout_seconds: self.integer(SECTION, "generation_timeout_seconds")?,
            generation_max_requests: self.integer(SECTION, "generation_max_requests")?,
            generation_model_context_window_tokens: self
                .integer(SECTION, "generation_model_context_window_tokens")?,
            generation_structured_output: match structured.as_deref() {
                Some("json_object") => StructuredOutput::JsonObject,
                _ => StructuredOutput::JsonSchema,
            },
            generation_output_limit: match limit.as_deref() {
                Some("max_tokens") => OutputLimit::MaxTokens,
                _ => OutputLimit::MaxCompletionTokens,
            },
            embedding: self.embedding()?,
        })
    }

    /// The embedding model, when one is set; its profile must be named with it (B-22).
    fn embedding(&self) -> Result<Option<Embedding>, SettingsError> {
        let Some(model) = self.text(SECTION, "embedding_model") else { return Ok(None) };
        let profile_id = self
            .text(SECTION, "embedding_profile_id")
            .ok_or_else(|| missing("embedding_profile_id", "it names the vectors of `embedding_model`"))?;
        if self.0.get(SECTION, "embedding_dimension").is_none() {
            return Err(missing(
                "embedding_dimension",
                "it is the length of the vectors of `embedding_model`",
            ));
        }
        let (key, key_file) = self.key("embedding_api_key", "embedding_api_key_file")?;
        let (headers, headers_file) = self.headers("embedding_headers", "embedding_headers_file")?;
        let normalization = self.text(SECTION, "embedding_normalization");
        Ok(Some(Embedding {
            model,
            profile_id,
            dimension: self.integer(SECTION, "embedding_dimension")?,
            base_url: self.base_url("embedding_base_url")?,
            api_key: key,
            api_key_file: key_file,
            headers,
            headers_file,
            model_settings: self.text(SECTION, "embedding_model_settings").map(Secret::new),
            timeout_seconds: self.integer(SECTION, "embedding_timeout_seconds")?,
            batch_size: self.integer(SECTION, "embedding_batch_size")?,
            normalization: match normalization.as_deref() {
                Some("none") => Normalization::None,
                _ => Normalization::Unit,
            },
        }))
    }

    fn base_url(&self, key: &str) -> Result<Option<String>, SettingsError> {
        let url = self.text(SECTION, key);
        if url.as_ref().is_some_and(|url| url.contains('@')) {
            let problem = "must not hold a user or a password; set the key instead";
            return Err(self.bad(SECTION, key, problem));
        }
        Ok(url)
    }

    /// A key that is given as a text or as the file that holds it, and that file.
    fn key(&self, key: &str, file_key: &str) -> Result<(Option<Secret>, Option<PathBuf>), SettingsError> {
        self.secret(key, file_key, Self::secret_from)
    }

    /// Headers that are given as a text or as the file that holds them, in any number of lines, and that file.
    fn headers(&self, key: &str, file_key: &str) -> Result<(Option<Secret>, Option<PathBuf>), SettingsError> {
        self.secret(key, file_key, Self::secret_text_from)
    }

    fn secret(
        &self,
        key: &str,
        file_key: &str,
        read: fn(&Self, &str, &str, &Path) -> Result<Secret, SettingsError>,
    ) -> Result<(Option<Secret>, Option<PathBuf>), SettingsError> {
        let file = self.path(SECTION, file_key);
        let secret = match &file {
            Some(path) => Some(read(self, SECTION, file_key, path)?),
            None => self.text(SECTION, key).map(Secret::new),
        };
        Ok((secret, file))
    }
}

fn missing(key: &str, problem: &str) -> SettingsError {
    let names = format!("`{SECTION}.{key}` (POWERCONTEXT_SERVER_INFERENCE_{})", key.to_ascii_uppercase());
    SettingsError::Missing { names, problem: problem.to_owned() }
}
