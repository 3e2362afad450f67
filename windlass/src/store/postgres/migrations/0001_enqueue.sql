-- Enqueues a job from any language and from psql, in the caller's own transaction:
--     select windlass.enqueue('mail.welcome', '{"user": 7}', queue => 'mail', delay => '5 minutes');
--     select windlass.enqueue('report', '{"user": 7}', idempotency_key => 'report-7', key_until => 'claimed');
-- Gives the job's id, or that of the job that the idempotency key stands for. The key holds for 24 hours, or until its job is
-- 'claimed' for the first time, or has 'ended'. flow_key is the key that the job counts under in a controlled queue.
create function windlass.enqueue(
    job_type text,
    payload jsonb default 'null',
    queue text default 'default',
    priority int default 2,
    delay interval default null,
    idempotency_key text default null,
    max_attempts int default 3,
    key_until text default null,
    flow_key text default null
) returns uuid
language plpgsql
set search_path = pg_catalog, pg_temp
as $enqueue$
#variable_conflict use_variable
declare
    raw bigint := (extract(epoch from clock_timestamp()) * 1000000)::bigint;
    now_ bigint := raw + (select windlass.remaining_skew(p.skew, p.at, raw) from windlass.pulse p);
    delay_ bigint := nullif(greatest((extract(epoch from delay) * 1000000)::bigint, 0), 0);
    bytes bytea := convert_to(payload::text, 'UTF8');
    options jsonb := '{}';
    rest text := right(replace(gen_random_uuid()::text, '-', ''), 20);
    mask bigint;
    id_ uuid;
    known uuid;
    known_until smallint;
    known_seq bigint;
    over uuid;
    until_ smallint := case key_until when 'claimed' then 1 when 'ended' then 2 else 0 end;
    window_ bigint := case when key_until is null then 86400000000 end;
    lane_ int;
    seq_ bigint;
