-- Takes writes again.
drop function if exists windlass.refuse() cascade;
