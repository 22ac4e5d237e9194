-- Makes the stores of a topic that are not there, and the cursors that they lack at the first offset that is kept. The logs
-- are read in later statements than they are made: another one may have made them meanwhile.
CREATE FUNCTION segment_create_all(
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
        ON CONFLICT ON CONSTRAINT segment_cursor_key DO NOTHING RETURNING cursor_id, log_id
    )
    INSERT INTO segment_position (cursor_id, incarnation, position, frontier)
    SELECT made.cursor_id, 0, log.start_offset, log.start_offset FROM made JOIN segment_log log USING (log_id);
END
$$;

-- Removes stores of a topic with all that is in them. Each table is emptied in a later statement than the rows are locked
-- under which it is written to: the deletion waits for the writers, and an earlier snapshot would leave what they wrote.
CREATE FUNCTION segment_delete_all(an_incarnation bigint, segment_ids bigint[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    logs    bigint[];
    cursors bigint[];
BEGIN
    SELECT array_agg(doomed.log_id) INTO logs FROM (
        SELECT log_id FROM segment_log WHERE incarnation = an_incarnation AND segment_id = ANY (segment_ids)
        ORDER BY segment_id FOR UPDATE
    ) AS doomed;
    SELECT array_agg(doomed.cursor_id) INTO cursors FROM (
        SELECT cursor_id FROM segment_cursor WHERE log_id = ANY (logs) ORDER BY cursor_id FOR UPDATE
    ) AS doomed;
    DELETE FROM segment_pending WHERE cursor_id = ANY (cursors);
    DELETE FROM segment_position WHERE cursor_id = ANY (cursors);
    DELETE FROM segment_cursor WHERE cursor_id = ANY (cursors);
    DELETE FROM segment_batch WHERE log_id = ANY (logs);
    DELETE FROM segment_mark WHERE log_id = ANY (logs);
    DELETE FROM segment_log WHERE log_id = ANY (logs);
END
$$;
