//! The VI Provider Library: messages with explicit descriptors over memory that processes share by load and store.
//!
//! Paper 001, part 1 (VIA2SISCI), maps this interface onto memory that is shared across a network; here it lies on the segments, rings and
//! waiting of the shared-memory fabric. `docs/vipl.md` tells the design and what was taken from where.
//!
//! | module | question |
//! | --- | --- |
//! | `entry` | What does a C program see? Conversion and checks of arguments, nothing else |
//! | [`status`] | What does the library answer? |
//! | `nic` | What belongs to an open NIC? Protection tags, regions, limits |
//! | `region` | Which memory may be touched, by whom? Registration, protection, translation to segment and offset |
//! | `segment` | Where does shared memory come from? Anonymous files, or ranges of one file |
//! | `board` | What does a NIC show its peers? Its regions, and how it is woken |
//! | `channel` | What do two connected VIs share? A ring each way and the receive descriptors |
//! | [`handed`] | How do receive descriptors reach the sender? |
//! | `descriptor` | What does a descriptor say? |
//! | `blocks` | How are gather and scatter lists walked? |
//! | `vi`, `send`, `receive` | What happens to a posted descriptor? |
//! | `queue` | What has completed? Completion queues |
//! | `wait` | How does a thread wait? |
//! | `manager` | Who calls callbacks, and acts when the program does not call? |
//! | `connect` | How do two VIs find each other? The protocol over TCP; both models; liveness |
//! | `names` | Which address has a name? |
//! | `handles` | Which object does a handle mean? |
//! | `sys` | System calls and raw memory |

#![cfg(not(loom))]

mod blocks;
mod board;
mod channel;
pub mod connect;
mod descriptor;
mod entry;
pub mod handed;
mod handles;
mod manager;
mod names;
mod nic;
mod queue;
mod receive;
mod region;
mod segment;
mod send;
pub mod status;
mod sys;
mod vi;
mod wait;
