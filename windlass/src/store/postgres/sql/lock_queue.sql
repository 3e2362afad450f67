-- Locks a controlled queue: only the holder reads and writes its gates and strands. $1 its number. By queue_pkey.
-- What is to be seen as it is now is looked at with the next statement: this one still sees what was there before it waited.
select control, halted from windlass.queue where queue = $1::int for no key update
