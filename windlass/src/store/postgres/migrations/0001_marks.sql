-- By what people look for jobs: a row for each tag and correlation id, and none for a job without them. Triggers keep them, so
-- that no way to write a job can forget it; their conditions keep them from being called for a plain job.
-- name is `c` for a correlation id, `t:` and the key for a tag.
create table windlass.mark (name text not null, value text not null, seq bigint not null, primary key (name, value, seq));
-- By seq + 0: see ready_claim.
create index mark_job on windlass.mark ((seq + 0));

create function windlass.put_marks() returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $put_marks$
begin
    if tg_op <> 'INSERT' then
        delete from windlass.mark where seq + 0 = old.seq;
    end if;
    -- What is damaged, or holds a NUL, which text cannot, has no marks. Backslashes that stand for themselves come in pairs.
    if tg_op <> 'DELETE' and position('\u0000' in replace(new.options, '\\', '')) = 0 and windlass.is_json(new.options) then
        insert into windlass.mark (name, value, seq)
        select 't:' || t.key, t.value, new.seq
        from json_each_text(
            case json_typeof(new.options::json -> 'tags') when 'object' then new.options::json -> 'tags' end) as t
        where t.value is not null
        union all
        select 'c', c.value, new.seq
        from (select new.options::json ->> 'correlation_id' as value) as c
        where c.value is not null;
    end if;
    return null;
end
$put_marks$;
create trigger job_marks_put after insert on windlass.job for each row
when (new.options like '%"tags"%' or new.options like '%"correlation_id"%')
execute function windlass.put_marks();
create trigger job_marks_changed after update of options on windlass.job for each row
when (old.options is distinct from new.options)
execute function windlass.put_marks();
create trigger job_marks_gone after delete on windlass.job for each row
when (old.options like '%"tags"%' or old.options like '%"correlation_id"%')
execute function windlass.put_marks();
