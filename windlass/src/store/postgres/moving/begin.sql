-- Lets the move itself write, one process of it at a time: what one that was killed has yet to commit comes first.
set local windlass.moving = 'on';
lock table windlass.move in share row exclusive mode;
