-- The latest end of a lease that ends by a moment. ?1 the moment. Index windlass_leased_expiry.
select max(expires_at) from windlass_leased where expires_at <= ?1;
