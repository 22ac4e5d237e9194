-- Removes one cursor of a log, or (NULL) all. Its rows go in later statements than the cursor itself: the deletion waits
-- for whoever claims or acknowledges under the cursor's lock, and an earlier snapshot would leave what they write.
CREATE OR REPLACE FUNCTION segment_delete_cursors(a_log_id bigint, a_subscription text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gone bigint[];
BEGIN
    WITH deleted AS (
        DELETE FROM segment_cursor
        WHERE log_id = a_log_id AND subscription = coalesce(a_subscription, subscription) RETURNING cursor_id
    )
    SELECT array_agg(cursor_id) INTO gone FROM deleted;
    DELETE FROM segment_pending WHERE cursor_id = ANY (gone);
    DELETE FROM segment_position WHERE cursor_id = ANY (gone);
END
$$;

-- What was left so.
DELETE FROM segment_pending p WHERE NOT EXISTS (SELECT FROM segment_cursor c WHERE c.cursor_id = p.cursor_id);
DELETE FROM segment_position p WHERE NOT EXISTS (SELECT FROM segment_cursor c WHERE c.cursor_id = p.cursor_id);
