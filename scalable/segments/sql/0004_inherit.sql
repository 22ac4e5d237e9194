-- Replaces what a log inherited of its parents' marks, in one statement: while parents are sealed their producers wait.
CREATE FUNCTION segment_inherit(
    an_incarnation bigint, a_segment_id bigint, an_operation text, a_token bigint,
    producers text[], starts integer[], ends integer[], lasts bigint[],
    OUT refusal text
) LANGUAGE plpgsql AS $$
DECLARE
    log segment_log;
BEGIN
    SELECT * INTO log FROM segment_lock(an_incarnation, a_segment_id);
    IF NOT FOUND THEN
        refusal := 'missing';
    ELSIF NOT segment_pass_fence(log.log_id, an_operation, a_token) THEN
        refusal := 'fenced';
    ELSE
        DELETE FROM segment_mark WHERE log_id = log.log_id AND inherited;
        INSERT INTO segment_mark (log_id, producer, inherited, hash_start, hash_end, last_sequence)
        SELECT log.log_id, m.producer, true, m.hash_start, m.hash_end, m.last_sequence
        FROM unnest(producers, starts, ends, lasts) AS m (producer, hash_start, hash_end, last_sequence);
    END IF;
END
$$;
