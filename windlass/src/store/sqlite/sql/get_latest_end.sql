-- The latest end of a lease that ends by a moment, as if those that were granted after the last beat had been granted then.
-- ?1 the moment; ?2 the last beat. Index windlass_leased_expiry.
select max(expires_at - max(started_at - ?2, 0)) from windlass_leased where expires_at <= ?1;
