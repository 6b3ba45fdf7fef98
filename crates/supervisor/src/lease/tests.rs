//! How a term is won, kept and lost, told call by call.

use std::time::Duration;

use super::*;

const RETRY: Duration = Duration::from_secs(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A moment whose random number moves no candidacy.
fn at(millis: u64) -> Now {
    Now { at: ms(millis), random: 200 }
}

fn holder() -> HolderId {
    HolderId::parse("one").unwrap()
}

fn fence(generation: i64) -> Fence {
    Fence { holder: holder(), generation: SupervisorGeneration::new(generation) }
}

fn won(generation: i64) -> LeaseAnswer {
    LeaseAnswer::Won(SupervisorGeneration::new(generation))
}

fn candidate() -> Tenure {
    Tenure::elected(holder(), LeaseSettings::default(), RETRY)
}

/// A leader of term 7 whose winning request was sent at 0.
fn leader() -> Tenure {
    let mut tenure = candidate();
    let turn = tenure.answered(&LeaseCall::Acquire, ms(0), won(7), at(100));
    assert_eq!(turn, Some(Turn::Began(fence(7))));
    tenure
}

#[test]
fn periods_that_do_not_fit_together_are_refused() {
    let second = Duration::from_secs;
    let times = |ttl, renewal, candidacy, margin| LeaseTimes {
        ttl: second(ttl),
        renewal: second(renewal),
        candidacy: second(candidacy),
        margin: second(margin),
    };
    for (times, tick, expected) in [
        (times(15, 5, 3, 2), 1, Ok(())),
        (times(15, 5, 0, 2), 1, Err(InvalidLease::Zero)),
        (times(15, 5, 3, 0), 1, Err(InvalidLease::Zero)),
        (times(15, 5, 3, 2), 0, Err(InvalidLease::Zero)),
        (times(12, 5, 3, 2), 1, Err(InvalidLease::RenewalTooSlow)),
        (times(13, 5, 3, 2), 1, Ok(())),
        (times(15, 5, 15, 2), 1, Err(InvalidLease::CandidacyTooSlow)),
        (times(15, 5, 3, 2), 6, Err(InvalidLease::TickTooSlow)),
        (times(15, u64::MAX, 3, 2), 1, Err(InvalidLease::RenewalTooSlow)),
    ] {
        let made = LeaseSettings::new(times, second(tick)).map(|_| ());
        assert_eq!(made, expected, "{times:?} {tick}");
    }
    let usual = LeaseSettings::new(times(15, 5, 3, 2), second(1)).unwrap();
    assert_eq!((usual, usual.patience()), (LeaseSettings::default(), second(4)));
}

#[test]
fn a_candidate_tries_at_once_and_then_every_candidacy_period_or_a_little_earlier() {
    // TM-188
    let mut tenure = candidate();
    assert_eq!(tenure.wanted(ms(0)), Some(LeaseCall::Acquire));
    for answer in [LeaseAnswer::Taken, LeaseAnswer::Unknown] {
        for (random, pause) in [(0, 2400), (100, 2700), (200, 3000), (201, 2400)] {
            let now = Now { at: ms(1000), random };
            assert_eq!(tenure.answered(&LeaseCall::Acquire, ms(900), answer, now), None);
            assert_eq!(tenure.next_look(), Some(ms(1000 + pause)), "{random}");
            assert_eq!(tenure.wanted(ms(1000 + pause - 1)), None);
            assert_eq!(tenure.wanted(ms(1000 + pause)), Some(LeaseCall::Acquire));
            assert!(!tenure.may_act(ms(1000)) && tenure.fence().is_none());
        }
    }
}

#[test]
fn a_leader_acts_until_its_lease_may_have_expired_counted_from_before_the_request() {
    // TM-187
    let mut tenure = leader();
    assert_eq!(tenure.act_until(), Some(ms(13_000)));
    for (now, may) in [(100, true), (12_999, true), (13_000, false), (u64::MAX, false)] {
        assert_eq!(tenure.may_act(ms(now)), may, "{now}");
    }
    assert_eq!(tenure.elapsed(at(12_999)), None);
    assert_eq!(tenure.elapsed(at(13_000)), Some(Turn::Lost(fence(7), Loss::Expired)));
    assert!(tenure.fence().is_none() && !tenure.may_act(ms(13_000)));
    assert_eq!(tenure.elapsed(at(14_000)), None, "a loss is told once");
}

#[test]
fn a_renewal_prolongs_the_term_from_when_it_was_sent_and_keeps_its_generation() {
    // TM-182 TM-183
    let mut tenure = leader();
    assert_eq!(tenure.wanted(ms(4999)), None);
    let call = tenure.wanted(ms(5000)).unwrap();
    assert_eq!(call, LeaseCall::Renew(fence(7)));
    assert_eq!(tenure.answered(&call, ms(5000), LeaseAnswer::Done, at(8000)), None);
    assert_eq!(tenure.act_until(), Some(ms(18_000)));
    assert_eq!((tenure.wanted(ms(9999)), tenure.next_look()), (None, Some(ms(10_000))));
    assert_eq!(tenure.fence(), Some(&fence(7)));
}

#[test]
fn a_renewal_without_an_answer_is_tried_again_until_the_leader_must_stop() {
    // TM-187
    let mut tenure = leader();
    let renew = LeaseCall::Renew(fence(7));
    let mut now = 5000;
    let mut tries = 0;
    while let Some(call) = tenure.wanted(ms(now)) {
        assert_eq!(call, renew);
        tries += 1;
        assert_eq!(tenure.answered(&renew, ms(now), LeaseAnswer::Unknown, at(now)), None);
        assert_eq!(tenure.wanted(ms(now + 999)), None, "no hot loop");
        now += 1000;
    }
    assert_eq!((tries, now), (8, 13_000));
    assert_eq!(tenure.elapsed(at(now)), Some(Turn::Lost(fence(7), Loss::Expired)));
    // One late success would have saved it.
    let mut tenure = leader();
    tenure.answered(&renew, ms(5000), LeaseAnswer::Unknown, at(9000));
    tenure.answered(&renew, ms(12_000), LeaseAnswer::Done, at(12_900));
    assert_eq!(tenure.act_until(), Some(ms(25_000)));
}

#[test]
fn a_refused_renewal_ends_the_term_at_once() {
    // TM-187
    let mut tenure = leader();
    let call = tenure.wanted(ms(5000)).unwrap();
    let turn = tenure.answered(&call, ms(5000), LeaseAnswer::Refused, at(5010));
    assert_eq!(turn, Some(Turn::Lost(fence(7), Loss::Refused)));
    assert!(!tenure.may_act(ms(5010)));
    assert_eq!(tenure.wanted(ms(5010)), None, "nothing is given back: it is somebody else's");
    assert_eq!(tenure.wanted(ms(8010)), Some(LeaseCall::Acquire));
}

#[test]
fn a_renewal_that_is_answered_too_late_does_not_revive_the_term() {
    // TM-187
    for (sent, answered) in [(5000, 13_000), (5000, 60_000), (12_900, 13_100)] {
        let mut tenure = leader();
        let call = tenure.wanted(ms(sent)).unwrap();
        let turn = tenure.answered(&call, ms(sent), LeaseAnswer::Done, at(answered));
        assert_eq!(turn, Some(Turn::Lost(fence(7), Loss::Expired)), "{sent} {answered}");
        // The lease may still be held for this process, so it is given back.
        assert_eq!(tenure.wanted(ms(answered)), Some(LeaseCall::Release(fence(7))));
        tenure.answered(&LeaseCall::Release(fence(7)), ms(answered), LeaseAnswer::Unknown, at(answered));
        assert_eq!(tenure.wanted(ms(answered + 3000)), Some(LeaseCall::Acquire));
    }
}

#[test]
fn a_win_that_is_answered_too_late_is_given_back_and_never_led() {
    // TM-187
    let mut tenure = candidate();
    assert_eq!(tenure.answered(&LeaseCall::Acquire, ms(0), won(3), at(13_000)), None);
    assert!(tenure.fence().is_none());
    assert_eq!(tenure.wanted(ms(13_000)), Some(LeaseCall::Release(fence(3))));
}

#[test]
fn a_lost_answer_of_a_win_leads_to_a_later_term_of_the_same_holder() {
    // TM-181 TM-182 TM-183
    let mut tenure = candidate();
    // The database holds term 3 for this process; nobody knows.
    tenure.answered(&LeaseCall::Acquire, ms(0), LeaseAnswer::Unknown, at(100));
    let mut now = 3100;
    while now < 15_000 {
        assert_eq!(tenure.wanted(ms(now)), Some(LeaseCall::Acquire));
        assert_eq!(tenure.answered(&LeaseCall::Acquire, ms(now), LeaseAnswer::Taken, at(now)), None);
        now += 3000;
    }
    let turn = tenure.answered(&LeaseCall::Acquire, ms(now), won(4), at(now));
    assert_eq!(turn, Some(Turn::Began(fence(4))));
    assert_eq!(tenure.holder(), &holder());
}

#[test]
fn a_fenced_write_and_a_late_look_at_the_clock_end_the_term_too() {
    // TM-187 TM-194
    let mut tenure = leader();
    assert_eq!(tenure.step_down(&fence(6), Loss::Refused, at(200)), None, "an older term");
    let turn = tenure.step_down(&fence(7), Loss::Refused, at(200));
    assert_eq!(turn, Some(Turn::Lost(fence(7), Loss::Refused)));
    assert_eq!(tenure.next_look(), Some(ms(3200)), "a candidate again");
    let mut tenure = leader();
    assert!(tenure.step_down(&fence(7), Loss::Expired, at(12_999)).is_some());
    assert_eq!(tenure.wanted(ms(12_999)), Some(LeaseCall::Release(fence(7))));
}

#[test]
fn resigning_gives_the_lease_back_once_and_wants_nothing_more() {
    let mut tenure = leader();
    tenure.resign();
    assert!(!tenure.may_act(ms(200)));
    let release = LeaseCall::Release(fence(7));
    assert_eq!(tenure.wanted(ms(200)), Some(release.clone()));
    tenure.answered(&release, ms(200), LeaseAnswer::Unknown, at(300));
    assert_eq!((tenure.wanted(ms(u64::MAX)), tenure.next_look()), (None, None));
    // A win that arrives after resigning is given back as well.
    let mut tenure = candidate();
    tenure.resign();
    assert_eq!(tenure.answered(&LeaseCall::Acquire, ms(0), won(2), at(100)), None);
    assert_eq!(tenure.wanted(ms(100)), Some(LeaseCall::Release(fence(2))));
}

#[test]
fn an_embedded_term_begins_once_and_lasts() {
    // TM-185
    let mut tenure = Tenure::embedded(holder(), RETRY);
    assert_eq!(tenure.wanted(ms(0)), Some(LeaseCall::Begin));
    tenure.answered(&LeaseCall::Begin, ms(0), LeaseAnswer::Unknown, at(10));
    assert_eq!((tenure.wanted(ms(1009)), tenure.wanted(ms(1010))), (None, Some(LeaseCall::Begin)));
    let turn = tenure.answered(&LeaseCall::Begin, ms(1010), won(1), at(9_000_000));
    assert_eq!(turn, Some(Turn::Began(fence(1))));
    let late = ms(u64::MAX);
    assert!(tenure.may_act(late));
    assert_eq!((tenure.wanted(late), tenure.next_look()), (None, None));
    assert_eq!(tenure.elapsed(Now { at: late, random: 0 }), None);
    // Another embedded supervisor took over: this one is over, and gives nothing back.
    assert!(tenure.step_down(&fence(1), Loss::Refused, at(0)).is_some());
    assert_eq!((tenure.wanted(late), tenure.next_look()), (None, None));
}
