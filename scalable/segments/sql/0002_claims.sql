-- Cursors that many consumers share, backlogs, offsets by time; batches that are due later.

-- `appended_at` never falls within a log; NULL in batches from before this version: as old as their log.
-- `deliver_at_ms` is NULL when the batch is due at once; in milliseconds since 1970, as in the batch's header.
ALTER TABLE segment_batch ADD COLUMN appended_at timestamptz, ADD COLUMN deliver_at_ms bigint;

-- Everything below `position` is acknowledged, nothing at or above `frontier` was ever claimed; between them `pending`
-- messages in `ranges` rows of segment_pending are not acknowledged. No row of segment_pending is due before
-- `due_floor`. Like the position all of this is inserted anew with each change, behind the row that it replaces.
ALTER TABLE segment_position
    ADD COLUMN revision  bigint NOT NULL DEFAULT 0,
    ADD COLUMN frontier  bigint,
    ADD COLUMN pending   bigint NOT NULL DEFAULT 0,
    ADD COLUMN ranges    integer NOT NULL DEFAULT 0,
    ADD COLUMN due_floor timestamptz NOT NULL DEFAULT '-infinity';
UPDATE segment_position SET frontier = position;
ALTER TABLE segment_position
    ALTER COLUMN frontier SET NOT NULL,
    DROP CONSTRAINT segment_position_pkey,
    ADD CONSTRAINT segment_position_pkey PRIMARY KEY (cursor_id, incarnation, position, revision),
    ADD CONSTRAINT segment_position_frontier CHECK (position <= frontier AND pending <= frontier - position),
    ADD CONSTRAINT segment_position_pending CHECK (
        pending >= ranges AND (pending = 0) = (ranges = 0) AND (pending = 0) = (position = frontier));

-- Messages below a frontier that are not acknowledged, each in one row; a row lies within one batch. A session holds
-- them until `due_at`; without a session they wait for it. Found by `first` from the cursor's position on and by
-- `due_at` from its due_floor on, so that what an old snapshot keeps is passed by.
CREATE TABLE segment_pending (
    cursor_id    bigint NOT NULL,
    first        bigint NOT NULL,
    behind       bigint NOT NULL,
    batch_offset bigint NOT NULL,
    due_at       timestamptz NOT NULL,
    deliveries   integer NOT NULL,
    session      text,
    consumer     text,
    CONSTRAINT segment_pending_pkey PRIMARY KEY (cursor_id, first),
    CONSTRAINT segment_pending_range CHECK (batch_offset <= first AND first < behind),
    CONSTRAINT segment_pending_held CHECK (deliveries >= 0 AND (session IS NULL) = (consumer IS NULL))
);
CREATE INDEX segment_pending_due ON segment_pending (cursor_id, due_at, first);

CREATE FUNCTION segment_newest_position(a_cursor_id bigint) RETURNS segment_position
LANGUAGE plpgsql STABLE AS $$
DECLARE
    newest segment_position;
BEGIN
    SELECT * INTO newest FROM segment_position p
    WHERE p.cursor_id = a_cursor_id ORDER BY p.incarnation DESC, p.position DESC, p.revision DESC LIMIT 1;
    RETURN newest;
END
$$;

-- The first offset of the batch that has an offset, or of the last one below it.
CREATE FUNCTION segment_batch_at(a_log_id bigint, an_offset bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT b.base_offset FROM segment_batch b WHERE b.log_id = a_log_id AND b.base_offset <= an_offset
        ORDER BY b.base_offset DESC LIMIT 1), 0)
$$;

-- Puts a new state of a cursor in the place of another; its position is found from the rows that are pending.
CREATE FUNCTION segment_move(before segment_position, INOUT after segment_position) LANGUAGE plpgsql AS $$
BEGIN
    after.position := after.frontier;
    IF after.ranges > 0 THEN
        SELECT p.first INTO after.position FROM segment_pending p
        WHERE p.cursor_id = before.cursor_id AND p.first >= before.position ORDER BY p.first LIMIT 1;
    END IF;
    IF after IS NOT DISTINCT FROM before THEN
        RETURN;
    END IF;
    after.revision := CASE WHEN (after.incarnation, after.position) > (before.incarnation, before.position)
                           THEN 0 ELSE before.revision + 1 END;
    INSERT INTO segment_position SELECT after.*;
    DELETE FROM segment_position p
    WHERE p.cursor_id = before.cursor_id AND p.incarnation = before.incarnation
      AND p.position = before.position AND p.revision = before.revision;