begin
    if job_type is null or job_type !~ '^[A-Za-z0-9_.:/-]{1,255}$' then
        raise exception 'invalid type: must have 1 to 255 of the characters A-Z a-z 0-9 _ . : / -';
    elsif queue is null or queue !~ '^[A-Za-z0-9_.:/-]{1,128}$' then
        raise exception 'invalid queue: must have 1 to 128 of the characters A-Z a-z 0-9 _ . : / -';
    elsif job_type ~ '^windlass[.]' or queue ~ '^windlass[.]' then
        raise exception 'invalid type or queue: names that begin with windlass and a dot are the system''s';
    elsif priority is null or priority not between 0 and 4 then
        raise exception 'invalid priority: must be 0 (critical) to 4 (bulk)';
    elsif max_attempts is null or max_attempts not between 1 and 100 then
        raise exception 'invalid max_attempts: must be 1 to 100';
    elsif bytes is null or length(bytes) > 1048576 then
        raise exception 'invalid payload: must not be null, and have at most 1048576 bytes';
    elsif jsonb_path_exists(payload, 'strict $.**{100 to last} ? (@.type() == "array" || @.type() == "object")') then
        raise exception 'invalid payload: must be nested at most 100 deep';
    elsif delay_ >= 604800000000 then
        raise exception 'invalid delay: must be shorter than the lifetime of 7 days';
    elsif idempotency_key = '' or char_length(idempotency_key) > 256 then
        raise exception 'invalid idempotency_key: must have 1 to 256 characters';
    elsif key_until not in ('claimed', 'ended') then
        raise exception 'invalid key_until: must be claimed or ended';
    elsif flow_key = '' or char_length(flow_key) > 128 then
        raise exception 'invalid flow_key: must have 1 to 128 characters';
    elsif key_until is not null and idempotency_key is null then
        raise exception 'invalid key_until: there is no idempotency_key';
    end if;
    -- As the program does: the sequence, under a mask that is computed from the rest.
    seq_ := nextval('windlass.seq');
    select ('x' || encode(substr(sha256(s.id_key || decode(rest, 'hex')), 1, 6), 'hex'))::bit(48)::bigint
    into strict mask from windlass.store s;
    id_ := (lpad(to_hex(seq_ # mask), 12, '0') || rest)::uuid;
    if max_attempts <> 3 then
        options := options || jsonb_build_object('retry', jsonb_build_object(
            'strategy', '{"exponential": {"multiplier": 2.0}}'::jsonb, 'initial', 1000000, 'max', 3600000000,
            'jitter', '{"proportional": 0.1}'::jsonb, 'max_attempts', max_attempts,
            'retry_on', '["temporary", "timeout", "system"]'::jsonb));
    end if;
    if delay_ is not null then
        options := options || jsonb_build_object('run_at', jsonb_build_object('in', delay_));
    end if;
    if flow_key is not null then
        options := options || jsonb_build_object('key', flow_key);
    end if;
    if idempotency_key is not null then
        options := options || jsonb_build_object('idempotency', jsonb_build_object(
            'key', idempotency_key, 'scope', 'type', 'window', window_));
        if key_until is not null then
            options := jsonb_set(options, '{idempotency,until}', to_jsonb(key_until));
        end if;
        loop
            insert into windlass.key as k (scope, key, job, until, first_at, expires_at, look_at, fingerprint)
            values ('t:' || job_type, idempotency_key, id_, until_, now_, now_ + window_,
                now_ + coalesce(window_, 3600000000),
                sha256(convert_to(job_type || ' ', 'UTF8') || '\x00'::bytea || bytes))
            on conflict (scope, key) do update
            set job = excluded.job, until = excluded.until, first_at = excluded.first_at,
                expires_at = excluded.expires_at, look_at = excluded.look_at, fingerprint = excluded.fingerprint
            where k.expires_at <= now_ or k.job = over;
            exit when found;
            select k.job, k.until into known, known_until
            from windlass.key k where k.scope = 't:' || job_type and k.key = idempotency_key;
            continue when not found;
            -- Whether the key is over: the known job was claimed, has ended, or is gone. Then it is taken over, if it still
            -- stands for that job.
            select ('x' || encode(substr(sha256(s.id_key || substr(uuid_send(known), 7)), 1, 6), 'hex'))::bit(48)::bigint
                # ('x' || encode(substr(uuid_send(known), 1, 6), 'hex'))::bit(48)::bigint
            into strict known_seq from windlass.store s;
            if known_until = 0 or exists (
                select from windlass.record r
                where r.seq = known_seq and r.id = known and r.state < 5 and (known_until = 2 or r.version = 0)
            ) then
                return known;
            end if;
            over := known;
        end loop;
    end if;
    insert into windlass.queue (name) values (queue) on conflict (name) do nothing;
    insert into windlass.lane (queue, job_type)
    select q.queue, job_type from windlass.queue q where q.name = queue
    on conflict on constraint lane_queue_job_type_key do nothing;
    select l.lane into strict lane_
    from windlass.lane l join windlass.queue q on q.queue = l.queue
    where q.name = queue and l.job_type = enqueue.job_type;
    insert into windlass.job (seq, id, lane, priority, created_at, deadline, visibility, payload, options)
    values (seq_, id_, lane_, priority, now_, now_ + 604800000000, 300000000, bytes, options::text);
    insert into windlass.ready (seq, lane, priority, state, slow, due, deadline, visibility, version, attempt, failures, lost,
        generation, updated_at)
    values (seq_, lane_, priority, case when delay_ is null then 2 else 1 end, false,
        now_ + coalesce(delay_, 0), now_ + 604800000000, 300000000, 0, 0, 0, 0,
        0, case when delay_ is null then null else now_ end);
    insert into windlass.event (at, lane, kind, count, seqs) values (now_, lane_, 9, 1, array[seq_]);
    return id_;
end
$enqueue$;
