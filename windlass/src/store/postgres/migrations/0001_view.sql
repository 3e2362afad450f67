-- A job with its state, whichever table its narrow row is in.
-- Joined by ranges: by equality a plan may walk through a whole index, which looks as good while a table is small.
create view windlass.record as
select
    j.seq, j.id, j.lane, j.priority, j.inherited, j.depth, j.created_at, j.deadline, j.visibility,
    j.content_type, j.payload, j.options, j.depends_on, j.workflow, j.schedule, j.slot, j.spawned_by,
    j.progress, j.checkpoint,
    case
        when r.seq is not null then r.state
        when l.seq is not null then 3::smallint
        when w.seq is not null then 0::smallint
        else d.state
    end as state,
    coalesce(r.slow, l.slow, w.slow, false) as slow,
    coalesce(r.version, l.version, w.version, d.version) as version,
    coalesce(r.attempt, l.attempt, w.attempt, d.attempt) as attempt,
    coalesce(r.failures, l.failures, w.failures, d.failures) as failures,
    coalesce(r.lost, l.lost, w.lost, d.lost) as lost,
    coalesce(r.generation, l.generation, w.generation, d.generation) as generation,
    coalesce(r.scheduled_at, l.scheduled_at, w.scheduled_at, d.scheduled_at) as scheduled_at,
    coalesce(r.updated_at, w.updated_at) as updated_at,
    coalesce(r.started_at, l.started_at, w.started_at, d.started_at) as started_at,
    coalesce(r.failed_at, l.failed_at, w.failed_at, d.failed_at) as failed_at,
    coalesce(r.failure, l.failure, w.failure, d.failure) as failure,
    r.due, w.run_at, w.waits_all, w.waits_any,
    coalesce(l.token, d.token) as token, coalesce(l.worker, d.worker) as worker, l.expires_at, l.cancel, l.strand,
    d.completed_at, d.reason, d.result_type, d.result
from windlass.job j
left join windlass.ready r on r.seq >= j.seq and r.seq <= j.seq
left join windlass.leased l on l.seq >= j.seq and l.seq <= j.seq
left join windlass.pending w on w.seq >= j.seq and w.seq <= j.seq
left join windlass.done d on d.seq >= j.seq and d.seq <= j.seq;

-- Whether text can be read as JSON; null can. A cast that fails would fail the whole statement.
create function windlass.is_json(value text) returns boolean
language plpgsql immutable
set search_path = pg_catalog, pg_temp
as $is_json$
begin
    perform value::json;
    return true;
exception when others then
    return false;
end
$is_json$;

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
