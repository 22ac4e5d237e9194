-- A skip up to a place that was read before acknowledgements went further must not take them back, as a seek would.

-- Acknowledges all below an offset, and takes back every claim above it, under a new incarnation. A claim that lasts
-- does not count as a delivery, for nobody failed.
CREATE FUNCTION segment_skip_below(
    before segment_position, INOUT state segment_position, log segment_log, target bigint, at_incarnation bigint
) LANGUAGE plpgsql AS $$
BEGIN
    target := greatest(target, state.position);
    state := segment_settle(state, log.log_id, state.position, target);
    state.frontier := greatest(state.frontier, target);
    state.incarnation := at_incarnation;
    UPDATE segment_pending p
    SET session = NULL, consumer = NULL, deliveries = p.deliveries - (p.due_at > clock_timestamp())::integer,
        due_at = greatest(clock_timestamp(), state.due_floor)
    WHERE p.cursor_id = state.cursor_id AND p.session IS NOT NULL AND p.first >= target;
    state := segment_move(before, state);
END
$$;

-- Acknowledges the next messages that are not, raises the incarnation and takes every claim back.
CREATE OR REPLACE FUNCTION segment_skip(
    an_incarnation bigint, a_segment_id bigint, a_subscription text, how_many bigint,
    OUT refused boolean, OUT at_position bigint, OUT at_incarnation bigint, OUT at_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    log    segment_log;
    before segment_position;
    state  segment_position;
    target bigint;
BEGIN
    SELECT * INTO log FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id;
    UPDATE segment_cursor c SET incarnation = c.incarnation + 1
    WHERE c.log_id = log.log_id AND c.subscription = a_subscription
    RETURNING c.cursor_id, c.incarnation, c.generation INTO before.cursor_id, at_incarnation, at_generation;
    refused := NOT FOUND;
    IF refused THEN
        RETURN;
    END IF;
    before := segment_newest_position(before.cursor_id);
    state := segment_forget_trimmed(before, log);
    IF how_many <= state.pending THEN
        SELECT p.first + how_many - p.earlier INTO target FROM (
            SELECT first, behind, coalesce(sum(behind - first) OVER (
                ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS earlier
            FROM segment_pending WHERE cursor_id = state.cursor_id AND first >= state.position
        ) AS p
        WHERE p.earlier + p.behind - p.first >= how_many ORDER BY p.first LIMIT 1;
    ELSE
        target := least(state.frontier + how_many - state.pending, segment_end_offset(log));
    END IF;
    state := segment_skip_below(before, state, log, coalesce(target, state.position), at_incarnation);
    at_position := state.position;
END
$$;

-- Acknowledges all below an offset; like a skip else, and like it never moves back.
CREATE FUNCTION segment_skip_to(
    an_incarnation bigint, a_segment_id bigint, a_subscription text, new_position bigint,
    OUT refused boolean, OUT at_position bigint, OUT at_incarnation bigint, OUT at_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    log    segment_log;
    before segment_position;
    state  segment_position;
BEGIN
    SELECT * INTO log FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id;
    UPDATE segment_cursor c SET incarnation = c.incarnation + 1
    WHERE c.log_id = log.log_id AND c.subscription = a_subscription
    RETURNING c.cursor_id, c.incarnation, c.generation INTO before.cursor_id, at_incarnation, at_generation;
    refused := NOT FOUND;
    IF refused THEN
        RETURN;
    END IF;
    before := segment_newest_position(before.cursor_id);
    state := segment_forget_trimmed(before, log);
    state := segment_skip_below(before, state, log, least(new_position, segment_end_offset(log)), at_incarnation);
    at_position := state.position;
END
$$;

ALTER FUNCTION segment_skip_below SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_skip SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_skip_to SET enable_seqscan = off SET enable_bitmapscan = off;
