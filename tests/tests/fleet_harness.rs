//! The faults that the fleet's tests rely on really are faults: a crashed engine, a cut network.

use std::time::Duration;

use powercontext_tests::engine::{Engine, connect, url};
use powercontext_tests::proxy::{Line, Proxy};
use powercontext_tests::tables::{Tables, difference};
use sqlx::Executor as _;

#[tokio::test]
async fn a_crashed_engine_comes_back_with_what_was_committed() {
    let mut engine = Engine::start().await;
    let url = url(engine.port(), "test");
    let pool = connect(&url);
    pool.execute("CREATE TABLE kept (id BIGINT PRIMARY KEY, note VARCHAR(20))").await.expect("a table");
    pool.execute("INSERT INTO kept VALUES (1, 'it''s here'), (2, NULL)").await.expect("two rows");
    let tables = Tables::at(&url);
    let before = tables.dump().await;
    assert_eq!(before["kept"], [r"id='1'|note='it\'s here'", "id='2'|note=NULL"]);
    engine.crash();
    assert!(tables.try_rows("SELECT note FROM kept").await.is_err(), "a crashed engine answers nothing");
    engine.restart().await;
    assert_eq!(difference(&before, &tables.dump().await), Vec::<String>::new());
    assert_eq!(tables.number("SELECT count(*) FROM kept").await, 2);
    pool.execute("UPDATE kept SET note = 'new' WHERE id = 2").await.expect("a changed row");
    assert_eq!(difference(&before, &tables.dump().await).len(), 2, "a difference is seen");
}

#[tokio::test]
async fn a_database_behind_a_silent_network_does_not_answer_and_is_back_when_the_network_is() {
    let engine = Engine::start().await;
    let network = Proxy::start(engine.port()).await;
    let tables = Tables::at(&url(network.port(), "test"));
    assert_eq!(tables.number("SELECT 1").await, 1);
    network.set(Line::Silent);
    let asked = tokio::time::timeout(Duration::from_millis(300), tables.try_rows("SELECT '1'")).await;
    assert!(asked.is_err(), "no answer and no error");
    network.set(Line::Cut);
    assert!(tables.try_rows("SELECT '1'").await.is_err(), "an error");
    network.set(Line::Open);
    assert_eq!(tables.number("SELECT 1").await, 1);
}
