//! The protocol machine itself ([`proto::p2p`]), in small worlds: every order in which programs post, packets arrive and machines go on.

mod ports;
mod world;
mod worlds;
