//! The memory of objects that are gone, kept for new ones of their kind: programs make and free objects in turn, and an allocation costs as much as all the
//! rest of such a call.

use engine::order::{Level, Ordered};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Objects of one kind whose memory is kept, at most.
const SPARE_MAX: usize = 16;

/// Memory for objects of one kind, of which no `Weak` is made.
pub struct Spare<T>(Vec<Arc<MaybeUninit<T>>>);

/// The memory of an object that is gone.
pub struct Emptied<T>(Arc<MaybeUninit<T>>);

impl<T> Spare<T> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Spare<T> {
        Spare(Vec::new())
    }

    /// The object, in memory that was kept if there is some.
    #[inline(always)]
    pub fn place(&mut self, make: impl FnOnce() -> T) -> Arc<T> {
        let memory = self.0.pop().unwrap_or_else(Arc::new_uninit);
        // SAFETY: nobody shares it: it is new, or from `empty`.
        unsafe {
            Arc::as_ptr(&memory).cast_mut().write(MaybeUninit::new(make()));
            memory.assume_init()
        }
    }

    #[inline]
    pub fn keep(&mut self, emptied: Emptied<T>) {
        if self.0.len() < SPARE_MAX {
            self.0.push(emptied.0);
        }
    }
}

/// The object, where nobody else has a share of it. As `Arc::get_mut`, without the atomic instruction by which that counts `Weak`s, of which none is made.
#[inline]
pub fn sole<T>(object: &mut Arc<T>) -> Option<&mut T> {
    debug_assert_eq!(Arc::weak_count(object), 0, "a Weak of an object whose memory is kept");
    if Arc::strong_count(object) > 1 {
        return None;
    }
    // Whoever shared it has let it go before.
    fence(Ordering::Acquire);
    // SAFETY: this is the only share and there is no `Weak`, so that nobody else reaches the object while this one is borrowed.
    Some(unsafe { &mut *Arc::as_ptr(object).cast_mut() })
}

/// Lets a share go: the last one with the object, whose memory it gives.
#[inline]
pub fn empty<T>(mut object: Arc<T>) -> Option<Emptied<T>> {
    sole(&mut object)?;
    let memory = Arc::into_raw(object).cast_mut();
    // SAFETY: this is the only share and there is no `Weak`, so that nobody else reaches the object; as `MaybeUninit` it is not dropped again.
    unsafe {
        memory.drop_in_place();
        Some(Emptied(Arc::from_raw(memory.cast::<MaybeUninit<T>>())))
    }
}

/// Objects of one kind that are shared, with the memory that is kept for them.
pub struct Pool<T>(Ordered<Spare<T>>);

impl<T> Pool<T> {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Pool<T> {
        Pool(Ordered::new(Level::Spare, Spare::new()))
    }
}

/// What has a pool.
pub trait Poolable: Sized + Send + Sync + 'static {
    fn pool() -> &'static Pool<Self>;
}

/// A share of an object of a pool.
pub struct Pooled<T: Poolable>(ManuallyDrop<Arc<T>>);

impl<T: Poolable> Pooled<T> {
    /// The object is made where it stays, with the pool's lock held.
    #[inline(always)]
    pub fn place(make: impl FnOnce() -> T) -> Pooled<T> {
        let placed = T::pool().0.lock().place(make);
        Pooled(ManuallyDrop::new(placed))
    }

    /// The object, where nobody else has a share of it.
    #[inline]
    pub fn own(&mut self) -> Option<&mut T> {
        sole(&mut self.0)
    }
}

impl<T: Poolable> Clone for Pooled<T> {
    #[inline]
    fn clone(&self) -> Self {
        Pooled(self.0.clone())
    }
}

impl<T: Poolable> Deref for Pooled<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Poolable> Drop for Pooled<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: nobody uses it after this.
        let object = unsafe { ManuallyDrop::take(&mut self.0) };
        if let Some(emptied) = empty(object) {
            T::pool().0.lock().keep(emptied);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    static DROPPED: AtomicUsize = AtomicUsize::new(0);

    struct Counting {
        weight: usize,
    }

    impl Drop for Counting {
        fn drop(&mut self) {
            DROPPED.fetch_add(self.weight, Ordering::Relaxed);
        }
    }

    impl Poolable for Counting {
        fn pool() -> &'static Pool<Counting> {
            static POOL: Pool<Counting> = Pool::new();
            &POOL
        }
    }

    #[test]
    fn each_object_is_dropped_once_and_its_memory_is_used_again() {
        let dropped = || DROPPED.load(Ordering::Relaxed);
        let first = Pooled::place(|| Counting { weight: 1 });
        let at = std::ptr::from_ref(&*first);
        let shared = first.clone();
        drop(first);
        assert_eq!((dropped(), shared.weight), (0, 1));
        let second = Pooled::place(|| Counting { weight: 10 });
        assert!(!std::ptr::eq(at, &*second));
        drop(shared);
        assert_eq!(dropped(), 1);
        let third = Pooled::place(|| Counting { weight: 100 });
        assert!(std::ptr::eq(at, &*third) && third.weight == 100 && second.weight == 10);
        drop((second, third));
        let many: Vec<Pooled<Counting>> = (0..3 * SPARE_MAX).map(|_| Pooled::place(|| Counting { weight: 1000 })).collect();
        drop(many);
        assert_eq!(dropped(), 111 + 3000 * SPARE_MAX);
        assert_eq!(Counting::pool().0.lock().0.len(), SPARE_MAX);
    }
}
