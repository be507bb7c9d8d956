//! The tool information interface (MPI-5.0 §15.3). No error calls an error handler, and all may be called at any time.

use crate::args::{bytes, load, store};
use mpi::consts::*;
use mpi::error::{Error, Result};
use mpi::handle::*;
use mpi::info::{self, Pairs};
use mpi::tool::{self, Datum, category, cvar, enumeration, event, pvar};
use std::ffi::{c_char, c_int, c_void};

/// The code of a finished call. What is no code of the interface is an invalid argument.
fn finish(function: &str, result: Result<()>) -> c_int {
    tool::settle();
    match result {
        Ok(()) => MPI_SUCCESS,
        Err(error) => {
            let class = if error.class >= MPI_T_ERR_CANNOT_INIT { error.class } else { MPI_T_ERR_INVALID };
            mpi::errors::remember(class, &format!("{function}: {}", error.detail));
            class
        }
    }
}

/// Stores what the caller asks for: a null place means that it does not (MPI-5.0 §15.3.2).
unsafe fn tell<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not null, and the caller vouches for the rest.
        unsafe { place.write(value) };
    }
}

/// Returns a text (MPI-5.0 §15.3.3): as much as fits with its end, and in `length` what all of it needs. A null `length` asks for nothing,
/// a null place or length 0 for the need only.
unsafe fn tell_text(place: *mut c_char, length: *mut c_int, text: &str) {
    if length.is_null() {
        return;
    }
    // SAFETY: the caller vouches for `length`, and for as many characters at `place` as it says.
    unsafe {
        let room = usize::try_from(*length).unwrap_or(0);
        if !place.is_null() && room > 0 {
            put_text(place.cast(), text, room);
        }
        *length = text.len() as c_int + 1;
    }
}

unsafe fn put_text(place: *mut u8, text: &str, room: usize) {
    let fits = text.len().min(room - 1);
    // SAFETY: `fits + 1` is at most `room`, for which the caller vouches.
    unsafe {
        place.copy_from_nonoverlapping(text.as_ptr(), fits);
        place.add(fits).write(0);
    }
}

/// Writes a value in the form of its datatype, at any alignment.
unsafe fn put(place: *mut c_void, value: &Datum) {
    // SAFETY: the caller vouches for room of the datatype's size.
    unsafe {
        match value {
            Datum::Int(value) => place.cast::<c_int>().write_unaligned(*value),
            Datum::Unsigned(value) => place.cast::<u64>().write_unaligned(*value),
            Datum::Count(value) => place.cast::<i64>().write_unaligned(*value),
            Datum::Double(value) => place.cast::<f64>().write_unaligned(*value),
            Datum::Text(text) => put_text(place.cast(), text, cvar::TEXT_CHARS),
        }
    }
}

/// Writes the values of a performance variable one after the other.
unsafe fn put_all(place: *mut c_void, values: &[Datum]) -> Result<()> {
    not_null(place, "buf")?;
    let mut place = place.cast::<u8>();
    for value in values {
        put(place.cast(), value);
        place = place.add(if matches!(value, Datum::Int(_)) { size_of::<c_int>() } else { size_of::<u64>() });
    }
    Ok(())
}

fn not_null<T>(place: *const T, name: &str) -> Result<()> {
    if place.is_null() { Err(Error::new(MPI_T_ERR_INVALID, format!("{name} is null"))) } else { Ok(()) }
}

/// Copies as many indices as the caller has room for.
unsafe fn put_indices(len: c_int, indices: *mut c_int, all: &[i32]) -> Result<()> {
    let room = usize::try_from(len).map_err(|_| Error::new(MPI_T_ERR_INVALID, format!("len = {len} is negative")))?;
    if room > 0 && !all.is_empty() {
        not_null(indices, "indices")?;
        // SAFETY: the caller vouches for `len` places.
        unsafe { indices.copy_from_nonoverlapping(all.as_ptr(), all.len().min(room)) };
    }
    Ok(())
}

