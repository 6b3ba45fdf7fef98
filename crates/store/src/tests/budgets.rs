use powercontext_core::ambient::{IdSource, SystemIds};
use powercontext_core::ids::{AttemptId, HolderId, Position};
use powercontext_core::work::{ErrorCode, Fence, Frontier};

use super::{databases, key, request, sqlite};
use crate::budgets::{self, AttemptStart, Reservation, Reserve, start_attempt};
use crate::{leases, pending, publish};

fn attempt_id() -> AttemptId {
    AttemptId::parse(SystemIds.random().to_string()).unwrap()
}

#[tokio::test]
async fn a_fourth_attempt_never_starts_whatever_happens_in_between() {
    // TM-060 TM-065 TM-066 TM-067 TM-069 TM-071 TM-072 TM-274
    for database in databases().await {
        let scope = database.scope("a").await;
        database.capture(&scope, 3).await;
        let frontier = Frontier { key: key(&scope), source_after: Position::default() };
        for number in 1..=3 {
            let fence = database.term().await;
            let store = database.reopened().await;
            pending::flush(&store, &key(&scope)).await.unwrap();
            let started = start_attempt(&store, &fence, &frontier, &attempt_id()).await.unwrap();
            assert_eq!(started, AttemptStart::Started { attempt_number: number });
        }
        let store = database.reopened().await;
        let fence = database.term().await;
        let before = database.dump().await;
        let fourth = start_attempt(&store, &fence, &frontier, &attempt_id()).await.unwrap();
        assert_eq!(fourth, AttemptStart::Terminal(ErrorCode::WindowAttemptLimit));
        assert_eq!(database.dump().await, before);
        let budget = budgets::get(&store, &frontier).await.unwrap().unwrap();
        assert_eq!((budget.attempts, budget.furthest_through), (3, Position::new(1)));
        assert_eq!(pending::flush(&store, &key(&scope)).await.unwrap(), pending::Flush::Accepted);
        let page = pending::page(&store, None, 10).await.unwrap();
        assert_eq!(page[0].terminal, Some(ErrorCode::WindowAttemptLimit), "it keeps its row: {page:?}");
    }
}

#[tokio::test]
async fn capacity_is_counted_up_to_the_limit_and_never_given_back() {
    // TM-061 TM-064 TM-065 TM-067 TM-274
    for database in databases().await {
        let scope = database.scope("a").await;
        database.capture(&scope, 1).await;
        let fence = database.term().await;
        let attempt = database.attempt(&fence, &key(&scope), 0).await;
        let stage = Reservation { requests: 2, tokens: 250_000, through: Position::new(1) };
        for _ in 0..256 {
            assert_eq!(budgets::reserve(&database.store, &attempt, stage).await.unwrap(), Reserve::Reserved);
        }
        let full = budgets::get(&database.store, &attempt.frontier).await.unwrap().unwrap();
        assert_eq!((full.reserved_requests, full.reserved_tokens), (512, 64_000_000));
        let again = database.reopened().await;
        assert_eq!(budgets::reserve(&again, &attempt, stage).await.unwrap(), Reserve::Exhausted);
        let spent = budgets::get(&database.store, &attempt.frontier).await.unwrap().unwrap();
        assert_eq!(spent.failure_code, Some(ErrorCode::WindowProviderBudgetExceeded));
        assert_eq!((spent.reserved_requests, spent.reserved_tokens), (512, 64_000_000));
        assert!(budgets::record_failure(&again, &attempt, ErrorCode::InvalidOutput).await.unwrap());
        let next = start_attempt(&again, &fence, &attempt.frontier, &attempt_id()).await;
        assert_eq!(next.unwrap(), AttemptStart::Terminal(ErrorCode::WindowProviderBudgetExceeded));
    }
}

#[tokio::test]
async fn one_reservation_over_either_limit_is_refused_and_closes_the_frontier() {
    // TM-060 TM-067
    for (requests, tokens) in [(513, 1), (1, 64_000_001), (u32::MAX, u64::MAX)] {
        for database in databases().await {
            let scope = database.scope("a").await;
            database.capture(&scope, 1).await;
            let fence = database.term().await;
            let attempt = database.attempt(&fence, &key(&scope), 0).await;
            let reservation = Reservation { requests, tokens, through: Position::new(1) };
            let answer = budgets::reserve(&database.store, &attempt, reservation).await.unwrap();
            assert_eq!(answer, Reserve::Exhausted);
        }
    }
}

#[tokio::test]
async fn a_newer_attempt_takes_every_right_from_an_older_one() {
    // TM-075 TM-272
    for database in databases().await {
        let scope = database.scope("a").await;
        database.capture(&scope, 1).await;
        let fence = database.term().await;
        let older = database.attempt(&fence, &key(&scope), 0).await;
        let newer = database.attempt(&fence, &key(&scope), 0).await;
        let before = database.dump().await;
        let small = Reservation { requests: 1, tokens: 1, through: Position::new(1) };
        assert_eq!(
            budgets::reserve(&database.store, &older, small).await.unwrap(),
            Reserve::Superseded(ErrorCode::AttemptSuperseded)
        );
        assert!(!budgets::record_failure(&database.store, &older, ErrorCode::InvalidOutput).await.unwrap());
        let published = publish::publish(&database.store, &request(older, 1, Vec::new())).await;
        assert!(matches!(published, Err(publish::PublishError::AttemptSuperseded)));
        assert_eq!(database.dump().await, before);
        assert_eq!(budgets::reserve(&database.store, &newer, small).await.unwrap(), Reserve::Reserved);
        publish::publish(&database.store, &request(newer.clone(), 1, Vec::new())).await.unwrap();
        assert_eq!(budgets::get(&database.store, &newer.frontier).await.unwrap(), None);
    }
}

