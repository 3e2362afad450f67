-- Workflows. $1 ids. By workflow_pkey.
select workflow, name, created_at, pruned, seq from windlass.workflow where workflow = any($1::uuid[])
