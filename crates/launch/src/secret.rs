//! How does the job's key go from rank 0 to the others through a foreign process manager's store?
//!
//! As it is, or within a credential of munge, the daemon by which Slurm's own parts know each other: encrypted, and decoded only for the user
//! who has made it. Whoever reads the store, or the network on which it travels, then learns nothing.

use crate::Error;
use crate::munge_sys::{Munge, user};
use crate::wire::SECRET_BYTES;

/// What all credentials of munge begin with.
const CREDENTIAL: &[u8] = b"MUNGE:";

/// `WHIMBREL_KEY_MUNGE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Within a job of Slurm, where munge answers on rank 0; else as it is.
    Auto,
    On,
    Off,
}

fn mode() -> Result<Mode, Error> {
    match params::KEY_MUNGE.value().map_err(|error| Error::new(error.to_string()))? {
        "on" => Ok(Mode::On),
        "off" => Ok(Mode::Off),
        _ => Ok(Mode::Auto),
    }
}

/// The value that rank 0 leaves for the others.
///
/// Errors: munge is wanted and does not answer.
pub(crate) fn written(key: &[u8; SECRET_BYTES]) -> Result<Vec<u8>, Error> {
    let by_slurm = std::env::var_os("SLURM_JOB_ID").is_some();
    write(key, mode()?, by_slurm, |key| Munge::open()?.encode(key, user()))
}

/// The key in the value that rank 0 has left.
///
/// Errors: it is none; its credential does not decode here, or another user has made it; munge is wanted and was not used.
pub(crate) fn read(value: &[u8]) -> Result<[u8; SECRET_BYTES], Error> {
    parse(value, mode()?, user(), |credential| Munge::open()?.decode(credential))
}

fn write(key: &[u8; SECRET_BYTES], mode: Mode, by_slurm: bool, encode: impl FnOnce(&[u8]) -> Result<Vec<u8>, String>) -> Result<Vec<u8>, Error> {
    if mode == Mode::Off || mode == Mode::Auto && !by_slurm {
        return Ok(key.to_vec());
    }
    match encode(key) {
        Ok(credential) if credential.starts_with(CREDENTIAL) => Ok(credential),
        _ if mode == Mode::Auto => Ok(key.to_vec()),
        Ok(_) => Err(Error::new("WHIMBREL_KEY_MUNGE=on, but what munge gives is no credential")),
        Err(why) => Err(Error::new(format!("WHIMBREL_KEY_MUNGE=on, but munge does not encode the job's key: {why}"))),
    }
}

fn parse(value: &[u8], mode: Mode, own_user: u32, decode: impl FnOnce(&[u8]) -> Result<(Vec<u8>, u32), String>) -> Result<[u8; SECRET_BYTES], Error> {
    let wrong_length = |_| Error::new("rank 0 left a key of another length");
    if !value.starts_with(CREDENTIAL) {
        let key = value.try_into().map_err(wrong_length)?;
        return if mode == Mode::On { Err(Error::new("WHIMBREL_KEY_MUNGE=on, but rank 0 has left the job's key without munge")) } else { Ok(key) };
    }
    if mode == Mode::Off {
        return Err(Error::new("WHIMBREL_KEY_MUNGE=off, but rank 0 has left the job's key in a credential of munge: set the same on all ranks"));
    }
    let (content, user) = decode(value).map_err(|why| {
        Error::new(format!("munge does not decode the job's key, which rank 0 has encoded, on this host: {why}; WHIMBREL_KEY_MUNGE=off sends it without munge"))
    })?;
    if user != own_user {
        return Err(Error::new(format!("user {user} has left the job's key, not user {own_user}, whose process this is")));
    }
    content.as_slice().try_into().map_err(wrong_length)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; SECRET_BYTES] = [0xa7; SECRET_BYTES];

    fn credential(key: &[u8]) -> Result<Vec<u8>, String> {
        Ok([CREDENTIAL, key, b":"].concat())
    }

    fn silent<T>(_: &[u8]) -> Result<T, String> {
        Err("no daemon".to_owned())
    }

    fn opened(user: u32) -> impl Fn(&[u8]) -> Result<(Vec<u8>, u32), String> {
        move |text| Ok((text[CREDENTIAL.len()..text.len() - 1].to_vec(), user))
    }

    #[test]
    fn munge_is_used_where_it_is_there_and_wanted() {
        for (mode, by_slurm, used) in
            [(Mode::Auto, true, true), (Mode::Auto, false, false), (Mode::On, false, true), (Mode::On, true, true), (Mode::Off, true, false)]
        {
            let value = write(&KEY, mode, by_slurm, credential).unwrap();
            assert_eq!(value.starts_with(CREDENTIAL), used, "{mode:?} {by_slurm}");
            assert_eq!(parse(&value, mode, 7, opened(7)), Ok(KEY));
        }
        assert_eq!(write(&KEY, Mode::Auto, true, silent), Ok(KEY.to_vec()));
        let said = write(&KEY, Mode::On, true, silent).unwrap_err().to_string();
        assert!(said.contains("WHIMBREL_KEY_MUNGE=on") && said.contains("no daemon"), "{said}");
        assert!(write(&KEY, Mode::On, true, |_| Ok(b"x".to_vec())).is_err());
    }

    #[test]
    fn what_is_no_credential_of_this_user_is_refused() {
        let value = credential(&KEY).unwrap();
        for (value, mode, user, word) in [
            (&value[..], Mode::Auto, 8, "user 7"),
            (&value, Mode::Off, 7, "KEY_MUNGE=off"),
            (&KEY, Mode::On, 7, "without munge"),
            (&KEY[1..], Mode::Auto, 7, "length"),
            (&credential(&KEY[1..]).unwrap(), Mode::Auto, 7, "length"),
        ] {
            let said = parse(value, mode, user, opened(7)).unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        }
        let said = parse(&value, Mode::Auto, 7, silent).unwrap_err().to_string();
        assert!(said.contains("no daemon") && said.contains("rank 0"), "{said}");
    }
}
