-- What waits for its moment is counted from its index alone.
drop index windlass.ready_later;
create index ready_later on windlass.ready (due) include (lane, state) where state <> 2;

-- How many DELAYED and RETRYING jobs of each lane are not due, up to a number of them in all. From ready_later alone, as far as its pages
-- are settled: the store's own connections plan without that, for tables whose pages hardly ever are.
create function windlass.count_later(after bigint, most bigint) returns table (lane int, state smallint, count bigint)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_indexonlyscan = on
as $count_later$
    select r.lane, r.state, count(*)
    from (select w.lane, w.state from windlass.ready w where w.state <> 2 and w.due > after order by w.due limit most) r
    group by r.lane, r.state
$count_later$;
