//! Which queues a claim looks in, in which order, and how much it takes from each.
//!
//! Pure arithmetic. Where the free slots suffice for every queue's room there is nothing to share out. Where they do
//! not, queues are served by weight: each gets its share of the slots, and what is left over goes round, so that over
//! time even a single slot is shared by weight. `strict` gives everything to the first queue that wants it.

/// A queue as the rotation sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    /// Which queue.
    pub(super) queue: usize,
    /// How many of its jobs may start now.
    pub(super) room: usize,
    /// Its share beside the others'.
    pub(super) weight: u32,
}

/// The memory of who was served.
#[derive(Debug, Default)]
pub(super) struct Rotation {
    credit: Vec<i64>,
}

impl Rotation {
    /// Shares `free` slots out among queues with room; gives (queue, slots) in the order to look.
    pub(super) fn share(&mut self, wishes: &[Wish], free: usize, strict: bool) -> Vec<(usize, usize)> {
        let wanted: usize = wishes.iter().map(|wish| wish.room).sum();
        let mut shares: Vec<(usize, usize)> = wishes.iter().map(|wish| (wish.queue, wish.room)).collect();
        if wanted > free && !strict {
            shares = self.by_weight(wishes, free);
        }
        let mut left = free;
        for (_, share) in &mut shares {
            *share = (*share).min(left);
            left -= *share;
        }
        shares.retain(|(_, share)| *share > 0);
        shares
    }

    fn by_weight(&mut self, wishes: &[Wish], free: usize) -> Vec<(usize, usize)> {
        let total: u64 = wishes.iter().map(|wish| u64::from(wish.weight)).sum();
        let part = |wish: &Wish| usize::try_from(free as u64 * u64::from(wish.weight) / total.max(1)).unwrap_or(free);
        let mut shares: Vec<usize> = wishes.iter().map(|wish| part(wish).min(wish.room)).collect();
        let mut left = free.saturating_sub(shares.iter().sum());
        while left > 0 {
            let Some(place) = self.turn(wishes, &shares, total) else { break };
            shares[place] += 1;
            left -= 1;
        }
        wishes.iter().zip(shares).map(|(wish, share)| (wish.queue, share)).collect()
    }

    /// Whose turn it is: everybody gains its weight, and the richest pays for the turn.
    fn turn(&mut self, wishes: &[Wish], shares: &[usize], total: u64) -> Option<usize> {
        let most = wishes.iter().map(|wish| wish.queue).max()?;
        if self.credit.len() <= most {
            self.credit.resize(most + 1, 0);
        }
        let open: Vec<usize> = (0..wishes.len()).filter(|place| shares[*place] < wishes[*place].room).collect();
        for place in &open {
            self.credit[wishes[*place].queue] += i64::from(wishes[*place].weight);
        }
        let richest =
            open.into_iter().max_by_key(|place| (self.credit[wishes[*place].queue], std::cmp::Reverse(*place)))?;
        self.credit[wishes[richest].queue] -= i64::try_from(total).unwrap_or(i64::MAX);
        Some(richest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(queue: usize, room: usize, weight: u32) -> Wish {
        Wish { queue, room, weight }
    }

    #[test]
    fn with_slots_for_all_every_queue_gets_its_room() {
        let shared = Rotation::default().share(&[wish(0, 3, 1), wish(2, 5, 9)], 8, false);
        assert_eq!(shared, [(0, 3), (2, 5)]);
    }

    #[test]
    fn scarce_slots_are_shared_by_weight() {
        let mut rotation = Rotation::default();
        assert_eq!(rotation.share(&[wish(0, 100, 3), wish(1, 100, 1)], 8, false), [(0, 6), (1, 2)]);
        let mut single = [0; 2];
        for _ in 0..400 {
            let share = rotation.share(&[wish(0, 1, 3), wish(1, 1, 1)], 1, false);
            assert_eq!(share.len(), 1);
            single[share[0].0] += 1;
        }
        assert_eq!(single, [300, 100]);
    }

    #[test]
    fn what_one_queue_cannot_use_goes_to_the_others() {
        let shared = Rotation::default().share(&[wish(0, 1, 9), wish(1, 100, 1)], 10, false);
        assert_eq!(shared, [(0, 1), (1, 9)]);
    }

    #[test]
    fn strict_order_serves_the_first_queue_first() {
        let mut rotation = Rotation::default();
        assert_eq!(rotation.share(&[wish(0, 5, 1), wish(1, 5, 9)], 4, true), [(0, 4)]);
        assert_eq!(rotation.share(&[wish(0, 5, 1), wish(1, 5, 9)], 7, true), [(0, 5), (1, 2)]);
    }

    #[test]
    fn never_more_than_there_is() {
        for free in 0..20 {
            for strict in [false, true] {
                let wishes = [wish(0, 3, 2), wish(1, 7, 5), wish(2, 1, 1)];
                let shared = Rotation::default().share(&wishes, free, strict);
                let sum: usize = shared.iter().map(|(_, share)| share).sum();
                assert_eq!(sum, free.min(11), "free = {free}, strict = {strict}");
                assert!(shared.iter().all(|(queue, share)| *share <= wishes[*queue].room));
            }
        }
    }
}
