//! Measures durable captures per second, one after another and from 8 writers at once.
//!
//! `cargo run --release -p powercontext-store --example capture [folder]`

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program")]

use std::path::PathBuf;
use std::time::Instant;

use powercontext_core::ambient::SystemIds;
use powercontext_core::content::digest;
use powercontext_core::ids::{ScopeId, SourceId};
use powercontext_store::sources::{self, NewSource};
use powercontext_store::{DatabaseUrl, Store, StoreOptions, migrate, scopes};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let path = folder.join(format!("capture-{}.db", std::process::id()));
    let options = StoreOptions::new(DatabaseUrl::file(&path));
    migrate(&options, &SystemIds).await?;
    let store = Store::open(&options).await?;
    let scope = scopes::default(&store).await?.ok_or("no default scope")?.scope_id;

    let count = 5_000;
    let start = Instant::now();
    for number in 0..count {
        capture(&store, &scope, &format!("one-{number}")).await?;
    }
    println!("sequential: {:.0} captures/s", f64::from(count) / start.elapsed().as_secs_f64());

    let start = Instant::now();
    let mut writers = Vec::new();
    for writer in 0..8 {
        let (store, scope) = (store.clone(), scope.clone());
        writers.push(tokio::spawn(async move {
            for number in 0..count / 4 {
                capture(&store, &scope, &format!("w{writer}-{number}")).await?;
            }
            Ok::<_, Failure>(())
        }));
    }
    for writer in writers {
        writer.await??;
    }
    println!("8 writers: {:.0} captures/s", f64::from(count * 2) / start.elapsed().as_secs_f64());
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    Ok(())
}

async fn capture(store: &Store, scope: &ScopeId, id: &str) -> Result<(), Failure> {
    let content_json = format!("\"a captured message of ordinary length, number {id}\"");
    let new = NewSource {
        scope: scope.clone(),
        source_id: SourceId::parse(id)?,
        content_digest: digest(&content_json),
        content_json,
        metadata_json: None,
    };
    sources::add(store, &new).await?;
    Ok(())
}
