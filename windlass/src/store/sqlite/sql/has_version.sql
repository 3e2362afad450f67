-- Whether this file has tables of Windlass: 1 or 0.
select count(*)
from sqlite_master
where type = 'table' and name = 'windlass_version';
