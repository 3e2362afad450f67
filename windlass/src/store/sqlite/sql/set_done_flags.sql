-- Changes an ended job's flags. ?1 seq, ?2 flags. Primary key.
update windlass_done
set flags = ?2
where seq = ?1;
