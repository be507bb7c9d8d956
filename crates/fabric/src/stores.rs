//! Which stores write what another core is to read.

/// Streaming stores go past the caches: for memory that another core has read last, and that this one will not read, so that it need not be brought here
/// before it is written to. Where the processor has none, or memory does not begin where they can, they are as the others. Whoever lets others read what they
/// have written [fences](fence) first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stores {
    Ordinary,
    Streaming,
}

impl Stores {
    pub fn of(streams: bool) -> Stores {
        if streams { Stores::Streaming } else { Stores::Ordinary }
    }
}

/// Makes what these stores have written visible before all that is stored later.
pub fn fence(stores: Stores) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if stores == Stores::Streaming {
        // SAFETY: all 64-bit processors can.
        unsafe { std::arch::x86_64::_mm_sfence() };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = stores;
}
