-- The function was replaced in 0003, which forgot what had been set for it in 0002.
ALTER FUNCTION segment_claim SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off;
