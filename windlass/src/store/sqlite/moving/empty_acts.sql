-- Forgets all acts.
delete from windlass_act;