END
$$;

-- Cuts the row that has an offset and the one before it into two.
CREATE FUNCTION segment_split_pending(INOUT state segment_position, a_log_id bigint, at_offset bigint)
LANGUAGE plpgsql AS $$
DECLARE
    whole segment_pending;
BEGIN
    IF state.ranges = 0 OR at_offset <= state.position OR at_offset >= state.frontier THEN
        RETURN;
    END IF;
    SELECT * INTO whole FROM segment_pending p
    WHERE p.cursor_id = state.cursor_id AND p.first >= segment_batch_at(a_log_id, at_offset - 1)
      AND p.first < at_offset AND p.behind > at_offset;
    IF FOUND THEN
        UPDATE segment_pending p SET behind = at_offset
        WHERE p.cursor_id = whole.cursor_id AND p.first = whole.first;
        whole.first := at_offset;
        INSERT INTO segment_pending SELECT whole.*;
        state.ranges := state.ranges + 1;
    END IF;
END
$$;

-- Takes the messages of [low, high) out of what is pending, whoever holds them.
CREATE FUNCTION segment_settle(INOUT state segment_position, a_log_id bigint, low bigint, high bigint)
LANGUAGE plpgsql AS $$
DECLARE
    messages bigint;
    parts    integer;
BEGIN
    IF state.ranges = 0 OR low >= state.frontier THEN
        RETURN;
    END IF;
    state := segment_split_pending(state, a_log_id, low);
    state := segment_split_pending(state, a_log_id, high);
    WITH gone AS (
        DELETE FROM segment_pending p
        WHERE p.cursor_id = state.cursor_id AND p.first >= low AND p.first < high
        RETURNING p.behind - p.first AS messages
    )
    SELECT coalesce(sum(gone.messages), 0), count(*) INTO messages, parts FROM gone;
    state.pending := state.pending - messages;
    state.ranges := state.ranges - parts;
END
$$;

-- Brings the frontier up to an offset; the messages that it passes wait for a consumer.
CREATE FUNCTION segment_pass(INOUT state segment_position, a_log_id bigint, an_offset bigint)
LANGUAGE plpgsql AS $$
DECLARE
    parts integer;
BEGIN
    IF an_offset <= state.frontier THEN
        RETURN;
    END IF;
    INSERT INTO segment_pending
    SELECT state.cursor_id, greatest(b.base_offset, state.frontier), least(b.base_offset + b.count, an_offset),
           b.base_offset, greatest(clock_timestamp(), state.due_floor, segment_due_at(b.deliver_at_ms)), 0, NULL, NULL
    FROM segment_batch b
    WHERE b.log_id = a_log_id AND b.base_offset >= segment_batch_at(a_log_id, state.frontier)
      AND b.base_offset < an_offset AND b.base_offset + b.count > state.frontier;
    GET DIAGNOSTICS parts = ROW_COUNT;
    state.ranges := state.ranges + parts;
    state.pending := state.pending + an_offset - state.frontier;
    state.frontier := an_offset;
END
$$;

-- Drops what was trimmed without having been acknowledged.
CREATE FUNCTION segment_forget_trimmed(INOUT state segment_position, log segment_log) LANGUAGE plpgsql AS $$
BEGIN
    IF state.position < log.start_offset THEN
        state := segment_settle(state, log.log_id, state.position, log.start_offset);
        state.frontier := greatest(state.frontier, log.start_offset);
    END IF;
END
$$;

