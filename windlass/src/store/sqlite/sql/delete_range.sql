-- Takes the jobs that complete_range.sql ended out of the leased ones; its parameters ?1 to ?4. Primary key.
delete from windlass_leased
where seq between ?1 and ?2 and token = substr(?3, 16 * (seq - ?1) + 1, 16) and expires_at > ?4 and flags & ~4 = 0 and version <= 100;
