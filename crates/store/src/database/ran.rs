//! Every statement that this thread ran on either database, so that a test can judge the real ones.
//! Tests only.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::{Engine, Text};

thread_local! {
    static TEXTS: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
}

pub(super) fn note(text: &Text, engine: Engine) {
    let text = match text {
        Text::Fixed(text) => (*text).to_owned(),
        Text::Twin(twin) => twin.of(engine).to_owned(),
        Text::Built(text) => text.clone(),
    };
    TEXTS.with_borrow_mut(|texts| texts.insert(text));
}

/// What ran since the last call.
pub(crate) fn take() -> BTreeSet<String> {
    TEXTS.take()
}
