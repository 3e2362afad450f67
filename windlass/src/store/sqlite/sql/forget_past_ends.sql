-- Forgets old ends that are no longer in `done`. ?1 the newest tick to forget.
delete from windlass_past_end
where ended <= ?1;
