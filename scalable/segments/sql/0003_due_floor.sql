-- A claim that had room for a part of a row only, with another row due after it, left the floor of what is due at the other
-- row: the rest of the first one was passed by for good. The floor of existing cursors is lifted, so that it is found.

-- Gives messages to a session: first those that are due again, in the order of that, then new ones from the frontier.
-- The payloads are read by the caller afterwards, so that the lock does not wait for them.
CREATE OR REPLACE FUNCTION segment_claim(
    an_incarnation bigint, a_segment_id bigint, a_subscription text, a_session text, a_consumer text,
    max_messages bigint, max_bytes bigint, lease_seconds float8, max_ranges integer, max_ahead integer,
    OUT refused boolean, OUT a_log_id bigint, OUT batch_offsets bigint[], OUT firsts bigint[], OUT behinds bigint[],
    OUT times integer[], OUT at_incarnation bigint, OUT at_end boolean, OUT drained boolean,
    OUT next_due_seconds float8
) LANGUAGE plpgsql AS $$
DECLARE
    log        segment_log;
    cursor     segment_cursor;
    before     segment_position;
    state      segment_position;
    moment     timestamptz;
    held_until timestamptz;
    room       bigint := greatest(max_messages, 1);
    bytes      bigint := max_bytes;
    last_batch bigint := -1;
    looked_at  integer := 0;
    part       bigint;
    each      record;
BEGIN
    SELECT * INTO log FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id;
    SELECT * INTO cursor FROM segment_cursor c
    WHERE c.log_id = log.log_id AND c.subscription = a_subscription FOR NO KEY UPDATE;
    refused := NOT FOUND;
    IF refused THEN
        RETURN;
    END IF;
    before := segment_newest_position(cursor.cursor_id);
    state := segment_forget_trimmed(before, log);
    moment := greatest(clock_timestamp(), state.due_floor);  -- a clock that is set back makes nothing due earlier
    held_until := moment + make_interval(secs => lease_seconds);
    a_log_id := log.log_id;
    batch_offsets := '{}';
    firsts := '{}';
    behinds := '{}';
    times := '{}';
    FOR each IN
        SELECT p.first, p.behind, p.batch_offset, p.due_at, p.deliveries, octet_length(b.payload) AS size
        FROM segment_pending p JOIN segment_batch b ON b.log_id = log.log_id AND b.base_offset = p.batch_offset
        WHERE p.cursor_id = cursor.cursor_id AND p.due_at >= state.due_floor AND p.due_at <= moment
        ORDER BY p.due_at, p.first
    LOOP
        EXIT WHEN room = 0;  -- before the floor moves: of the row before this one a part may be left
        state.due_floor := each.due_at;
        IF each.batch_offset <> last_batch THEN
            IF last_batch >= 0 AND each.size > bytes THEN
                room := 0;
            END IF;
            bytes := bytes - each.size;
            last_batch := each.batch_offset;
        END IF;
        EXIT WHEN room = 0;
        part := least(each.behind, each.first + room);
        state := segment_split_pending(state, log.log_id, part);
        UPDATE segment_pending p
        SET session = a_session, consumer = a_consumer, due_at = held_until, deliveries = each.deliveries + 1
        WHERE p.cursor_id = cursor.cursor_id AND p.first = each.first;
        batch_offsets := batch_offsets || each.batch_offset;
        firsts := firsts || each.first;
        behinds := behinds || part;
        times := times || each.deliveries + 1;
        room := room - (part - each.first);
    END LOOP;
    IF room > 0 THEN
        state.due_floor := moment;
    END IF;
    FOR each IN
        SELECT b.base_offset, greatest(b.base_offset, state.frontier) AS first, b.base_offset + b.count AS behind,
               octet_length(b.payload) AS size, segment_due_at(b.deliver_at_ms) AS due_at
        FROM segment_batch b
        WHERE room > 0 AND b.log_id = log.log_id AND b.base_offset >= segment_batch_at(log.log_id, state.frontier)
          AND b.base_offset + b.count > state.frontier
        ORDER BY b.base_offset LIMIT max_ahead
    LOOP
        EXIT WHEN state.ranges >= max_ranges;
        part := each.behind;
        IF each.due_at > moment THEN
            INSERT INTO segment_pending
            VALUES (cursor.cursor_id, each.first, part, each.base_offset, each.due_at, 0, NULL, NULL);
        ELSE
            IF each.base_offset <> last_batch THEN
                EXIT WHEN last_batch >= 0 AND each.size > bytes;
                bytes := bytes - each.size;
                last_batch := each.base_offset;
            END IF;
            part := least(part, each.first + room);
            INSERT INTO segment_pending VALUES (
                cursor.cursor_id, each.first, part, each.base_offset, held_until, 1, a_session, a_consumer);
            batch_offsets := batch_offsets || each.base_offset;
            firsts := firsts || each.first;
            behinds := behinds || part;
            times := times || 1;
            room := room - (part - each.first);
        END IF;
        state.frontier := part;
        state.ranges := state.ranges + 1;
        state.pending := state.pending + part - each.first;
        looked_at := looked_at + 1;
        EXIT WHEN room = 0;
    END LOOP;
    state := segment_move(before, state);
    at_incarnation := state.incarnation;
    at_end := log.end_offset IS NOT NULL AND state.frontier >= log.end_offset;
    drained := at_end AND state.ranges = 0;
    IF cardinality(firsts) > 0 THEN
        RETURN;
    ELSIF looked_at = max_ahead THEN
        next_due_seconds := 0;
    ELSIF state.ranges > 0 THEN
        next_due_seconds := greatest(0, extract(epoch FROM (
            SELECT p.due_at FROM segment_pending p
            WHERE p.cursor_id = cursor.cursor_id AND p.due_at >= state.due_floor ORDER BY p.due_at LIMIT 1) - moment));
    END IF;
END
$$;

UPDATE segment_position SET due_floor = '-infinity';
