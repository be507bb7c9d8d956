//! Where a process listens: what its devices offer, as a text that the others get from the job's key-value store.

use std::fmt;
use std::str::FromStr;

use proto::reliability::RAILS_MAX;

use super::device::Offer;

/// Where a process listens: its incarnation, how many of the offers are rails of their own, and the offers, those first, as their device prints them:
/// `7 1 192.0.2.2/24:4711,4712-1472;fd00::2/64:4713-1452`. Offers of another kind than the reader's are left out when a card is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Card<O> {
    pub epoch: u32,
    pub rails: usize,
    /// 1 to [`RAILS_MAX`].
    pub offers: Vec<O>,
}

impl<O: fmt::Display> fmt::Display for Card<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.epoch, self.rails)?;
        for (index, offer) in self.offers.iter().enumerate() {
            write!(f, "{}{offer}", if index == 0 { ' ' } else { ';' })?;
        }
        Ok(())
    }
}

/// A text that is no card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoCard;

impl<O: Offer> FromStr for Card<O> {
    type Err = NoCard;

    fn from_str(text: &str) -> Result<Card<O>, NoCard> {
        let parse = || {
            let (epoch, rest) = text.split_once(' ')?;
            let (rails, offers) = rest.split_once(' ')?;
            let texts: Vec<&str> = offers.split(';').collect();
            let epoch = epoch.parse().ok().filter(|&epoch| epoch != 0)?;
            let rails: usize = rails.parse().ok().filter(|rails| (1..=texts.len()).contains(rails))?;
            let known: Vec<(usize, &str)> = texts.iter().copied().enumerate().filter(|(_, text)| !O::is_of_other_kind(text)).collect();
            let offers: Vec<O> = known.iter().map(|(_, text)| text.parse().ok()).collect::<Option<_>>()?;
            let rails = known.iter().filter(|(place, _)| *place < rails).count();
            (texts.len() <= RAILS_MAX && !offers.is_empty()).then_some(Card { epoch, rails, offers })
        };
        parse().ok_or(NoCard)
    }
}
