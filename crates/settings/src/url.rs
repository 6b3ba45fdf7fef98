//! What the settings know of a database URL: where its password is, and how to show one without it.
//!
//! Whether a URL is complete, and what its parts mean to a database, is left to the store.

use std::fmt::Write as _;

/// What the URL of a database server begins with; several processes may use such a database at once.
const SERVER: &str = "mysql://";

/// Whether the URL names a server that several processes may use at once.
#[must_use]
pub(crate) fn is_server(url: &str) -> bool {
    url.starts_with(SERVER)
}

/// Why a password cannot be put into a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// It names no server.
    NoServer,
    /// It names no user.
    NoUser,
    /// It has a password already.
    Taken,
}

/// The URL with a password, percent-encoded because the store decodes it.
pub(crate) fn with_password(url: &str, password: &str) -> Result<String, NoPlace> {
    let rest = url.strip_prefix(SERVER).ok_or(NoPlace::NoServer)?;
    let (user, place) = rest.rsplit_once('@').ok_or(NoPlace::NoUser)?;
    if user.contains(':') {
        return Err(NoPlace::Taken);
    }
    let mut encoded = String::with_capacity(password.len() * 3);
    for byte in password.bytes() {
        let _ = write!(encoded, "%{byte:02X}");
    }
    Ok(format!("{SERVER}{user}:{encoded}@{place}"))
}

/// A URL without its password and its query, which may hold another one.
#[must_use]
pub(crate) fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "[redacted]".to_owned() };
    let (user, rest) = match rest.rsplit_once('@') {
        None => (String::new(), rest),
        Some((user, rest)) => match user.split_once(':') {
            None => (format!("{user}@"), rest),
            Some((user, _)) => (format!("{user}:[redacted]@"), rest),
        },
    };
    let (place, query) = rest.split_once('?').map_or((rest, ""), |(place, _)| (place, "?[redacted]"));
    format!("{scheme}://{user}{place}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_gets_its_place_in_a_url_of_a_server_that_has_none() {
        let url = with_password("mysql://root@tenant#cluster@host:2881/fleet", "a:b@é").unwrap();
        assert_eq!(url, "mysql://root@tenant#cluster:%61%3A%62%40%C3%A9@host:2881/fleet");
        assert_eq!(redacted(&url), "mysql://root@tenant#cluster:[redacted]@host:2881/fleet");
        for (url, problem) in [
            ("sqlite:///a/b", NoPlace::NoServer),
            ("mysql://host/fleet", NoPlace::NoUser),
            ("mysql://root:s3@host/fleet", NoPlace::Taken),
            ("mysql://root:@host/fleet", NoPlace::Taken),
        ] {
            assert_eq!(with_password(url, "x"), Err(problem), "{url}");
        }
    }
}
