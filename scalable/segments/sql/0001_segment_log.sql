-- The embedded segment log. No row here refers to the metadata by a foreign key: an append and a layout commit
-- would deadlock on the key's check, and a second database may hold these tables.

CREATE TABLE segment_log (
    log_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    incarnation   bigint NOT NULL,
    segment_id    bigint NOT NULL,
    hash_start    integer NOT NULL,
    hash_end      integer NOT NULL,
    start_offset  bigint NOT NULL DEFAULT 0,
    end_offset    bigint,                       -- NULL as long as the segment takes appends
    fences        jsonb NOT NULL DEFAULT '{}',  -- operation id -> highest token that touched the store
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    terminated_at timestamptz,
    CONSTRAINT segment_log_key UNIQUE (incarnation, segment_id),
    CONSTRAINT segment_log_range CHECK (0 <= hash_start AND hash_start <= hash_end AND hash_end <= 65535),
    CONSTRAINT segment_log_terminated CHECK ((end_offset IS NULL) = (terminated_at IS NULL)),
    CONSTRAINT segment_log_offsets CHECK (0 <= start_offset AND start_offset <= coalesce(end_offset, start_offset))
);

-- One row for each batch, never updated. `end_bytes` is the running total of payload sizes, so that the size of a
-- segment is the difference of two rows.
CREATE TABLE segment_batch (
    log_id         bigint NOT NULL,
    base_offset    bigint NOT NULL,
    count          integer NOT NULL,
    hash_min       integer NOT NULL,
    hash_max       integer NOT NULL,
    producer       text,                        -- NULL when the batch is not checked for duplicates
    first_sequence bigint NOT NULL,
    last_sequence  bigint NOT NULL,
    end_bytes      bigint NOT NULL,
    payload        bytea NOT NULL,
    CONSTRAINT segment_batch_pkey PRIMARY KEY (log_id, base_offset)
);
ALTER TABLE segment_batch ALTER payload SET STORAGE EXTERNAL;  -- batches are compressed by their producers
CREATE INDEX segment_batch_producer ON segment_batch (log_id, producer, last_sequence) WHERE producer IS NOT NULL;

-- What was stored of a producer before the batches that are still here: `inherited` from the parents, for a part of
-- the range; or kept when a producer's last batch was trimmed, for the whole range.
CREATE TABLE segment_mark (
    log_id        bigint NOT NULL,
    producer      text NOT NULL,
    inherited     boolean NOT NULL,
    hash_start    integer NOT NULL,
    hash_end      integer NOT NULL,
    last_sequence bigint NOT NULL,
    CONSTRAINT segment_mark_pkey PRIMARY KEY (log_id, producer, inherited, hash_start)
);

-- A subscription in one segment: who may acknowledge. Changed by a new owner and by a seek only.
CREATE TABLE segment_cursor (
    cursor_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    log_id       bigint NOT NULL,
    subscription text NOT NULL,
    incarnation  bigint NOT NULL DEFAULT 0,
    generation   bigint NOT NULL DEFAULT 0,
    CONSTRAINT segment_cursor_key UNIQUE (log_id, subscription)
);

-- Where cursors stand: the row with the highest incarnation and position rules. An acknowledgement inserts a row and
-- deletes the one before; an update in place would leave versions under one key of the index, and while an old
-- snapshot is open each reader of the cursor would walk over all of them.
CREATE TABLE segment_position (
    cursor_id   bigint NOT NULL,
    incarnation bigint NOT NULL,
    position    bigint NOT NULL,
    CONSTRAINT segment_position_pkey PRIMARY KEY (cursor_id, incarnation, position)
);

-- The offset behind the last batch of a log. To be trusted by a writer only under the lock of the log's row, in a
-- statement that began after the lock was had: an earlier snapshot would miss the batch that was waited for.
CREATE FUNCTION segment_end_offset(log segment_log) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(log.end_offset, (
        SELECT b.base_offset + b.count FROM segment_batch b
        WHERE b.log_id = log.log_id ORDER BY b.base_offset DESC LIMIT 1
    ), log.start_offset)
