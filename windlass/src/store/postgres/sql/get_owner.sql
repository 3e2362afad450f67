-- Whom the store belongs to, null for nobody in particular; held until the end of the transaction.
select owner from windlass.store for update
