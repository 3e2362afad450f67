create table windlass.migration (
    number int primary key,
    applied_at timestamptz not null default now()
);
