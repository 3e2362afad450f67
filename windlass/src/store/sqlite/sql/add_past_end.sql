-- Remembers an end that is no longer in `done`. ?1 ended, ?2 seq, ?3 state, ?4 at.
insert or ignore into windlass_past_end (ended, seq, state, at) values (?1, ?2, ?3, ?4);
