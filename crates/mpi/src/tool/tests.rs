//! The state is one for the whole process, so one test drives it; the rest are tables.
use super::*;
use std::collections::BTreeSet;

#[test]
fn the_interface_counts_its_users_and_its_handles_end_with_the_last() {
    assert_eq!(check().unwrap_err().class, MPI_T_ERR_NOT_INITIALIZED);
    assert_eq!(finalize().unwrap_err().class, MPI_T_ERR_NOT_INITIALIZED);
    assert_eq!(init(-12345).unwrap_err().class, MPI_T_ERR_INVALID);
    for level in [MPI_THREAD_SINGLE, MPI_THREAD_MULTIPLE] {
        assert_eq!(init(level).unwrap(), level);
    }
    let session = pvar::session_create().unwrap();
    let messages = pvar::index(b"messages_received", MPI_T_PVAR_CLASS_COUNTER).unwrap();
    let (handle, 1) = pvar::open(session, messages, None).unwrap() else { panic!("one number") };
    assert_eq!(pvar::read(session, handle).unwrap(), [Datum::Unsigned(0)]);
    pvar::write(session, handle, vec![5]).unwrap();
    pvar::start(session, handle).unwrap();
    assert_eq!(pvar::read_reset(session, handle).unwrap(), [Datum::Unsigned(5)]);
    assert_eq!(pvar::read(session, handle).unwrap(), [Datum::Unsigned(0)]);

    let kind = event::index(b"slept").unwrap();
    let registration = event::register(kind, crate::info::Pairs::new()).unwrap();
    unsafe extern "C" fn called(_: crate::handle::TEventInstance, _: crate::handle::TEventRegistration, _: i32, _: *mut std::ffi::c_void) {}
    let hints = crate::info::Pairs::new;
    event::set_callback(registration, MPI_T_CB_REQUIRE_NONE, hints(), std::ptr::null_mut(), Some(called)).unwrap();
    assert_eq!(event::set_callback(registration, 1, hints(), std::ptr::null_mut(), Some(called)).unwrap_err().class, MPI_T_ERR_INVALID);

    finalize().unwrap();
    assert!(pvar::read(session, handle).is_ok());
    finalize().unwrap();
    assert_eq!(pvar::read(session, handle).unwrap_err().class, MPI_T_ERR_NOT_INITIALIZED);
    init(MPI_THREAD_SINGLE).unwrap();
    assert_eq!(pvar::read(session, handle).unwrap_err().class, MPI_T_ERR_INVALID_SESSION);
    assert_eq!(event::hints(registration).unwrap_err().class, MPI_T_ERR_INVALID_HANDLE);
    finalize().unwrap();
}

#[test]
fn names_are_unique_and_every_category_exists() {
    let variables: BTreeSet<_> = pvar::ALL.iter().map(|v| (&v.name, v.class)).collect();
    assert_eq!(variables.len(), pvar::ALL.len());
    let known: BTreeSet<_> = category::ALL.iter().map(|c| c.name).collect();
    assert_eq!(known.len(), category::ALL.len());
    assert!(pvar::ALL.iter().all(|v| known.contains(v.category)));
    assert!(event::TYPES.iter().all(|e| known.contains(e.category)));
    let listed: usize = category::ALL.iter().map(|c| c.cvars.len() + c.pvars.len() + c.events.len()).sum();
    assert_eq!(listed, cvar::count() + pvar::ALL.len() + event::TYPES.len());
}

#[test]
fn elements_of_events_lie_side_by_side_and_kinds_are_in_order() {
    for (place, kind) in event::TYPES.iter().enumerate() {
        assert_eq!(kind.kind as usize, place);
        let mut end = 0;
        for element in kind.elements {
            let bytes = if element.wide { 8 } else { 4 };
            assert!(element.place >= end && element.place % bytes == 0, "{}.{}", kind.name, element.name);
            end = element.place + bytes;
        }
        assert!(kind.elements.len() <= trace::events::VALUES);
    }
}

#[test]
fn every_data_path_and_counter_has_a_variable() {
    for (path, _) in trace::DATA_PATHS {
        let path = format!("{path:?}").to_lowercase();
        for what in ["messages", "bytes"] {
            assert!(pvar::ALL.iter().any(|v| v.name == format!("{path}_{what}")), "{path}_{what}");
        }
    }
    // Messages, bytes, and what `trace::Counters` counts besides; registered memory and queue pairs are levels.
    let levels = pvar::ALL.iter().filter(|v| ["registrations_pool_bytes", "registrations_queue_pairs"].contains(&v.name.as_str()) && v.continuous()).count();
    let single = pvar::ALL.iter().filter(|v| !v.continuous()).count() - 2 * trace::DATA_PATHS.len();
    assert_eq!(single + levels, 2 + trace::Counters::WORDS - 2 * trace::SIZE_CLASSES * trace::DATA_PATHS.len());
}