-- The time of delivery of a batch; no later than the year 9999, which a timestamp can hold.
CREATE FUNCTION segment_due_at(deliver_at_ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE STRICT AS $$
    SELECT to_timestamp(least(deliver_at_ms, 253402300799000) / 1000.0)
$$;

-- Moves a cursor up under the lock of its row; see version 1.
CREATE OR REPLACE FUNCTION segment_acknowledge(
    an_incarnation bigint, a_segment_id bigint, a_subscription text, a_generation bigint, a_cursor_incarnation bigint,
    new_position bigint, OUT refused boolean, OUT at_position bigint, OUT at_incarnation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    log    segment_log;
    cursor segment_cursor;
    before segment_position;
    after  segment_position;
BEGIN
    SELECT * INTO log FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id;
    SELECT * INTO cursor FROM segment_cursor c
    WHERE c.log_id = log.log_id AND c.subscription = a_subscription AND c.generation = a_generation
      AND c.incarnation = coalesce(a_cursor_incarnation, c.incarnation)
    FOR NO KEY UPDATE;
    refused := NOT FOUND OR new_position NOT BETWEEN 0 AND segment_end_offset(log);
    IF refused THEN
        RETURN;
    END IF;
    before := segment_newest_position(cursor.cursor_id);
    after := before;
    IF new_position > before.position THEN
        after := segment_settle(after, log.log_id, before.position, new_position);
        after.frontier := greatest(after.frontier, new_position);
        after := segment_move(before, after);
    END IF;
    at_position := after.position;
    at_incarnation := cursor.incarnation;
END
$$;

-- Acknowledges ranges, whoever holds their messages. Refuses by `refused` (a fence or a range) or `too_far`, the index
-- of a range that begins more than `max_ahead` batches above the frontier; the caller finds out which fence it was.
CREATE FUNCTION segment_acknowledge_ranges(
    an_incarnation bigint, a_segment_id bigint, a_subscription text, a_generation bigint, a_cursor_incarnation bigint,
    firsts bigint[], behinds bigint[], max_ahead integer,
    OUT refused boolean, OUT too_far bigint, OUT at_position bigint, OUT at_incarnation bigint, OUT at_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    log    segment_log;
    cursor segment_cursor;
    before segment_position;
    after  segment_position;
    last   bigint;
BEGIN
    SELECT * INTO log FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id;
    SELECT * INTO cursor FROM segment_cursor c
    WHERE c.log_id = log.log_id AND c.subscription = a_subscription
      AND c.generation = coalesce(a_generation, c.generation)
      AND c.incarnation = coalesce(a_cursor_incarnation, c.incarnation)
    FOR NO KEY UPDATE;
    refused := NOT FOUND;
    IF NOT refused THEN
        last := segment_end_offset(log);
        refused := EXISTS (SELECT FROM generate_subscripts(firsts, 1) i
                           WHERE NOT (0 <= firsts[i] AND firsts[i] < behinds[i] AND behinds[i] <= last));
    END IF;
    IF refused THEN
        RETURN;
    END IF;
    before := segment_newest_position(cursor.cursor_id);
    after := before;
    last := (SELECT max(first) FROM unnest(firsts) AS first);
    IF last > before.frontier AND max_ahead < (
        SELECT count(*) FROM (
            SELECT FROM segment_batch b WHERE b.log_id = log.log_id AND b.base_offset >= before.frontier
              AND b.base_offset < last ORDER BY b.base_offset LIMIT max_ahead + 1) AS ahead)
    THEN
        too_far := last;
        RETURN;
    END IF;
    FOR i IN 1 .. coalesce(cardinality(firsts), 0) LOOP
        after := segment_pass(after, log.log_id, firsts[i]);
        after := segment_settle(after, log.log_id, firsts[i], behinds[i]);
        after.frontier := greatest(after.frontier, behinds[i]);
    END LOOP;
    after := segment_move(before, after);
    at_position := after.position;
    at_incarnation := cursor.incarnation;
    at_generation := cursor.generation;
END
$$;

-- Gives messages to a session: first those that are due again, in the order of that, then new ones from the frontier.
-- The payloads are read by the caller afterwards, so that the lock does not wait for them.
CREATE FUNCTION segment_claim(
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

-- Sets when the claims of a session are due, and whose they are from now on, in ranges or (NULL) all; counts messages.
CREATE FUNCTION segment_change_claims(
    an_incarnation bigint, a_segment_id bigint, a_subscription text, a_session text, firsts bigint[], behinds bigint[],
    due_in_seconds float8, keeps boolean, uncounted integer, OUT refused boolean, OUT messages bigint
) LANGUAGE plpgsql AS $$
DECLARE
    log     segment_log;
    cursor  segment_cursor;
    before  segment_position;
    state   segment_position;
    due     timestamptz;
    changed bigint;
BEGIN
    SELECT * INTO log FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id;
    SELECT * INTO cursor FROM segment_cursor c
    WHERE c.log_id = log.log_id AND c.subscription = a_subscription FOR NO KEY UPDATE;
    refused := NOT FOUND;
    IF refused THEN
        RETURN;
    END IF;
    before := segment_newest_position(cursor.cursor_id);
    state := before;
    due := greatest(clock_timestamp(), state.due_floor) + make_interval(secs => due_in_seconds);
    IF firsts IS NULL THEN
        firsts := ARRAY[state.position];
        behinds := ARRAY[state.frontier];
    END IF;
    messages := 0;
    FOR i IN 1 .. cardinality(firsts) LOOP
        state := segment_split_pending(state, log.log_id, firsts[i]);
        state := segment_split_pending(state, log.log_id, behinds[i]);
        WITH held AS (
            UPDATE segment_pending p
            SET due_at = due, deliveries = p.deliveries - uncounted,
                session = CASE WHEN keeps THEN p.session END, consumer = CASE WHEN keeps THEN p.consumer END
            WHERE p.cursor_id = cursor.cursor_id AND p.session = a_session
              AND p.first >= greatest(firsts[i], state.position) AND p.first < behinds[i]
            RETURNING p.behind - p.first AS count
        )
        SELECT coalesce(sum(held.count), 0) INTO changed FROM held;
        messages := messages + changed;
    END LOOP;
    PERFORM segment_move(before, state);
END
$$;

-- Acknowledges the next messages that are not, raises the incarnation and takes every claim back.
CREATE FUNCTION segment_skip(
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
    target := coalesce(target, state.position);
    state := segment_settle(state, log.log_id, state.position, target);
    state.frontier := greatest(state.frontier, target);
    state.incarnation := at_incarnation;
    UPDATE segment_pending p
    SET session = NULL, consumer = NULL, due_at = greatest(clock_timestamp(), state.due_floor)
    WHERE p.cursor_id = state.cursor_id AND p.session IS NOT NULL AND p.first >= target;
    state := segment_move(before, state);
    at_position := state.position;
END
$$;

-- Moves a cursor anywhere between the ends of the log, forgets who holds what and raises its incarnation.
CREATE OR REPLACE FUNCTION segment_seek(
    an_incarnation bigint, a_segment_id bigint, a_subscription text, new_position bigint,
    OUT refused boolean, OUT at_incarnation bigint, OUT at_generation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    log         segment_log;
    a_cursor_id bigint;
BEGIN
    SELECT * INTO log FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id;
    refused := NOT coalesce(new_position BETWEEN log.start_offset AND segment_end_offset(log), false);
    IF refused THEN
        RETURN;
    END IF;
    UPDATE segment_cursor c SET incarnation = c.incarnation + 1
    WHERE c.log_id = log.log_id AND c.subscription = a_subscription
    RETURNING c.cursor_id, c.incarnation, c.generation INTO a_cursor_id, at_incarnation, at_generation;
    refused := NOT FOUND;
    IF refused THEN
        RETURN;
    END IF;
    DELETE FROM segment_pending p WHERE p.cursor_id = a_cursor_id;
    DELETE FROM segment_position p WHERE p.cursor_id = a_cursor_id;
    INSERT INTO segment_position (cursor_id, incarnation, position, frontier)
    VALUES (a_cursor_id, at_incarnation, new_position, new_position);
END
$$;

CREATE OR REPLACE FUNCTION segment_add_cursors(log segment_log, subscriptions text[], a_position bigint) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH made AS (
        INSERT INTO segment_cursor (log_id, subscription) SELECT log.log_id, name FROM unnest(subscriptions) AS name
        ON CONFLICT ON CONSTRAINT segment_cursor_key DO NOTHING RETURNING cursor_id
    )
    INSERT INTO segment_position (cursor_id, incarnation, position, frontier)
    SELECT cursor_id, 0, coalesce(a_position, log.start_offset), coalesce(a_position, log.start_offset) FROM made
$$;

CREATE OR REPLACE FUNCTION segment_delete_cursors(a_log_id bigint, a_subscription text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH gone AS (
        DELETE FROM segment_cursor
        WHERE log_id = a_log_id AND subscription = coalesce(a_subscription, subscription) RETURNING cursor_id
    ), claims AS (
        DELETE FROM segment_pending p USING gone WHERE p.cursor_id = gone.cursor_id
    )
    DELETE FROM segment_position p USING gone WHERE p.cursor_id = gone.cursor_id
$$;

-- The ranges above a position that are acknowledged, the lowest ones.
CREATE FUNCTION segment_acknowledged(state segment_position, max_number integer) RETURNS int8range[]
LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF state.ranges = 0 THEN
        RETURN '{}';
    END IF;
    RETURN coalesce((
        SELECT array_agg(int8range(gap.first, gap.behind)) FROM (
            SELECT row.first, row.behind FROM (
                SELECT p.behind AS first, lead(p.first, 1, state.frontier) OVER (ORDER BY p.first) AS behind
                FROM segment_pending p WHERE p.cursor_id = state.cursor_id AND p.first >= state.position
            ) AS row
            WHERE row.first < row.behind ORDER BY row.first LIMIT max_number
        ) AS gap), '{}');
END
$$;

-- The first offset that was appended at or after a time, by halving the offsets: the times never fall.
CREATE FUNCTION segment_offset_at(log segment_log, a_time timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    low   bigint := log.start_offset;
    high  bigint := segment_end_offset(log);  -- everything from here on is late enough
    entry record;
BEGIN
    WHILE low < high LOOP
        SELECT b.base_offset, b.base_offset + b.count AS behind, coalesce(b.appended_at, log.created_at) AS appended_at
        INTO entry FROM segment_batch b
        WHERE b.log_id = log.log_id AND b.base_offset <= (low + high) / 2 ORDER BY b.base_offset DESC LIMIT 1;
        EXIT WHEN NOT FOUND;
        IF entry.appended_at >= a_time THEN
            high := entry.base_offset;
        ELSE
            low := entry.behind;
        END IF;
    END LOOP;
    RETURN high;
END
$$;

DROP FUNCTION segment_append;

-- As in version 1, with the time of the append, which never falls within a log, and the times of delivery.
CREATE FUNCTION segment_append(
    an_incarnation bigint, a_segment_id bigint, a_producer text,
    counts integer[], hash_lows integer[], hash_highs integer[], firsts bigint[], lasts bigint[], sizes integer[],
    deliver_ats_ms bigint[], payloads bytea[],
    OUT refusal text, OUT refused_index integer, OUT base_offsets bigint[], OUT duplicates boolean[]
) LANGUAGE plpgsql AS $$
DECLARE
    log         segment_log;
    next_offset bigint;
    next_bytes  bigint;
    moment      timestamptz;
    own         bigint;
    ends        bigint[] := '{}';
    mark        record;
BEGIN
    SELECT * INTO log FROM segment_lock(an_incarnation, a_segment_id);
    IF NOT FOUND THEN
        refusal := 'missing';
        RETURN;
    ELSIF log.end_offset IS NOT NULL THEN
        refusal := 'terminated';
        RETURN;
    END IF;
    SELECT b.base_offset + b.count, b.end_bytes, b.appended_at INTO next_offset, next_bytes, moment FROM segment_batch b
    WHERE b.log_id = log.log_id ORDER BY b.base_offset DESC LIMIT 1;
    next_offset := coalesce(next_offset, log.start_offset);
    next_bytes := coalesce(next_bytes, 0);
    moment := greatest(moment, clock_timestamp());
    IF a_producer IS NOT NULL THEN
        own := segment_own_sequence(log.log_id, a_producer);
    END IF;
    base_offsets := '{}';
    duplicates := '{}';
    FOR i IN 1 .. cardinality(counts) LOOP
        hash_lows[i] := coalesce(hash_lows[i], log.hash_start);
        hash_highs[i] := coalesce(hash_highs[i], log.hash_end);
        refused_index := i - 1;
        IF hash_lows[i] < log.hash_start OR hash_highs[i] > log.hash_end THEN
            refusal := 'outside_range';
            RETURN;
        END IF;
        duplicates[i] := false;
        IF a_producer IS NOT NULL AND firsts[i] >= 0 THEN
            SELECT * INTO mark
            FROM segment_mark_bounds(log.log_id, a_producer, own, hash_lows[i], hash_highs[i]);
            IF lasts[i] <= mark.lowest THEN
                duplicates[i] := true;
            ELSIF firsts[i] <= mark.highest THEN
                refusal := 'partly_duplicate';
                RETURN;
            ELSE
                own := lasts[i];
            END IF;
        END IF;
        IF duplicates[i] THEN
            base_offsets[i] := coalesce((
                SELECT b.base_offset FROM segment_batch b
                WHERE b.log_id = log.log_id AND b.producer = a_producer AND b.last_sequence = lasts[i]
                  AND b.first_sequence = firsts[i]), -1);
        ELSE
            base_offsets[i] := next_offset;
            next_offset := next_offset + counts[i];
            next_bytes := next_bytes + sizes[i];
        END IF;
        ends[i] := next_bytes;
    END LOOP;
    refused_index := NULL;
    -- By subscripts: unnest would copy each payload once more.
    INSERT INTO segment_batch
    SELECT log.log_id, base_offsets[i], counts[i], hash_lows[i], hash_highs[i],
           CASE WHEN firsts[i] >= 0 THEN a_producer END, firsts[i], lasts[i], ends[i], payloads[i],
           moment, nullif(deliver_ats_ms[i], 0)
    FROM generate_subscripts(counts, 1) AS i WHERE NOT duplicates[i];
END
$$;

-- A page of batches, with the ends of the log in each row; one row without a batch when there is none. Batches, end
-- and seal are of one moment. The sizes come from the TOAST pointers: no payload is fetched that is not returned.
CREATE FUNCTION segment_read(
    an_incarnation bigint, a_segment_id bigint, an_offset bigint, max_bytes bigint, max_batches integer
) RETURNS TABLE (start_offset bigint, end_offset bigint, terminated boolean, base_offset bigint, count integer,
                 payload bytea)
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN QUERY
    WITH log AS MATERIALIZED (
        SELECT l.log_id, l.start_offset, segment_end_offset(l) AS end_offset, l.end_offset IS NOT NULL AS terminated
        FROM segment_log l WHERE l.incarnation = an_incarnation AND l.segment_id = a_segment_id
    ), page AS (
        SELECT p.base_offset, p.count, p.payload,
               sum(octet_length(p.payload)) OVER (ORDER BY p.base_offset) AS bytes,
               row_number() OVER (ORDER BY p.base_offset) AS place
        FROM log CROSS JOIN LATERAL (
            SELECT b.base_offset, b.count, b.payload FROM segment_batch b
            WHERE b.log_id = log.log_id AND b.base_offset + b.count > an_offset AND b.base_offset >= coalesce((
                SELECT first.base_offset FROM segment_batch first
                WHERE first.log_id = log.log_id AND first.base_offset <= an_offset
                ORDER BY first.base_offset DESC LIMIT 1), 0)
            ORDER BY b.base_offset LIMIT max_batches
        ) p
    )
    SELECT log.start_offset, log.end_offset, log.terminated, page.base_offset, page.count, page.payload
    FROM log LEFT JOIN page ON page.bytes <= max_bytes OR page.place = 1
    ORDER BY page.base_offset;
END
$$;

CREATE OR REPLACE FUNCTION segment_end_offset(log segment_log) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce(log.end_offset, (
        SELECT b.base_offset + b.count FROM segment_batch b
        WHERE b.log_id = log.log_id ORDER BY b.base_offset DESC LIMIT 1
    ), log.start_offset);
END
$$;

DROP FUNCTION segment_cursor_position;

-- While an old snapshot is open these tables are full of rows that no statistics count, and the planner, who takes them
-- for almost empty, would read them from end to end. Every lookup here has its index, in its order.
ALTER FUNCTION segment_append SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_acknowledge SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_acknowledge_ranges SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_seek SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_newest_position SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off;
ALTER FUNCTION segment_end_offset SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off;
ALTER FUNCTION segment_move SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off;
ALTER FUNCTION segment_split_pending SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_settle SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_pass SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_claim SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off;
ALTER FUNCTION segment_change_claims SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_skip SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_acknowledged SET enable_seqscan = off SET enable_bitmapscan = off;
ALTER FUNCTION segment_offset_at SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off;
ALTER FUNCTION segment_read SET enable_seqscan = off SET enable_bitmapscan = off;
