-- Removes the ends of lifetimes of ended jobs. ?1 lowest seq, ?2 highest, ?3 a byte for each number from ?1 on: 1 for those that
-- are meant. Primary keys.
delete from windlass_lifetime
where (deadline, seq) in (
    select deadline, seq
    from windlass_done
    where seq between ?1 and ?2
        and substr(?3, seq - ?1 + 1, 1) = x'01'
        and exists (select 1 from windlass_lifetime)
);
