//! How long a provider asks to be left alone: `Retry-After` in seconds or as a date.
//!
//! A date is measured against the `Date` of the same response, so no clock of this machine is asked
//! and none can be wrong. What is done with the wait is left to the supervisor.

use std::time::Duration;

use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};

/// The longest wait a provider can ask for.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(3600);

/// The wait that the headers ask for, bounded; `None` when they ask for none that can be understood.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_nan() || seconds < 0.0 => return None,
        Ok(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or(MAX_RETRY_AFTER),
        Err(_) => {
            let until = httpdate::parse_http_date(text).ok()?;
            let now = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?.trim()).ok()?;
            until.duration_since(now).unwrap_or_default()
        }
    };
    Some(wait.min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    #[test]
    fn a_wait_is_read_from_seconds_and_from_a_date_and_never_longer_than_an_hour() {
        const NOON: &str = "Tue, 01 Dec 2026 12:00:00 GMT";
        for (text, date, wait) in [
            ("7", None, Some(7.0)),
            (" 0 ", None, Some(0.0)),
            ("1.5", None, Some(1.5)),
            ("99999999", None, Some(3600.0)),
            ("1e999", None, Some(3600.0)),
            ("-1", None, None),
            ("nan", None, None),
            ("soon", None, None),
            ("", None, None),
            ("Tue, 01 Dec 2026 12:01:30 GMT", Some(NOON), Some(90.0)),
            ("Tue, 01 Dec 2026 11:00:00 GMT", Some(NOON), Some(0.0)),
            ("Wed, 02 Dec 2026 12:00:00 GMT", Some(NOON), Some(3600.0)),
            ("Tue, 01 Dec 2026 12:01:30 GMT", None, None),
            ("Tue, 01 Dec 2026 12:01:30 GMT", Some("noon"), None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
            if let Some(date) = date {
                headers.insert(DATE, HeaderValue::from_str(date).unwrap());
            }
            assert_eq!(retry_after(&headers), wait.map(Duration::from_secs_f64), "{text:?} {date:?}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