pub unsafe fn MPI_T_init_thread(required: c_int, provided: *mut c_int) -> c_int {
    finish("MPI_T_init_thread", tool::init(required).map(|level| tell(provided, level)))
}

pub unsafe fn MPI_T_finalize() -> c_int {
    finish("MPI_T_finalize", tool::finalize())
}

pub unsafe fn MPI_T_enum_get_info(enumtype: TEnum, num: *mut c_int, name: *mut c_char, name_len: *mut c_int) -> c_int {
    let get = || -> Result<()> {
        let found = enumeration::find(enumtype)?;
        tell(num, found.items.len() as c_int);
        tell_text(name, name_len, &found.name);
        Ok(())
    };
    finish("MPI_T_enum_get_info", get())
}

pub unsafe fn MPI_T_enum_get_item(enumtype: TEnum, indx: c_int, value: *mut c_int, name: *mut c_char, name_len: *mut c_int) -> c_int {
    let get = || -> Result<()> {
        let item = enumeration::find(enumtype)?.item(indx)?;
        tell(value, indx);
        tell_text(name, name_len, item);
        Ok(())
    };
    finish("MPI_T_enum_get_item", get())
}

pub unsafe fn MPI_T_cvar_get_num(num_cvar: *mut c_int) -> c_int {
    finish("MPI_T_cvar_get_num", tool::check().and_then(|()| store(num_cvar, "num_cvar", cvar::count() as c_int)))
}

pub unsafe fn MPI_T_cvar_get_info(
    cvar_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    datatype: *mut Datatype,
    enumtype: *mut TEnum,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    scope: *mut c_int,
) -> c_int {
    let get = || -> Result<()> {
        let found = cvar::describe(cvar_index)?;
        tell_text(name, name_len, &found.name);
        tell(verbosity, found.verbosity);
        tell(datatype, found.datatype);
        tell(enumtype, found.enumeration);
        tell_text(desc, desc_len, &found.text);
        tell(bind, MPI_T_BIND_NO_OBJECT);
        tell(scope, found.scope);
        Ok(())
    };
    finish("MPI_T_cvar_get_info", get())
}

pub unsafe fn MPI_T_cvar_get_index(name: *const c_char, cvar_index: *mut c_int) -> c_int {
    let found = bytes(name, MPI_T_ERR_INVALID, "name").and_then(cvar::index);
    finish("MPI_T_cvar_get_index", found.and_then(|index| store(cvar_index, "cvar_index", index)))
}

pub unsafe fn MPI_T_cvar_handle_alloc(cvar_index: c_int, _obj_handle: *mut c_void, handle: *mut TCvarHandle, count: *mut c_int) -> c_int {
    let alloc = || -> Result<()> {
        not_null(handle, "handle")?;
        let (new, elements) = cvar::open(cvar_index)?;
        tell(count, elements as c_int);
        store(handle, "handle", new)
    };
    finish("MPI_T_cvar_handle_alloc", alloc())
}

pub unsafe fn MPI_T_cvar_handle_free(handle: *mut TCvarHandle) -> c_int {
    let freed = load(handle, "handle").and_then(cvar::close);
    finish("MPI_T_cvar_handle_free", freed.and_then(|()| store(handle, "handle", MPI_T_CVAR_HANDLE_NULL)))
}

pub unsafe fn MPI_T_cvar_read(handle: TCvarHandle, buf: *mut c_void) -> c_int {
    let read = || -> Result<()> {
        let value = cvar::read(handle)?;
        not_null(buf, "buf")?;
        put(buf, &value);
        Ok(())
    };
    finish("MPI_T_cvar_read", read())
}

