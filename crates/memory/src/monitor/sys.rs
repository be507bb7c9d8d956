//! `userfaultfd` (Linux, `include/uapi/linux/userfaultfd.h`).

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::mm::UserfaultfdFlags;
use std::ops::Range;

const API: libc::Ioctl = 0xc018_aa3f_u32 as libc::Ioctl;
const REGISTER: libc::Ioctl = 0xc020_aa00_u32 as libc::Ioctl;
const ZEROPAGE: libc::Ioctl = 0xc020_aa04_u32 as libc::Ioctl;
const VERSION: u64 = 0xaa;
/// Not privileged: faults of the kernel itself are not for this descriptor, and none are anyway.
const USER_MODE_ONLY: UserfaultfdFlags = UserfaultfdFlags::from_bits_retain(1);
const PAGEFAULT_FLAG_WP: u64 = 1;
const EVENT_REMAP: u64 = 1 << 2;
const EVENT_REMOVE: u64 = 1 << 3;
const EVENT_UNMAP: u64 = 1 << 6;
const MODE_WP: u64 = 2;
const REMAP: u8 = 0x14;
const REMOVE: u8 = 0x15;
const UNMAP: u8 = 0x16;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    bytes: u64,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct ZeroPage {
    start: u64,
    bytes: u64,
    mode: u64,
    zeroed: i64,
}

/// One event as the kernel writes it.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Message {
    event: u8,
    reserved: [u8; 7],
    words: [u64; 3],
}

const _: () = assert!(size_of::<Api>() == 24 && size_of::<Register>() == 32 && size_of::<ZeroPage>() == 32 && size_of::<Message>() == 32);

impl Message {
    /// Memory that is not what it was, by this event; up to two ranges.
    pub fn ranges(&self) -> [Range<usize>; 2] {
        let [a, b, c] = self.words.map(|word| word as usize);
        match self.event {
            REMAP => [a..a.saturating_add(c), b..b.saturating_add(c)],
            REMOVE | UNMAP => [a..b, 0..0],
            _ => [super::log::EVERYTHING, 0..0],
        }
    }
}

fn ioctl<T>(fd: BorrowedFd, request: libc::Ioctl, argument: &mut T) -> Result<(), Errno> {
    // SAFETY: all callers give the structure that the request is for, which the kernel reads and writes.
    match unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(argument)) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// A descriptor that tells of unmapped, moved and dropped memory.
///
/// Errors: the call is not there or forbidden, or the kernel tells of less.
pub fn open() -> Result<OwnedFd, Errno> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    // SAFETY: what is done with the descriptor is asked of `register` alone, which protects no page and answers no fault.
    let fd = match unsafe { rustix::mm::userfaultfd(flags | USER_MODE_ONLY) } {
        // Kernels before 5.11 do not know that flag.
        // SAFETY: as above.
        Err(Errno::INVAL) => unsafe { rustix::mm::userfaultfd(flags) },
        other => other,
    }?;
    use rustix::fd::AsFd;
    let mut api = Api { api: VERSION, features: PAGEFAULT_FLAG_WP | EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP, ioctls: 0 };
    ioctl(fd.as_fd(), API, &mut api)?;
    Ok(fd)
}

/// Events of the memory of `range`, whole pages, from now on. It protects no page, so that no access ever waits.
///
/// Errors: nothing is mapped there, or memory with another file than one of memory.
pub fn register(fd: BorrowedFd, range: &Range<usize>) -> Result<(), Errno> {
    ioctl(fd, REGISTER, &mut Register { start: range.start as u64, bytes: range.len() as u64, mode: MODE_WP, ioctls: 0 })
}

/// Whether `range`, whole pages that are there, lies in one mapping that gives events to this descriptor. `None` while a change of memory is under way.
///
/// That is what the kernel looks at first when it is asked for pages of zeros; then it finds that there are pages. (One that is not there would be one of
/// zeros at its next use, too.)
pub fn gives_events(fd: BorrowedFd, range: &Range<usize>) -> Option<bool> {
    match ioctl(fd, ZEROPAGE, &mut ZeroPage { start: range.start as u64, bytes: range.len() as u64, mode: 0, zeroed: 0 }) {
        Ok(()) | Err(Errno::EXIST) => Some(true),
        Err(Errno::AGAIN) => None,
        Err(_) => Some(false),
    }
}