#[tokio::test]
async fn an_older_term_counts_nothing() {
    // TM-184 TM-186 TM-272
    for database in databases().await {
        let scope = database.scope("a").await;
        database.capture(&scope, 1).await;
        let old = database.term().await;
        let attempt = database.attempt(&old, &key(&scope), 0).await;
        let new = database.term().await;
        let forged = Fence { holder: HolderId::parse("another").unwrap(), generation: new.generation };
        let before = database.dump().await;
        for fence in [old, forged] {
            let attempt = budgets::AttemptFence { fence: fence.clone(), ..attempt.clone() };
            let frontier = &attempt.frontier;
            let started = start_attempt(&database.store, &fence, frontier, &attempt_id()).await;
            assert_eq!(started.unwrap(), AttemptStart::Superseded(ErrorCode::Fenced));
            let small = Reservation { requests: 1, tokens: 1, through: Position::new(1) };
            assert_eq!(
                budgets::reserve(&database.store, &attempt, small).await.unwrap(),
                Reserve::Superseded(ErrorCode::Fenced)
            );
            let recorded = budgets::record_failure(&database.store, &attempt, ErrorCode::InvalidOutput).await;
            assert!(!recorded.unwrap());
            let settled = pending::settle(&database.store, &fence, &key(&scope)).await;
            assert!(matches!(settled, Err(pending::SettleError::Fenced)));
        }
        assert_eq!(database.dump().await, before);
    }
}

#[tokio::test]
async fn an_attempt_of_a_passed_frontier_is_superseded() {
    for database in databases().await {
        let scope = database.scope("a").await;
        database.publish(&scope, Vec::new()).await;
        let fence = leases::current(&database.store).await.unwrap().unwrap();
        let frontier = Frontier { key: key(&scope), source_after: Position::default() };
        let started = start_attempt(&database.store, &fence, &frontier, &attempt_id()).await.unwrap();
        assert_eq!(started, AttemptStart::Superseded(ErrorCode::CursorConflict));
        assert_eq!(budgets::get(&database.store, &frontier).await.unwrap(), None);
    }
}

