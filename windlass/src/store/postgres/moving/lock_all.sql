-- Keeps everybody else away until the transaction ends. Others that hold a table are not waited for long: the caller
-- lets go of all and tries again, so that nobody is caught between two tables.
set local lock_timeout = '300ms';
lock table windlass.job, windlass.ready, windlass.leased, windlass.pending, windlass.done, windlass.edge, windlass.attempt,
    windlass.log, windlass.key, windlass.workflow, windlass.schedule, windlass.act, windlass.queue, windlass.lane,
    windlass.event, windlass.sample, windlass.pulse, windlass.worker, windlass.gate, windlass.strand, windlass.note in access exclusive mode;
set local lock_timeout = '20s';
