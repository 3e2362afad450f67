-- Keeps everybody else from writing until the transaction ends. Others that hold a table are not waited for long: the caller
-- lets go of all and tries again, so that nobody is caught between two tables.
set local lock_timeout = '300ms';
lock table windlass.job, windlass.ready, windlass.leased, windlass.pending, windlass.done, windlass.edge, windlass.attempt,
    windlass.log, windlass.key, windlass.workflow, windlass.schedule, windlass.act, windlass.queue, windlass.lane,
    windlass.event, windlass.sample in share row exclusive mode;
set local lock_timeout = '20s';
