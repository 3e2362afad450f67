-- Puts the words of the row into the function that refuses: a transaction that began before the move, and sees only what was there
-- then, does not see the row, but it always calls the newest function.
do $seal$
begin
    execute pg_catalog.format(
        'create or replace function windlass.refuse() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as %L',
        pg_catalog.format(
            'begin raise exception using errcode = ''WL001'', message = %L; end',
            (select m.closed from windlass.move m)
        )
    );
end
$seal$;
