-- Whom the store belongs to; null for nobody in particular.
select owner
from windlass_store
where only_row = 1;
