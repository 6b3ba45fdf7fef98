//! Page cursors: opaque to clients, bound to the request they came from.
//!
//! A cursor says where the page ended and carries a checksum over itself and everything it is bound
//! to (operation, Scope or filter, limit). It is no secret and gives no rights; the checksum only
//! makes a cursor of another request or a mistyped one fail clearly.

use powercontext_core::content::digest;

use crate::error::ApiError;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const CHECKSUM: usize = 16;

/// Makes the cursor for a place in the list that `binding` describes.
#[must_use]
pub fn encode(binding: &str, place: &str) -> String {
    let text = format!("{}{place}", checksum(binding, place));
    let mut cursor = String::with_capacity(text.len().div_ceil(3) * 4);
    for group in text.as_bytes().chunks(3) {
        let byte = |index: usize| group.get(index).copied().map_or(0, u32::from);
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for index in 0..=group.len() {
            let digit = (bits >> (18 - 6 * index)) & 63;
            cursor.push(DIGITS.get(digit as usize).copied().map_or('A', char::from));
        }
    }
    cursor
}

/// The place in a cursor that was made for the same `binding`.
///
/// # Errors
/// 400 `invalid_cursor` for any other text.
pub fn decode(binding: &str, cursor: &str) -> Result<String, ApiError> {
    let text = bytes(cursor).and_then(|bytes| String::from_utf8(bytes).ok());
    let text = text.ok_or_else(ApiError::invalid_cursor)?;
    let (sum, place) = text.split_at_checked(CHECKSUM).ok_or_else(ApiError::invalid_cursor)?;
    // The second comparison refuses other spellings of the same bytes.
    if sum != checksum(binding, place) || encode(binding, place) != cursor {
        return Err(ApiError::invalid_cursor());
    }
    Ok(place.to_owned())
}

fn checksum(binding: &str, place: &str) -> String {
    let whole = digest(&format!("{}:{binding}{place}", binding.len()));
    whole.trim_start_matches("sha256:").chars().take(CHECKSUM).collect()
}

fn bytes(cursor: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(cursor.len() / 4 * 3 + 2);
    for group in cursor.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for index in 0..4 {
            let digit = match group.get(index) {
                Some(byte) => DIGITS.iter().position(|known| known == byte)?,
                None => 0,
            };
            bits = (bits << 6) | u32::try_from(digit).ok()?;
        }
        let all = bits.to_be_bytes();
        bytes.extend(all.get(1..group.len())?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_gives_its_place_back_for_the_same_request_only() {
        for place in ["", "5", "12:40", "scp_漢字", "x"] {
            let cursor = encode("sources\nscope\n2", place);
            assert!(cursor.bytes().all(|b| DIGITS.contains(&b)), "{cursor}");
            assert_eq!(decode("sources\nscope\n2", &cursor).unwrap(), place);
            assert!(decode("sources\nscope\n3", &cursor).is_err());
        }
    }

    #[test]
    fn a_changed_cursor_is_refused() {
        let cursor = encode("b", "12:40");
        for index in 0..cursor.len() {
            let mut changed: Vec<char> = cursor.chars().collect();
            changed[index] = if changed[index] == 'x' { 'y' } else { 'x' };
            assert!(decode("b", &changed.iter().collect::<String>()).is_err(), "position {index}");
        }
        for text in ["", "a", "abc", "\u{fffd}", "====", &cursor[1..], &cursor[..cursor.len() - 1]] {
            assert!(decode("b", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_binding_cannot_borrow_from_the_place() {
        assert!(decode("a", &encode("ab", "c")).is_err());
        assert!(decode("ab", &encode("a", "bc")).is_err());
    }
}