/// The events that are there: how many. Does not wait, and allocates nothing.
pub fn read(fd: BorrowedFd, messages: &mut [Message]) -> usize {
    // SAFETY: room for as many events, all of whose bytes may have any value.
    let bytes = unsafe { libc::read(fd.as_raw_fd(), messages.as_mut_ptr().cast(), size_of_val(messages)) };
    usize::try_from(bytes).unwrap_or(0) / size_of::<Message>()
}

/// Waits until there are events.
pub fn wait(fd: BorrowedFd) {
    let mut one = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: a structure that lives for the time of the call.
    while unsafe { libc::poll(&raw mut one, 1, -1) } < 1 {}
}

const QUERY: libc::Ioctl = 0xc068_6611_u32 as libc::Ioctl;
const SHARED: u64 = 8;

/// `PROCMAP_QUERY` (Linux, `include/uapi/linux/fs.h`).
#[repr(C)]
#[derive(Default)]
struct Query {
    bytes: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    mapping_flags: u64,
    page_bytes: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_bytes: u32,
    build_id_bytes: u32,
    name: u64,
    build_id: u64,
}

const _: () = assert!(size_of::<Query>() == 104);

/// Where mappings of this process stand.
pub fn open_maps() -> Result<OwnedFd, Errno> {
    rustix::fs::open(c"/proc/self/maps", rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC, rustix::fs::Mode::empty())
}

/// Gives `each` the mappings that `range` lies in, one after the other, where all of it is private memory without a file: nobody changes its pages but this
/// process, and all such changes but one kind give events ([`gives_events`]).
///
/// Errors: it is other memory, or there is none; or one of `each`.
pub fn private_mappings(maps: BorrowedFd, range: &Range<usize>, mut each: impl FnMut(Range<usize>) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let mut query = Query { bytes: size_of::<Query>() as u64, address: at as u64, ..Query::default() };
        match ioctl(maps, QUERY, &mut query) {
            Ok(()) if query.inode == 0 && query.mapping_flags & SHARED == 0 && query.end as usize > at => {
                each(query.start as usize..query.end as usize)?;
                at = query.end as usize;
            }
            // Kernels before 6.11.
            Err(Errno::NOTTY) => {
                let text = std::fs::read_to_string("/proc/self/maps").map_err(|_| Errno::IO)?;
                let found = private_mappings_in(&text, range).ok_or(Errno::INVAL)?;
                return found.into_iter().try_for_each(each);
            }
            _ => return Err(Errno::INVAL),
        }
    }
    Ok(())
}

/// The same, of the text of `/proc/self/maps`.
fn private_mappings_in(maps: &str, range: &Range<usize>) -> Option<Vec<Range<usize>>> {
    let (mut found, mut at) = (Vec::new(), range.start);
    for line in maps.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let &[addresses, flags, _, _, inode, ..] = &words[..] else { return None };
        let (start, end) = addresses.split_once('-')?;
        let mapping = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
        if mapping.end <= at {
            continue;
        }
        if mapping.start > at || !flags.ends_with('p') || inode != "0" {
            return None;
        }
        at = mapping.end;
        found.push(mapping);
        if at >= range.end {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of one mapping")]
    fn the_text_of_mappings_is_read() {
        let maps = "1000-3000 rw-p 00000000 00:00 0 [heap]\n3000-4000 r--p 00000000 00:00 0\n5000-6000 rw-p 00000000 00:00 0\n\
                    6000-7000 rw-p 00000000 08:01 77 /a file\n7000-8000 rw-s 00000000 00:00 0\n";
        let cases = [
            (0x1000..0x2000, Some(vec![0x1000..0x3000])),
            (0x1500..0x4000, Some(vec![0x1000..0x3000, 0x3000..0x4000])),
            (0x3000..0x5000, None),
            (0x5000..0x6000, Some(vec![0x5000..0x6000])),
            (0x5000..0x7000, None),
            (0x7000..0x8000, None),
            (0..0x2000, None),
            (0x9000..0xa000, None),
        ];
        for (range, expected) in cases {
            assert_eq!(private_mappings_in(maps, &range), expected, "{range:x?}");
        }
        assert_eq!(private_mappings_in("nonsense", &(0..1)), None);
    }
}