pub unsafe fn MPI_T_cvar_write(handle: TCvarHandle, buf: *const c_void) -> c_int {
    let write = || -> Result<()> {
        let shape = cvar::shape(handle)?;
        not_null(buf, "buf")?;
        let value = match shape {
            Datum::Int(_) => Datum::Int(buf.cast::<c_int>().read_unaligned()),
            Datum::Unsigned(_) => Datum::Unsigned(buf.cast::<u64>().read_unaligned()),
            Datum::Text(_) => {
                let bytes: Vec<u8> = (0..cvar::TEXT_CHARS).map(|at| buf.cast::<u8>().add(at).read()).take_while(|byte| *byte != 0).collect();
                Datum::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            other => other,
        };
        cvar::write(handle, &value)
    };
    finish("MPI_T_cvar_write", write())
}

pub unsafe fn MPI_T_pvar_get_num(num_pvar: *mut c_int) -> c_int {
    finish("MPI_T_pvar_get_num", tool::check().and_then(|()| store(num_pvar, "num_pvar", pvar::ALL.len() as c_int)))
}

pub unsafe fn MPI_T_pvar_get_info(
    pvar_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    var_class: *mut c_int,
    datatype: *mut Datatype,
    enumtype: *mut TEnum,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
    readonly: *mut c_int,
    continuous: *mut c_int,
    atomic: *mut c_int,
) -> c_int {
    let get = || -> Result<()> {
        let found = pvar::find(pvar_index)?;
        tell_text(name, name_len, &found.name);
        tell(verbosity, found.verbosity);
        tell(var_class, found.class);
        tell(datatype, found.datatype());
        tell(enumtype, found.enumeration());
        tell_text(desc, desc_len, &found.text);
        tell(bind, found.bind());
        tell(readonly, c_int::from(found.continuous()));
        tell(continuous, c_int::from(found.continuous()));
        tell(atomic, c_int::from(!found.continuous()));
        Ok(())
    };
    finish("MPI_T_pvar_get_info", get())
}

pub unsafe fn MPI_T_pvar_get_index(name: *const c_char, var_class: c_int, pvar_index: *mut c_int) -> c_int {
    let found = bytes(name, MPI_T_ERR_INVALID, "name").and_then(|name| pvar::index(name, var_class));
    finish("MPI_T_pvar_get_index", found.and_then(|index| store(pvar_index, "pvar_index", index)))
}

pub unsafe fn MPI_T_pvar_session_create(session: *mut TPvarSession) -> c_int {
    let create = || -> Result<()> {
        not_null(session, "session")?;
        store(session, "session", pvar::session_create()?)
    };
    finish("MPI_T_pvar_session_create", create())
}

pub unsafe fn MPI_T_pvar_session_free(session: *mut TPvarSession) -> c_int {
    let freed = load(session, "session").and_then(pvar::session_free);
    finish("MPI_T_pvar_session_free", freed.and_then(|()| store(session, "session", MPI_T_PVAR_SESSION_NULL)))
}

pub unsafe fn MPI_T_pvar_handle_alloc(session: TPvarSession, pvar_index: c_int, obj_handle: *mut c_void, handle: *mut TPvarHandle, count: *mut c_int) -> c_int {
    let alloc = || -> Result<()> {
        not_null(handle, "handle")?;
        let bound = if pvar::binds(pvar_index)? { Some(load(obj_handle.cast::<Comm>(), "obj_handle")?) } else { None };
        let (new, elements) = pvar::open(session, pvar_index, bound)?;
        tell(count, elements as c_int);
        store(handle, "handle", new)
    };
    finish("MPI_T_pvar_handle_alloc", alloc())
}

pub unsafe fn MPI_T_pvar_handle_free(session: TPvarSession, handle: *mut TPvarHandle) -> c_int {
    let freed = load(handle, "handle").and_then(|handle| pvar::close(session, handle));
    finish("MPI_T_pvar_handle_free", freed.and_then(|()| store(handle, "handle", MPI_T_PVAR_HANDLE_NULL)))
}

pub unsafe fn MPI_T_pvar_start(session: TPvarSession, handle: TPvarHandle) -> c_int {
    finish("MPI_T_pvar_start", pvar::start(session, handle))
}

pub unsafe fn MPI_T_pvar_stop(session: TPvarSession, handle: TPvarHandle) -> c_int {
    finish("MPI_T_pvar_stop", pvar::stop(session, handle))
}

pub unsafe fn MPI_T_pvar_read(session: TPvarSession, handle: TPvarHandle, buf: *mut c_void) -> c_int {
    finish("MPI_T_pvar_read", pvar::read(session, handle).and_then(|values| put_all(buf, &values)))
}

pub unsafe fn MPI_T_pvar_write(session: TPvarSession, handle: TPvarHandle, buf: *const c_void) -> c_int {
    let write = || -> Result<()> {
        let elements = pvar::writable(session, handle)?;
        not_null(buf, "buf")?;
        let values = (0..elements).map(|at| buf.cast::<u64>().add(at).read_unaligned()).collect();
        pvar::write(session, handle, values)
    };
    finish("MPI_T_pvar_write", write())
}

pub unsafe fn MPI_T_pvar_reset(session: TPvarSession, handle: TPvarHandle) -> c_int {
    finish("MPI_T_pvar_reset", pvar::reset(session, handle))
}

pub unsafe fn MPI_T_pvar_readreset(session: TPvarSession, handle: TPvarHandle, buf: *mut c_void) -> c_int {
    let read = not_null(buf, "buf").and_then(|()| pvar::read_reset(session, handle));
    finish("MPI_T_pvar_readreset", read.and_then(|values| put_all(buf, &values)))
}

pub unsafe fn MPI_T_source_get_num(num_sources: *mut c_int) -> c_int {
    finish("MPI_T_source_get_num", tool::check().and_then(|()| store(num_sources, "num_sources", 1)))
}

pub unsafe fn MPI_T_source_get_info(
    source_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    ordering: *mut TSourceOrder,
    ticks_per_second: *mut i64,
    max_ticks: *mut i64,
    info: *mut Info,
) -> c_int {
    let get = || -> Result<()> {
        event::check_source(source_index)?;
        tell_text(name, name_len, event::SOURCE_NAME);
        tell_text(desc, desc_len, event::SOURCE_TEXT);
        tell(ordering, MPI_T_SOURCE_ORDERED);
        tell(ticks_per_second, event::TICKS_PER_SECOND);
        tell(max_ticks, i64::MAX);
        tell_hints(info, Pairs::new())
    };
    finish("MPI_T_source_get_info", get())
}

pub unsafe fn MPI_T_source_get_timestamp(source_index: c_int, timestamp: *mut i64) -> c_int {
    let time = event::check_source(source_index).map(|()| event::timestamp_ns());
    finish("MPI_T_source_get_timestamp", time.and_then(|time| store(timestamp, "timestamp", time)))
}

/// A new info object, where the caller asks for one; the caller frees it.
unsafe fn tell_hints(place: *mut Info, hints: Pairs) -> Result<()> {
    if !place.is_null() {
        tell(place, info::create(hints)?);
    }
    Ok(())
}

pub unsafe fn MPI_T_event_get_num(num_events: *mut c_int) -> c_int {
    finish("MPI_T_event_get_num", tool::check().and_then(|()| store(num_events, "num_events", event::TYPES.len() as c_int)))
}

pub unsafe fn MPI_T_event_get_info(
    event_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    verbosity: *mut c_int,
    array_of_datatypes: *mut Datatype,
    array_of_displacements: *mut isize,
    num_elements: *mut c_int,
    enumtype: *mut TEnum,
    info: *mut Info,
    desc: *mut c_char,
    desc_len: *mut c_int,
    bind: *mut c_int,
) -> c_int {
    let get = || -> Result<()> {
        let found = event::find(event_index)?;
        tell_text(name, name_len, found.name);
        tell(verbosity, MPI_T_VERBOSITY_USER_DETAIL);
        if !num_elements.is_null() {
            let room = usize::try_from(*num_elements).unwrap_or(0);
            for (at, element) in found.elements.iter().enumerate().take(room) {
                if !array_of_datatypes.is_null() {
                    array_of_datatypes.add(at).write(if element.wide { MPI_COUNT } else { MPI_INT });
                }
                if !array_of_displacements.is_null() {
                    array_of_displacements.add(at).write(element.place);
                }
            }
            *num_elements = found.elements.len() as c_int;
        }
        tell(enumtype, enumeration::of_event(found.name));
        tell_text(desc, desc_len, found.text);
        tell(bind, MPI_T_BIND_NO_OBJECT);
        tell_hints(info, Pairs::new())
    };
    finish("MPI_T_event_get_info", get())
}

pub unsafe fn MPI_T_event_get_index(name: *const c_char, event_index: *mut c_int) -> c_int {
    let found = bytes(name, MPI_T_ERR_INVALID, "name").and_then(event::index);
    finish("MPI_T_event_get_index", found.and_then(|index| store(event_index, "event_index", index)))
}

pub unsafe fn MPI_T_event_handle_alloc(event_index: c_int, _obj_handle: *mut c_void, info: Info, event_registration: *mut TEventRegistration) -> c_int {
    let alloc = || -> Result<()> {
        not_null(event_registration, "event_registration")?;
        let new = event::register(event_index, info::hints(info)?)?;
        store(event_registration, "event_registration", new)
    };
    finish("MPI_T_event_handle_alloc", alloc())
}

pub unsafe fn MPI_T_event_handle_set_info(event_registration: TEventRegistration, info: Info) -> c_int {
    finish("MPI_T_event_handle_set_info", info::hints(info).and_then(|hints| event::set_hints(event_registration, hints)))
}

pub unsafe fn MPI_T_event_handle_get_info(event_registration: TEventRegistration, info_used: *mut Info) -> c_int {
    let get = || -> Result<()> {
        let hints = event::hints(event_registration)?;
        not_null(info_used, "info_used")?;
        tell_hints(info_used, hints)
    };
    finish("MPI_T_event_handle_get_info", get())
}

pub unsafe fn MPI_T_event_register_callback(
    event_registration: TEventRegistration,
    cb_safety: TCbSafety,
    info: Info,
    user_data: *mut c_void,
    event_cb_function: Option<TEventCbFunction>,
) -> c_int {
    let registered = info::hints(info).and_then(|hints| event::set_callback(event_registration, cb_safety, hints, user_data, event_cb_function));
    finish("MPI_T_event_register_callback", registered)
}

pub unsafe fn MPI_T_event_callback_set_info(event_registration: TEventRegistration, cb_safety: TCbSafety, info: Info) -> c_int {
    let set = info::hints(info).and_then(|hints| event::callback_hints(event_registration, cb_safety, Some(hints)));
    finish("MPI_T_event_callback_set_info", set.map(drop))
}

pub unsafe fn MPI_T_event_callback_get_info(event_registration: TEventRegistration, cb_safety: TCbSafety, info_used: *mut Info) -> c_int {
    let get = || -> Result<()> {
        let hints = event::callback_hints(event_registration, cb_safety, None)?;
        not_null(info_used, "info_used")?;
        tell_hints(info_used, hints)
    };
    finish("MPI_T_event_callback_get_info", get())
}

pub unsafe fn MPI_T_event_handle_free(event_registration: TEventRegistration, user_data: *mut c_void, free_cb_function: Option<TEventFreeCbFunction>) -> c_int {
    finish("MPI_T_event_handle_free", event::free(event_registration, user_data, free_cb_function))
}

pub unsafe fn MPI_T_event_set_dropped_handler(event_registration: TEventRegistration, dropped_cb_function: Option<TEventDroppedCbFunction>) -> c_int {
    finish("MPI_T_event_set_dropped_handler", event::set_dropped(event_registration, dropped_cb_function))
}

pub unsafe fn MPI_T_event_read(event_instance: TEventInstance, element_index: c_int, buffer: *mut c_void) -> c_int {
    let read = || -> Result<()> {
        let value = event::value(&event::instance(event_instance)?, element_index)?;
        not_null(buffer, "buffer")?;
        put(buffer, &value);
        Ok(())
    };
    finish("MPI_T_event_read", read())
}

pub unsafe fn MPI_T_event_copy(event_instance: TEventInstance, buffer: *mut c_void) -> c_int {
    let copy = || -> Result<()> {
        let event = event::instance(event_instance)?;
        not_null(buffer, "buffer")?;
        for (element, at) in event::type_of(&event).elements.iter().zip(0..) {
            put(buffer.cast::<u8>().offset(element.place).cast(), &event::value(&event, at)?);
        }
        Ok(())
    };
    finish("MPI_T_event_copy", copy())
}

pub unsafe fn MPI_T_event_get_timestamp(event_instance: TEventInstance, event_timestamp: *mut i64) -> c_int {
    let time = event::instance(event_instance).map(|event| event.time_ns as i64);
    finish("MPI_T_event_get_timestamp", time.and_then(|time| store(event_timestamp, "event_timestamp", time)))
}

pub unsafe fn MPI_T_event_get_source(event_instance: TEventInstance, source_index: *mut c_int) -> c_int {
    finish("MPI_T_event_get_source", event::instance(event_instance).and_then(|_| store(source_index, "source_index", 0)))
}

pub unsafe fn MPI_T_category_get_num(num_cat: *mut c_int) -> c_int {
    finish("MPI_T_category_get_num", tool::check().and_then(|()| store(num_cat, "num_cat", category::ALL.len() as c_int)))
}

pub unsafe fn MPI_T_category_get_info(
    cat_index: c_int,
    name: *mut c_char,
    name_len: *mut c_int,
    desc: *mut c_char,
    desc_len: *mut c_int,
    num_cvars: *mut c_int,
    num_pvars: *mut c_int,
    num_categories: *mut c_int,
) -> c_int {
    let get = || -> Result<()> {
        let found = category::find(cat_index)?;
        tell_text(name, name_len, found.name);
        tell_text(desc, desc_len, found.text);
        tell(num_cvars, found.cvars.len() as c_int);
        tell(num_pvars, found.pvars.len() as c_int);
        tell(num_categories, found.categories.len() as c_int);
        Ok(())
    };
    finish("MPI_T_category_get_info", get())
}

pub unsafe fn MPI_T_category_get_num_events(cat_index: c_int, num_events: *mut c_int) -> c_int {
    let found = category::find(cat_index).and_then(|found| store(num_events, "num_events", found.events.len() as c_int));
    finish("MPI_T_category_get_num_events", found)
}

pub unsafe fn MPI_T_category_get_index(name: *const c_char, cat_index: *mut c_int) -> c_int {
    let found = bytes(name, MPI_T_ERR_INVALID, "name").and_then(category::index);
    finish("MPI_T_category_get_index", found.and_then(|index| store(cat_index, "cat_index", index)))
}

pub unsafe fn MPI_T_category_get_cvars(cat_index: c_int, len: c_int, indices: *mut c_int) -> c_int {
    finish("MPI_T_category_get_cvars", category::find(cat_index).and_then(|found| put_indices(len, indices, &found.cvars)))
}

pub unsafe fn MPI_T_category_get_pvars(cat_index: c_int, len: c_int, indices: *mut c_int) -> c_int {
    finish("MPI_T_category_get_pvars", category::find(cat_index).and_then(|found| put_indices(len, indices, &found.pvars)))
}

pub unsafe fn MPI_T_category_get_events(cat_index: c_int, len: c_int, indices: *mut c_int) -> c_int {
    finish("MPI_T_category_get_events", category::find(cat_index).and_then(|found| put_indices(len, indices, &found.events)))
}

pub unsafe fn MPI_T_category_get_categories(cat_index: c_int, len: c_int, indices: *mut c_int) -> c_int {
    let found = category::find(cat_index).and_then(|found| put_indices(len, indices, &found.categories));
    finish("MPI_T_category_get_categories", found)
}

/// Categories never change, so their update number stays.
pub unsafe fn MPI_T_category_changed(update_number: *mut c_int) -> c_int {
    finish("MPI_T_category_changed", tool::check().and_then(|()| store(update_number, "update_number", 0)))
}
