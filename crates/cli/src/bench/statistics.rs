//! Which number stands for many?
//!
//! A round in which a run failed has NaN for its value, which every function here passes over.

/// The middle of the values, the mean of the two in the middle of an even number; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// The lower quartile of the values, one of them; NaN of none.
pub fn quartile(values: &[f64]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 4).copied().unwrap_or(f64::NAN)
}

/// The smallest of the values; NaN of none.
pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().reduce(f64::min).unwrap_or(f64::NAN)
}

/// What is saved of `before` when it becomes `after`: positive is better, as in the paper's Fig. 16 and 17.
pub fn improvement(before: f64, after: f64) -> f64 {
    (before - after) / before
}

/// The median over the rounds of each round's improvement: both values of a pair met the same mood of the machine.
pub fn paired_improvement(before: &[f64], after: &[f64]) -> f64 {
    let each: Vec<f64> = before.iter().zip(after).map(|(&before, &after)| improvement(before, after)).collect();
    median(&each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(quartile(&[5.0, 1.0, 4.0, 3.0, 2.0]), 2.0);
        assert!(quartile(&[]).is_nan());
        assert_eq!(least(&[3.0, 1.0, 2.0]), 1.0);
        assert!(least(&[]).is_nan());
    }

    #[test]
    fn failed_rounds_are_passed_over() {
        assert_eq!(quartile(&[f64::NAN, 7.0]), 7.0);
        assert_eq!(median(&[f64::NAN, 1.0, 3.0, f64::NAN, 2.0]), 2.0);
        assert_eq!(least(&[f64::NAN, 2.0, 3.0]), 2.0);
        assert_eq!(paired_improvement(&[10.0, f64::NAN, 10.0], &[5.0, 1.0, f64::NAN]), 0.5);
    }

    #[test]
    fn improvements_are_taken_round_by_round() {
        assert_eq!(improvement(10.0, 7.0), 0.3);
        assert_eq!(paired_improvement(&[10.0, 20.0, 40.0], &[5.0, 10.0, 50.0]), 0.5);
        assert!(paired_improvement(&[], &[]).is_nan());
    }
}