$$;

CREATE FUNCTION segment_lock(an_incarnation bigint, a_segment_id bigint) RETURNS SETOF segment_log
LANGUAGE sql VOLATILE AS $$
    SELECT * FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id FOR NO KEY UPDATE
$$;

-- Remembers the token of an operation; false when a later runner of the same operation was here before.
CREATE FUNCTION segment_pass_fence(a_log_id bigint, an_operation text, a_token bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
    IF an_operation IS NULL THEN
        RETURN true;
    END IF;
    UPDATE segment_log SET fences = fences || jsonb_build_object(an_operation, a_token)
    WHERE log_id = a_log_id AND coalesce((fences ->> an_operation)::bigint, a_token) <= a_token;
    RETURN FOUND;
END
$$;

-- The last sequence of a producer that holds for the whole range of the log: of its last batch here, or of a
-- trimmed one; -1 when there is none.
CREATE FUNCTION segment_own_sequence(a_log_id bigint, a_producer text) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT greatest(
        (SELECT last_sequence FROM segment_batch
         WHERE log_id = a_log_id AND producer = a_producer ORDER BY last_sequence DESC LIMIT 1),
        (SELECT max(last_sequence) FROM segment_mark
         WHERE log_id = a_log_id AND producer = a_producer AND NOT inherited),
        -1)
$$;

-- The lowest and the highest last sequence over the hashes of a range; inherited marks are disjoint.
CREATE FUNCTION segment_mark_bounds(
    a_log_id bigint, a_producer text, own bigint, hash_low integer, hash_high integer,
    OUT lowest bigint, OUT highest bigint
) LANGUAGE sql STABLE AS $$
    SELECT
        greatest(own, CASE
            WHEN sum(least(hash_end, hash_high) - greatest(hash_start, hash_low) + 1) = hash_high - hash_low + 1
            THEN min(last_sequence) ELSE -1 END),
        greatest(own, max(last_sequence))
    FROM segment_mark
    WHERE log_id = a_log_id AND producer = a_producer AND inherited
      AND hash_start <= hash_high AND hash_end >= hash_low
$$;

-- Appends batches under the lock of the log's row, all or none, and updates no row: the next offset is read from the
-- last batch. A hash of NULL fits the whole range. Answers with `refusal`: missing, terminated, outside_range or
-- partly_duplicate, the latter two with the index of the batch; else with one offset and one flag for each batch.
CREATE FUNCTION segment_append(
    an_incarnation bigint, a_segment_id bigint, a_producer text,
    counts integer[], hash_lows integer[], hash_highs integer[], firsts bigint[], lasts bigint[], sizes integer[],
    payloads bytea[],
    OUT refusal text, OUT refused_index integer, OUT base_offsets bigint[], OUT duplicates boolean[]
) LANGUAGE plpgsql AS $$
DECLARE
    log         segment_log;
    next_offset bigint;
    next_bytes  bigint;
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
    SELECT b.base_offset + b.count, b.end_bytes INTO next_offset, next_bytes FROM segment_batch b
    WHERE b.log_id = log.log_id ORDER BY b.base_offset DESC LIMIT 1;
    next_offset := coalesce(next_offset, log.start_offset);
    next_bytes := coalesce(next_bytes, 0);
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
           CASE WHEN firsts[i] >= 0 THEN a_producer END, firsts[i], lasts[i], ends[i], payloads[i]
    FROM generate_subscripts(counts, 1) AS i WHERE NOT duplicates[i];
END
$$;

-- Adds the cursors that are not there, at a position or (NULL) at the first offset that is kept.
CREATE FUNCTION segment_add_cursors(log segment_log, subscriptions text[], a_position bigint) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH made AS (
        INSERT INTO segment_cursor (log_id, subscription) SELECT log.log_id, name FROM unnest(subscriptions) AS name
        ON CONFLICT ON CONSTRAINT segment_cursor_key DO NOTHING RETURNING cursor_id
    )
    INSERT INTO segment_position SELECT cursor_id, 0, coalesce(a_position, log.start_offset) FROM made
$$;

CREATE FUNCTION segment_create(
    an_incarnation bigint, a_segment_id bigint, a_hash_start integer, a_hash_end integer, subscriptions text[],
    an_operation text, a_token bigint, OUT refusal text
) LANGUAGE plpgsql AS $$
DECLARE
    log segment_log;
BEGIN
    INSERT INTO segment_log (incarnation, segment_id, hash_start, hash_end)
    VALUES (an_incarnation, a_segment_id, a_hash_start, a_hash_end)
    ON CONFLICT ON CONSTRAINT segment_log_key DO NOTHING;
    SELECT * INTO log FROM segment_lock(an_incarnation, a_segment_id);
    IF NOT FOUND THEN
        refusal := 'missing';
    ELSIF NOT segment_pass_fence(log.log_id, an_operation, a_token) THEN
        refusal := 'fenced';
    ELSE
        PERFORM segment_add_cursors(log, subscriptions, NULL);
    END IF;
END
$$;

-- Locks first and reads the end in a later statement, so that the end counts the append that was waited for.
CREATE FUNCTION segment_terminate(
    an_incarnation bigint, a_segment_id bigint, an_operation text, a_token bigint,
    OUT refusal text, OUT final_offset bigint
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
        final_offset := segment_end_offset(log);
        UPDATE segment_log SET end_offset = final_offset, terminated_at = clock_timestamp()
        WHERE log_id = log.log_id AND end_offset IS NULL;
    END IF;
END
$$;

-- Removes one cursor of a log, or (NULL) all.
CREATE FUNCTION segment_delete_cursors(a_log_id bigint, a_subscription text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH gone AS (
        DELETE FROM segment_cursor
        WHERE log_id = a_log_id AND subscription = coalesce(a_subscription, subscription) RETURNING cursor_id
    )
    DELETE FROM segment_position p USING gone WHERE p.cursor_id = gone.cursor_id
$$;

CREATE FUNCTION segment_delete(an_incarnation bigint, a_segment_id bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    a_log_id bigint;
BEGIN
    DELETE FROM segment_log WHERE incarnation = an_incarnation AND segment_id = a_segment_id
    RETURNING log_id INTO a_log_id;
    DELETE FROM segment_batch WHERE log_id = a_log_id;
    DELETE FROM segment_mark WHERE log_id = a_log_id;
    PERFORM segment_delete_cursors(a_log_id, NULL);
END
$$;

-- Deletes whole batches below an offset, a bounded number, and keeps the marks of producers that lose their last
-- batch here.
CREATE FUNCTION segment_trim(
    an_incarnation bigint, a_segment_id bigint, before_offset bigint, max_batches integer,
    OUT refusal text, OUT new_start bigint
) LANGUAGE plpgsql AS $$
DECLARE
    log segment_log;
BEGIN
    SELECT * INTO log FROM segment_lock(an_incarnation, a_segment_id);
    IF NOT FOUND THEN
        refusal := 'missing';
        RETURN;
    END IF;
    SELECT max(doomed.behind) INTO new_start FROM (
        SELECT b.base_offset + b.count AS behind FROM segment_batch b
        WHERE b.log_id = log.log_id AND b.base_offset < before_offset AND b.base_offset + b.count <= before_offset
        ORDER BY b.base_offset LIMIT max_batches
    ) doomed;
    IF new_start IS NULL THEN
        new_start := log.start_offset;
        RETURN;
    END IF;
    INSERT INTO segment_mark AS m (log_id, producer, inherited, hash_start, hash_end, last_sequence)
    SELECT log.log_id, gone.producer, false, log.hash_start, log.hash_end, max(gone.last_sequence)
    FROM segment_batch gone
    WHERE gone.log_id = log.log_id AND gone.base_offset < new_start AND gone.producer IS NOT NULL
      AND NOT EXISTS (
        SELECT FROM segment_batch kept
        WHERE kept.log_id = log.log_id AND kept.producer = gone.producer
          AND kept.last_sequence > gone.last_sequence AND kept.base_offset >= new_start)
    GROUP BY gone.producer
    ON CONFLICT ON CONSTRAINT segment_mark_pkey DO UPDATE SET last_sequence = excluded.last_sequence
    WHERE excluded.last_sequence > m.last_sequence;
    DELETE FROM segment_batch WHERE log_id = log.log_id AND base_offset < new_start;
    UPDATE segment_log SET start_offset = new_start WHERE log_id = log.log_id;
END
$$;

-- The marks of one producer: the one over the whole range, and the inherited ones.
CREATE FUNCTION segment_marks_of(a_log_id bigint, a_producer text)
RETURNS TABLE (producer text, hash_start integer, hash_end integer, last_sequence bigint)
LANGUAGE sql STABLE AS $$
    SELECT a_producer, log.hash_start, log.hash_end, segment_own_sequence(log.log_id, a_producer)
    FROM segment_log log WHERE log.log_id = a_log_id
    UNION ALL
    SELECT m.producer, m.hash_start, m.hash_end, m.last_sequence FROM segment_mark m
    WHERE m.log_id = a_log_id AND m.producer = a_producer AND m.inherited
$$;

-- The marks of all producers. They are found by hopping over the index from one producer to the next, so that the
-- cost follows their number and not that of the batches.
CREATE FUNCTION segment_marks(a_log_id bigint)
RETURNS TABLE (producer text, hash_start integer, hash_end integer, last_sequence bigint)
LANGUAGE sql STABLE AS $$
    WITH RECURSIVE newest AS (
        (SELECT b.producer, b.last_sequence FROM segment_batch b
         WHERE b.log_id = a_log_id AND b.producer IS NOT NULL
         ORDER BY b.producer DESC, b.last_sequence DESC LIMIT 1)
        UNION ALL
        SELECT hop.producer, hop.last_sequence FROM newest CROSS JOIN LATERAL (
            SELECT b.producer, b.last_sequence FROM segment_batch b
            WHERE b.log_id = a_log_id AND b.producer < newest.producer
            ORDER BY b.producer DESC, b.last_sequence DESC LIMIT 1
        ) hop
    )
    SELECT newest.producer, log.hash_start, log.hash_end, newest.last_sequence
    FROM newest JOIN segment_log log ON log.log_id = a_log_id
    UNION ALL
    SELECT m.producer, m.hash_start, m.hash_end, m.last_sequence FROM segment_mark m WHERE m.log_id = a_log_id
$$;

CREATE FUNCTION segment_cursor_position(a_cursor_id bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT position FROM segment_position
    WHERE cursor_id = a_cursor_id ORDER BY incarnation DESC, position DESC LIMIT 1
$$;

-- Moves a cursor up under the lock of its row, which has the fences: a new owner or a seek that comes meanwhile waits,
-- or was waited for and refuses this. The position is read in a later statement than the lock, so that it counts the
-- acknowledgement that was waited for. A refusal names the fence; the caller reads the cursor to tell the numbers.
CREATE FUNCTION segment_acknowledge(
    an_incarnation bigint, a_segment_id bigint, a_subscription text, a_generation bigint, a_cursor_incarnation bigint,
    new_position bigint, OUT refused boolean, OUT at_position bigint, OUT at_incarnation bigint
) LANGUAGE plpgsql AS $$
DECLARE
    log    segment_log;
    cursor segment_cursor;
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
    at_incarnation := cursor.incarnation;
    at_position := segment_cursor_position(cursor.cursor_id);
    IF new_position > at_position THEN
        INSERT INTO segment_position VALUES (cursor.cursor_id, cursor.incarnation, new_position);
        DELETE FROM segment_position p
        WHERE p.cursor_id = cursor.cursor_id AND p.incarnation = cursor.incarnation AND p.position = at_position;
        at_position := new_position;
    END IF;
END
$$;

-- Moves a cursor anywhere between the ends of the log and raises its incarnation.
CREATE FUNCTION segment_seek(
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
    DELETE FROM segment_position p WHERE p.cursor_id = a_cursor_id;
    INSERT INTO segment_position SELECT a_cursor_id, at_incarnation, new_position WHERE NOT refused;
END
$$;
