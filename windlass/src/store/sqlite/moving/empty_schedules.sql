-- Forgets all schedules.
delete from windlass_schedule;
