-- No incarnation is that of two cursors: one that is made under a name that was there before, or in another log, must
-- refuse what the other delivered. Each begins at a number of its own, with room for its seeks up to that of the next;
-- cursors of earlier versions, which began at 0, keep theirs.
CREATE SEQUENCE segment_incarnation INCREMENT BY 1048576 START WITH 1048576 OWNED BY segment_cursor.incarnation;
ALTER TABLE segment_cursor ALTER COLUMN incarnation SET DEFAULT nextval('segment_incarnation');

CREATE OR REPLACE FUNCTION segment_add_cursors(log segment_log, subscriptions text[], a_position bigint) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH made AS (
        INSERT INTO segment_cursor (log_id, subscription) SELECT log.log_id, name FROM unnest(subscriptions) AS name
        ON CONFLICT ON CONSTRAINT segment_cursor_key DO NOTHING RETURNING cursor_id, incarnation
    )
    INSERT INTO segment_position (cursor_id, incarnation, position, frontier)
    SELECT cursor_id, incarnation, coalesce(a_position, log.start_offset), coalesce(a_position, log.start_offset)
    FROM made
$$;

-- As in version 6.
CREATE OR REPLACE FUNCTION segment_create_all(
    an_incarnation bigint, segment_ids bigint[], hash_starts integer[], hash_ends integer[],
    cursor_segment_ids bigint[], subscriptions text[]
) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO segment_log (incarnation, segment_id, hash_start, hash_end)
    SELECT an_incarnation, wanted.segment_id, wanted.hash_start, wanted.hash_end
    FROM unnest(segment_ids, hash_starts, hash_ends) AS wanted (segment_id, hash_start, hash_end)
    ORDER BY wanted.segment_id  -- all who wait for each other do so in one order
    ON CONFLICT ON CONSTRAINT segment_log_key DO NOTHING;
    PERFORM FROM segment_log WHERE incarnation = an_incarnation AND segment_id = ANY (cursor_segment_ids)
    ORDER BY segment_id FOR KEY SHARE;
    WITH made AS (
        INSERT INTO segment_cursor (log_id, subscription)
        SELECT log.log_id, wanted.subscription
        FROM unnest(cursor_segment_ids, subscriptions) AS wanted (segment_id, subscription)
        JOIN segment_log log ON log.incarnation = an_incarnation AND log.segment_id = wanted.segment_id
        ON CONFLICT ON CONSTRAINT segment_cursor_key DO NOTHING RETURNING cursor_id, log_id, incarnation
    )
    INSERT INTO segment_position (cursor_id, incarnation, position, frontier)
    SELECT made.cursor_id, made.incarnation, log.start_offset, log.start_offset
    FROM made JOIN segment_log log USING (log_id);
END
$$;