#[tokio::test]
async fn every_start_begins_a_later_term_and_ends_the_one_before_on_sqlite() {
    // TM-180 TM-182 TM-185
    for database in [sqlite().await] {
        assert_eq!(leases::current(&database.store).await.unwrap(), None);
        let holder = HolderId::parse("same").unwrap();
        let first = leases::begin_embedded_term(&database.store, &holder).await.unwrap();
        let second = leases::begin_embedded_term(&database.store, &holder).await.unwrap();
        assert!(second > first);
        let current = leases::current(&database.store).await.unwrap().unwrap();
        assert_eq!(current, Fence { holder, generation: second });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn attempts_that_start_at_once_are_each_counted() {
    // TM-060 TM-065
    for database in databases().await {
        let fence = database.term().await;
        for round in 0..5 {
            let scope = database.scope(&format!("s{round}")).await;
            database.capture(&scope, 1).await;
            let mut starts = Vec::new();
            for _ in 0..4 {
                let frontier = Frontier { key: key(&scope), source_after: Position::new(0) };
                let (store, fence) = (database.reopened().await, fence.clone());
                starts.push(tokio::spawn(async move {
                    start_attempt(&store, &fence, &frontier, &attempt_id()).await.unwrap()
                }));
            }
            let mut numbers = Vec::new();
            for start in starts {
                numbers.push(match start.await.unwrap() {
                    AttemptStart::Started { attempt_number } => attempt_number,
                    AttemptStart::Terminal(ErrorCode::WindowAttemptLimit) => 4,
                    other => panic!("{other:?}"),
                });
            }
            numbers.sort_unstable();
            assert_eq!(numbers, [1, 2, 3, 4]);
        }
    }
}

#[tokio::test]
async fn the_furthest_end_follows_the_chosen_windows_and_never_falls() {
    // TM-073
    for database in databases().await {
        let scope = database.scope("a").await;
        database.capture(&scope, 9).await;
        let fence = database.term().await;
        let mut attempt = database.attempt(&fence, &key(&scope), 0).await;
        let furthest = async |attempt: &budgets::AttemptFence| {
            budgets::get(&database.store, &attempt.frontier).await.unwrap().unwrap().furthest_through.get()
        };
        assert_eq!(furthest(&attempt).await, 1);
        for (through, expected) in [(4, 4), (7, 7), (2, 7)] {
            let reservation = Reservation { requests: 1, tokens: 1, through: Position::new(through) };
            let answer = budgets::reserve(&database.store, &attempt, reservation).await.unwrap();
            assert_eq!((answer, furthest(&attempt).await), (Reserve::Reserved, expected));
            if through == 7 {
                attempt = database.attempt(&fence, &key(&scope), 0).await;
                assert_eq!(furthest(&attempt).await, 7);
            }
        }
    }
}

#[tokio::test]
async fn every_reader_of_a_budget_row_agrees_on_which_codes_close_it() {
    // TM-066 TM-067 TM-069
    for database in databases().await {
        let fence = database.term().await;
        for code in ErrorCode::ALL {
            let scope = database.scope(code.as_str()).await;
            database.capture(&scope, 1).await;
            pending::flush(&database.store, &key(&scope)).await.unwrap();
            let attempt = database.attempt(&fence, &key(&scope), 0).await;
            assert!(budgets::record_failure(&database.store, &attempt, code).await.unwrap());
            let closed = Some(code).filter(|code| code.is_terminal());
            let budget = budgets::get(&database.store, &attempt.frontier).await.unwrap().unwrap();
            assert_eq!((budget.failure_code, budget.terminal()), (Some(code), closed));
            let page = pending::page(&database.store, None, 100).await.unwrap();
            let listed = page.iter().find(|fact| fact.key == key(&scope)).unwrap();
            assert_eq!(listed.terminal, closed, "{code:?}");
            let known = pending::get(&database.store, &key(&scope)).await.unwrap().unwrap();
            assert_eq!(&known, listed);
            let small = Reservation { requests: 1, tokens: 1, through: Position::new(1) };
            let reserved = budgets::reserve(&database.store, &attempt, small).await.unwrap();
            assert_eq!(reserved == Reserve::Exhausted, closed.is_some(), "{code:?}");
            assert!(
                budgets::record_failure(&database.store, &attempt, ErrorCode::InvalidOutput).await.unwrap()
            );
            let next =
                start_attempt(&database.store, &fence, &attempt.frontier, &attempt_id()).await.unwrap();
            let expected = closed.map_or(AttemptStart::Started { attempt_number: 2 }, AttemptStart::Terminal);
            assert_eq!(next, expected);
        }
    }
}

#[tokio::test]
async fn the_statement_that_counts_an_attempt_refuses_a_closed_frontier_by_itself() {
    // TM-065 TM-066 TM-069: the condition stands in the write, so no earlier read can be outrun.
    for (row, code) in [
        ("attempts = 3", ErrorCode::WindowAttemptLimit),
        ("failure_code = 'source_complexity_limit'", ErrorCode::SourceComplexityLimit),
    ] {
        for database in databases().await {
            let scope = database.scope("a").await;
            database.capture(&scope, 1).await;
            let fence = database.term().await;
            let attempt = database.attempt(&fence, &key(&scope), 0).await;
            database.run(&format!("UPDATE pc_topic_memory_work_budgets SET {row}")).await;
            let before = database.dump().await;
            let mut tx = database.store.database.write().await.unwrap();
            assert!(!budgets::count_attempt(&mut tx, &attempt.frontier, &attempt_id()).await.unwrap());
            tx.commit().await.unwrap();
            assert_eq!(database.dump().await, before);
            let next =
                start_attempt(&database.store, &fence, &attempt.frontier, &attempt_id()).await.unwrap();
            assert_eq!(next, AttemptStart::Terminal(code));
        }
    }
}

#[tokio::test]
async fn every_closed_frontier_with_pending_sources_is_counted_whoever_asked_for_them() {
    // TM-069
    for database in databases().await {
        let fence = database.term().await;
        let count = async |most| budgets::count_closed(&database.store, most).await.unwrap();
        let attempts = async |name: &str, number: u32| {
            let scope = database.scope(name).await;
            database.capture(&scope, 1).await;
            let frontier = Frontier { key: key(&scope), source_after: Position::default() };
            let mut last = attempt_id();
            for _ in 0..number {
                last = attempt_id();
                start_attempt(&database.store, &fence, &frontier, &last).await.unwrap();
            }
            budgets::AttemptFence { fence: fence.clone(), frontier, attempt_id: last }
        };
        let waiting = attempts("waiting", 2).await;
        budgets::record_failure(&database.store, &waiting, ErrorCode::InvalidOutput).await.unwrap();
        assert_eq!(count(9).await, 0, "an attempt is left");
        // No flush asked for this one: an automatic wave tried it.
        attempts("automatic", 3).await;
        assert_eq!(count(9).await, 1);
        let flushed = attempts("flushed", 3).await;
        pending::flush(&database.store, &flushed.frontier.key).await.unwrap();
        assert_eq!(count(9).await, 2);
        let complex = attempts("complex", 1).await;
        budgets::record_failure(&database.store, &complex, ErrorCode::SourceComplexityLimit).await.unwrap();
        assert_eq!(count(9).await, 3);
        assert_eq!(count(2).await, 2, "no more than asked for");
        publish::publish(&database.store, &request(flushed, 1, Vec::new())).await.unwrap();
        assert_eq!(count(9).await, 2, "what is published after all is open");
    }
}
